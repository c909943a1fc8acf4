"""Sums of groups in turn with noise in bands: what one user can do, and what noise there is."""

import dataclasses
import itertools

import numpy as np
import pytest
from closed_forms import lower_triangular
from scipy import stats

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import BandedGaussian, ParallelEvent, PoissonGaussian
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.continual.correlated_sum import CorrelatedNoise, CorrelatedSum
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import CyclicSampler

ROW = (0.8, 0.5, 0.3)
ONE_RUN = ["blt-gaussian", *["blt-later"] * 9]


def make(row=ROW, *, share=0.1, sigma=2.0, clip=0.5, adjacency=Adjacency.ADD_REMOVE):
    factor = Banded(tuple(row))
    sampler = CyclicSampler(share, factor.groups)
    return CorrelatedSum(sampler, UserClip(clip), sigma, adjacency, factor)


def buffered(adjacency=Adjacency.ADD_REMOVE):
    factor = BufferedToeplitz.scaled(np.array([0.6, 0.2]), np.array([0.7, 0.3]), 10, 3)
    return CorrelatedSum(CyclicSampler(1 / 3, 3), UserClip(0.5), 2.0, adjacency, factor)


def released(mechanism, ledger, rounds, *, memory=None, source=None, sums=None, first=1):
    """Rounds from ``first`` to the last, of zeros if there are no ``sums``, (T, D)."""
    memory = memory or CorrelatedNoise(mechanism)
    source = source or Randomness(3)
    return np.array(
        [
            memory.release(
                np.zeros(2_000) if sums is None else sums[round_ - 1],
                round_=round_,
                covers="sum",
                ledger=ledger,
                source=source,
            )
            for round_ in range(first, rounds + 1)
        ]
    )


def gaussian_delta(epsilon, mu):
    """Balle and Wang 2018, Theorem 8."""
    upper, lower = (stats.norm.cdf(s * mu / 2 - epsilon / mu) for s in (1, -1))
    return float(upper - np.exp(epsilon) * lower)


# What one user can do.


@pytest.mark.parametrize("row", [ROW, (0.8, 0.59), (0.5, 0.5, -0.5, 0.49), (1.0,)])
@pytest.mark.parametrize("rounds", [1, 2, 5, 7])
def test_every_pattern_of_taking_part_moves_no_row_twice_and_each_by_no_more_than_one(row, rounds):
    """All patterns, all signs of what the user adds: by C x as a whole matrix, in brute force."""
    matrix_TT, bands = lower_triangular(row, rounds), len(row)
    for group in range(bands):
        turns = range(group, rounds, bands)
        for part in itertools.product((0.0, 1.0, -1.0), repeat=len(turns)):
            x_T = np.zeros(rounds)
            x_T[list(turns)] = part
            moved_T = matrix_TT @ x_T
            rows = [np.flatnonzero(matrix_TT[:, turn]) for turn in turns]
            assert len({r for each in rows for r in each}) == sum(map(len, rows))
            for turn, each in zip(turns, rows, strict=True):
                assert np.linalg.norm(moved_T[each]) <= abs(x_T[turn]) + 1e-12
            assert moved_T @ moved_T <= sum(p * p for p in part) + 1e-12


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_buffered_noise_protects_under_every_relation(adjacency):
    """One Gaussian release, by the loss under each; of a swap twice the clip norm is paid for."""
    terms = {"adjacency": adjacency, "delta": 1e-5}
    cost = accountant.epsilon(buffered(adjacency).charges(10).items(), **terms)
    whole_run = accountant.epsilon([(PoissonGaussian(1.0, 2.0), 1)], **terms)
    assert cost == pytest.approx(whole_run, rel=1e-7)
    closed = gaussian_delta(cost, adjacency.vectors_changed / 2.0)
    assert closed <= 1e-5 <= gaussian_delta(0.999 * cost, adjacency.vectors_changed / 2.0)


def test_somebody_of_another_group_in_ones_place_moves_two_at_most():
    factor = buffered().factor
    matrix_TT = lower_triangular(factor.row_T(10), 10)
    moved = [matrix_TT[:, group::3].sum(axis=1) for group in range(3)]
    for one, other in itertools.product(moved, repeat=2):
        assert np.linalg.norm(one + other) <= 2.0  # what one adds, less minus what the other does


def test_there_are_as_many_bands_as_groups():
    with pytest.raises(ValueError, match="noise for 3 groups, and 4 groups"):
        CorrelatedSum(CyclicSampler(0.1, 4), UserClip(1.0), 1.0, Adjacency.ADD_REMOVE, Banded(ROW))


# What it costs.


def test_a_run_costs_each_user_the_rounds_of_their_group():
    mechanism = make()
    event = BandedGaussian(3, 0.30000000000000004, 2.0)
    assert mechanism.charges(7) == {
        ParallelEvent(0, event): 3, ParallelEvent(1, event): 2, ParallelEvent(2, event): 2,
    }  # fmt: skip
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    cost = accountant.epsilon(mechanism.charges(7).items(), **terms)
    assert cost == accountant.epsilon([(PoissonGaussian(0.30000000000000004, 2.0), 3)], **terms)


def test_the_accountant_bounds_simulated_outputs_of_a_whole_run():
    """A tiny run, all of it: two groups, four rounds, a user of the first, by Monte Carlo.

    The attacker has C y of all rounds and the exact likelihood ratio of a user who is in each of
    their rounds by a coin; delta at an epsilon, from the ratio's distribution under either world.
    """
    row, share, sigma, trials = (0.8, 0.6), 0.25, 1.0, 400_000
    generator, rounds, bands = np.random.default_rng(0), 4, 2
    matrix_TT, turns = lower_triangular(row, rounds), (0, 2)
    coins = generator.random((trials, 2)) < bands * share
    x_NT = np.zeros((trials, rounds))
    x_NT[:, turns] = coins
    z_NT = sigma * generator.standard_normal((trials, rounds))

    def log_ratio(y_NT):
        total = np.full(len(y_NT), -np.inf)
        for part in itertools.product((0.0, 1.0), repeat=2):
            x_T = np.zeros(rounds)
            x_T[list(turns)] = part
            mean_T = matrix_TT @ x_T
            weight = np.prod([bands * share if p else 1 - bands * share for p in part])
            loss = (y_NT @ mean_T - mean_T @ mean_T / 2) / sigma**2
            total = np.logaddexp(total, np.log(weight) + loss)
        return total

    there, not_there = log_ratio(x_NT @ matrix_TT.T + z_NT), log_ratio(z_NT)
    event = BandedGaussian(bands, bands * share, sigma)
    charges = [(ParallelEvent(0, event), 2), (ParallelEvent(1, event), 2)]
    for delta in (0.2, 0.1, 0.03):
        claimed = accountant.epsilon(charges, adjacency=Adjacency.ADD_REMOVE, delta=delta)
        removed = np.maximum(0.0, -np.expm1(claimed - there)).mean()
        added = np.maximum(0.0, -np.expm1(claimed + not_there)).mean()
        error = 5.0 / np.sqrt(trials)
        assert max(removed, added) <= delta + error
        assert max(removed, added) >= delta - error  # and it is tight: both sides


def test_every_release_is_charged_to_its_group(checks, tmp_path):
    mechanism = make()
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        released(mechanism, ledger, 7)
        assert ledger.spent() == mechanism.charges(7)
        assert [charge.event.part for charge in ledger.charges] == [0, 1, 2, 0, 1, 2, 0]


def test_the_charge_is_written_before_there_is_noise(checks, tmp_path, monkeypatch):
    mechanism = make()

    def release(ledger, drawing):
        monkeypatch.setattr(CorrelatedNoise, "next", lambda *_: drawing())
        released(mechanism, ledger, 1)

    checks.charged_before_it_exists(release, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sum": np.array([np.nan])}, "not finite"),
        ({"adjacency": Adjacency.ZERO_OUT}, "the ledger is for zero-out"),
    ],
)
def test_what_does_not_fit_is_not_released(checks, tmp_path, change, message):
    mechanism = make()
    terms = {"adjacency": change.get("adjacency", Adjacency.ADD_REMOVE)}
    with checks.promise(tmp_path / "ledger.jsonl", **terms) as ledger:
        with pytest.raises(ValueError, match=message):
            CorrelatedNoise(mechanism).release(
                change.get("sum", np.zeros(1)),
                round_=1,
                covers="sum",
                ledger=ledger,
                source=Randomness(1),
            )
        assert ledger.charges == []


# Which noise there is.


def covariance_fits(noise_TD, row, std, checks):
    """C times the noise is independent and of the promised scale, two-sided; so the covariance of
    the noise itself is C⁻¹ C⁻ᵀ."""
    fresh_TD = lower_triangular(row, len(noise_TD)) @ noise_TD / std
    checks.two_sided(float((fresh_TD**2).sum()), fresh_TD.size, "scale")
    for one, other in itertools.combinations(fresh_TD, 2):
        checks.near_zero(float(one @ other) / np.sqrt(fresh_TD.shape[1]), "independence")


def independent_of_each_other(some_TD, others_TD, checks):
    """No row of the one has anything of a row of the other: their correlations are a sample's."""
    for one, other in itertools.product(some_TD, others_TD):
        correlation = float(one @ other) / (np.linalg.norm(one) * np.linalg.norm(other))
        checks.near_zero(correlation * np.sqrt(len(one)), "of both sides")


@pytest.mark.parametrize("row", [ROW, (0.8, 0.59), (0.7, -0.7), (1.0,)])
@pytest.mark.parametrize("source", [Randomness(5), Randomness(None)])
def test_noise_has_the_covariance_of_the_inverse(checks, tmp_path, row, source):
    mechanism = make(row)
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        noise_TD = released(mechanism, ledger, 9, source=source)
    covariance_fits(noise_TD, row, 1.0, checks)
    for wrong in (0.94, 1.06):
        with pytest.raises(AssertionError, match="scale"):
            covariance_fits(noise_TD * wrong, row, 1.0, checks)
    inverse = np.linalg.inv(lower_triangular(row, 9))
    np.testing.assert_allclose(
        np.cov(noise_TD), inverse @ inverse.T, atol=0.2 * np.abs(inverse @ inverse.T).max()
    )


def test_buffered_noise_has_the_covariance_of_its_inverse(checks, tmp_path):
    mechanism = buffered()
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        noise_TD = released(mechanism, ledger, 9, source=Randomness(None))
        assert ledger.spent() == mechanism.charges(9)
    row = mechanism.factor.row_T(9)
    covariance_fits(noise_TD, row, 1.0, checks)
    for wrong in (0.94, 1.06):
        with pytest.raises(AssertionError, match="scale"):
            covariance_fits(noise_TD * wrong, row, 1.0, checks)
    with pytest.raises(AssertionError, match=r"scale|independence"):
        covariance_fits(noise_TD, row[:3], 1.0, checks)


def test_the_sum_is_in_its_own_round_alone(checks, tmp_path):
    """Only noise is carried over: two runs with the same draws differ by their sums, round by
    round."""
    mechanism, sums_TD = make(), np.random.default_rng(2).normal(size=(6, 2_000))
    results = []
    for number, sums in enumerate((sums_TD, 0.0 * sums_TD)):
        with checks.promise(tmp_path / f"ledger {number}.jsonl") as ledger:
            results.append(released(mechanism, ledger, 6, sums=sums))
    np.testing.assert_allclose(results[0] - results[1], sums_TD, atol=1e-12)


def test_memory_is_of_as_many_rounds_as_bands_reach(checks, tmp_path):
    mechanism, memory = make(), CorrelatedNoise(make())
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        released(mechanism, ledger, 9, memory=memory)
    assert memory.state()["noise before"].shape == (2, 2_000)
    assert CorrelatedNoise(make((1.0,))).state() == {}


# What happens when it is interrupted.


def gone_on(memory):
    """A memory in another process, from the state of this one."""
    state = {name: array.copy() for name, array in memory.state().items()}
    again = CorrelatedNoise(memory.mechanism)
    again.restore(state)
    return again


@pytest.mark.parametrize("mechanism", [make(), buffered()])
@pytest.mark.parametrize("cut", range(1, 7))
def test_a_resumed_run_has_the_same_noise_bit_for_bit(checks, tmp_path, cut, mechanism):
    memory = CorrelatedNoise(mechanism)
    with checks.promise(tmp_path / "whole.jsonl") as ledger:
        expected_TD = released(mechanism, ledger, 8)
    path = tmp_path / "ledger.jsonl"
    with checks.promise(path) as ledger:
        released(mechanism, ledger, cut, memory=memory)
    with checks.promise(path) as ledger:
        rest_TD = released(mechanism, ledger, 8, memory=gone_on(memory), first=cut + 1)
        np.testing.assert_array_equal(rest_TD, expected_TD[cut:])
        assert ledger.spent() == mechanism.charges(8)


SOURCES = [Randomness(None), Randomness(3)]


@pytest.mark.parametrize("fresh", SOURCES)
def test_a_round_that_is_run_again_has_noise_of_its_own(checks, tmp_path, fresh):
    """Nothing of a charged round is known: the correlation ends there."""
    mechanism, memory = make(), CorrelatedNoise(make())
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        before_TD = released(mechanism, ledger, 4, memory=memory, source=fresh)
        behind = gone_on(memory)
        lost_TD = released(mechanism, ledger, 5, memory=memory, source=fresh, first=5)
        rest_TD = released(mechanism, ledger, 10, memory=behind, source=fresh, first=5)
        charged = [charge.event.part for charge in ledger.charges]
        assert charged == [0, 1, 2, 0, 1, 1, 2, 0, 1, 2, 0]
    covariance_fits(np.vstack([before_TD, lost_TD]), ROW, 1.0, checks)
    covariance_fits(rest_TD, ROW, 1.0, checks)
    independent_of_each_other(np.vstack([before_TD, lost_TD]), rest_TD, checks)


@pytest.mark.parametrize("fresh", SOURCES)
def test_buffered_noise_that_was_broken_off_is_paid_for_again(checks, tmp_path, fresh):
    """Where the first round pays for all, whatever begins anew pays for all again."""
    mechanism = buffered()
    memory = CorrelatedNoise(mechanism)
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        before_TD = released(mechanism, ledger, 4, memory=memory, source=fresh)
        behind = gone_on(memory)
        lost_TD = released(mechanism, ledger, 5, memory=memory, source=fresh, first=5)
        rest_TD = released(mechanism, ledger, 10, memory=behind, source=fresh, first=5)
        kinds = [charge.event.kind for charge in ledger.charges]
        assert kinds == [*ONE_RUN[:5], *ONE_RUN[:6]]
        twice = [(PoissonGaussian(1.0, 2.0), 2)]
        terms = {"adjacency": ledger.adjacency, "delta": ledger.delta}
        assert ledger.epsilon() == pytest.approx(accountant.epsilon(twice, **terms), rel=1e-7)
    row = mechanism.factor.row_T(6)
    covariance_fits(np.vstack([before_TD, lost_TD]), row[:5], 1.0, checks)
    covariance_fits(rest_TD, row, 1.0, checks)
    independent_of_each_other(np.vstack([before_TD, lost_TD]), rest_TD, checks)


def test_a_budget_for_one_run_is_not_for_what_begins_anew(checks, tmp_path):
    mechanism, fresh = buffered(), Randomness(None)
    terms = {"adjacency": mechanism.adjacency, "delta": 1e-5}
    budget = accountant.epsilon(mechanism.charges(10).items(), **terms) + 1e-3
    with Ledger(tmp_path / "ledger.jsonl", budget=budget, **terms) as ledger:
        ledger.clear(mechanism.charges(10))
        memory = CorrelatedNoise(mechanism)
        released(mechanism, ledger, 4, memory=memory, source=fresh)
        behind = gone_on(memory)
        released(mechanism, ledger, 5, memory=memory, source=fresh, first=5)
        with pytest.raises(BudgetExceeded):
            released(mechanism, ledger, 5, memory=behind, source=fresh, first=5)
        released(mechanism, ledger, 10, memory=memory, source=fresh, first=6)
        assert len(ledger.charges) == 10


@pytest.mark.parametrize("fresh", SOURCES)
@pytest.mark.parametrize("change", ["a charge", "factor"])
def test_noise_is_not_gone_on_with_where_the_ledger_is_another(checks, tmp_path, change, fresh):
    mechanism, memory = make(), CorrelatedNoise(make())
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        before_TD = released(mechanism, ledger, 4, memory=memory, source=fresh)
        behind = gone_on(memory)
        if change == "a charge":
            ledger.charge(mechanism.event_of(5), round_=5, covers="sum")
        else:
            mechanism = dataclasses.replace(mechanism, factor=Banded((0.8, 0.5, 0.2)))
            behind = CorrelatedNoise(mechanism)
            behind.restore(memory.state())
        after_TD = released(mechanism, ledger, 6, memory=behind, source=fresh, first=5)
    covariance_fits(after_TD, mechanism.factor.parameters, 1.0, checks)
    independent_of_each_other(before_TD, after_TD, checks)
