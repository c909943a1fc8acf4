"""A sum and a count for one charge: bounds, noise of both, cost, replays."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import clipping, parallel
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.noisy_sum import CountingClip, JointSum, sum_noise_for
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler

D = 20_000


def mechanism(norm=0.5, sigma=4.0, count_noise=10.0, adjacency=Adjacency.ADD_REMOVE):
    return JointSum(PoissonSampler(0.1), UserClip(norm), sigma, count_noise, adjacency)


@pytest.fixture
def ledger(tmp_path):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "budget": None}
    with Ledger(tmp_path / "ledger.jsonl", **terms) as ledger:
        yield ledger


def release(ledger, sum_D=None, count=0.0, *, round_=1, seed=0, made=None):
    sum_D = np.zeros(D) if sum_D is None else sum_D
    made, source = made or mechanism(), Randomness(seed)
    return made.release(sum_D, count, round_=round_, covers="both", ledger=ledger, source=source)


# What a user adds


@pytest.mark.parametrize("norm", [0.03, 4.0])
def test_vectors_are_bounded(checks: SimpleNamespace, norm):
    checks.clips(lambda grads_BD: CountingClip(norm).clip_sum(grads_BD)[:-1], norm)


def test_what_is_bounded_is_the_distance_from_the_centre(checks: SimpleNamespace):
    centre_D = torch.tensor([3.0, -4.0, 0.0, 0.0], dtype=torch.float64)
    bound = CountingClip(0.7, centre_D=centre_D)
    near_D = centre_D + torch.tensor([0.0, 0.0, 0.0, 0.2], dtype=torch.float64)
    sum_D1 = bound.clip_sum(torch.stack([near_D, torch.zeros(4, dtype=torch.float64)]))
    expected_D = near_D - centre_D - 0.7 * centre_D / 5.0
    torch.testing.assert_close(sum_D1[:-1], expected_D, rtol=1e-5, atol=1e-9)
    assert float(sum_D1[-1]) == 0.0  # one within, one not
    checks.bounded_influence(
        lambda grads_BD, _: bound.clip_sum(grads_BD), bound=math.hypot(0.7, 0.5)
    )


@pytest.mark.parametrize(("middle", "expected"), [(0.5, 0.5), (0.0, 2.0)])
def test_who_is_within_is_counted_and_who_is_not_finite_is_nobody(middle, expected):
    vectors_BD = torch.tensor(
        [[1.0, 0.0], [0.0, 0.0], [1.1, 0.0], [math.nan, 0.0], [0.0, math.inf]]
    )
    found = CountingClip(1.0, middle).clip_sum(vectors_BD)
    assert float(found[-1]) == expected  # on the sphere is within
    assert torch.isfinite(found).all()
    assert CountingClip(1.0).clip_sum(torch.zeros(0, 3)).tolist() == [0.0] * 4


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.floats(1e-6, 1e6))
def test_no_user_moves_vector_or_count_further_than_stated(values, norm):
    rows_BD = torch.tensor(values)[:, None].repeat(1, 2)
    for row_D in rows_BD:
        found = CountingClip(norm).clip_sum(row_D[None])
        assert float(found[:-1].norm()) <= norm
        assert abs(float(found[-1])) <= 0.5
    all_D1 = CountingClip(norm).clip_sum(rows_BD)
    alone = sum(CountingClip(norm).clip_sum(row_D[None]) for row_D in rows_BD)
    torch.testing.assert_close(all_D1, alone, rtol=1e-9, atol=1e-9 * norm)


@pytest.mark.parametrize("centred", [False, True])
def test_threads_change_no_bit_of_a_long_vector(centred):
    """Lengths are sums of fixed stretches in a fixed order."""
    draws = torch.Generator().manual_seed(0)
    length = 3 * parallel.COLUMNS + 11
    vectors_BD = torch.randn(3, length, generator=draws) * torch.tensor([[1e-4], [1.0], [1e9]])
    vectors_BD[1, -1] = torch.nan
    centre_D = torch.randn(length, generator=draws).double() if centred else None
    bound, found = CountingClip(0.5, 0.0, centre_D), []
    before = torch.get_num_threads()
    try:
        for cores in (1, 2, 3, 7):
            torch.set_num_threads(cores)
            found.append(bound.clip_sum(vectors_BD))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert float(found[0][-1]) == float(not centred)  # the short one, but where it is far away
    rows_BD = vectors_BD[[0, 2]].double() - (0.0 if centre_D is None else centre_D)
    clipped_BD = rows_BD * (0.5 / rows_BD.norm(dim=1, keepdim=True)).clamp(max=1.0)
    torch.testing.assert_close(found[0][:-1], clipped_BD.sum(0), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("centred", [False, True])
def test_company_changes_no_bit_of_a_long_vector(centred):
    """Nor whether it is within: terms are added in the same order, whoever shares the chunk."""
    draws = torch.Generator().manual_seed(0)
    length = parallel.COLUMNS + 5_000
    vectors_BD = torch.randn(4, length, generator=draws)
    centre_D = 0.1 * torch.randn(length, generator=draws).double() if centred else None

    def moves_alone(bound):
        alone = sum(bound.clip_sum(row_D[None].clone()) for row_D in vectors_BD)
        return torch.equal(bound.clip_sum(vectors_BD), alone)

    apart_BD = vectors_BD.double() - (0.0 if centre_D is None else centre_D)
    for norm in apart_BD.norm(dim=1).tolist():
        # Where the last digit of a length decides, and next to there.
        for near in norm * (1.0 + 2.0**-52 * np.arange(-300, 300, 25)):
            assert moves_alone(CountingClip(float(near), 0.5, centre_D))


@pytest.mark.parametrize("centred", [False, True])
def test_vectors_on_another_device_are_clipped_and_counted_the_same(monkeypatch, centred):
    monkeypatch.setattr(clipping, "COLUMNS", 3)
    draws = torch.Generator().manual_seed(0)
    vectors_BD = torch.randn(6, 10, generator=draws) * torch.tensor(
        [[1e-3], [0.1], [1.0], [1e15], [1.0], [0.0]]
    )
    vectors_BD[2, 4], vectors_BD[4, 9] = torch.nan, torch.inf
    centre_D = 0.1 * torch.randn(10, generator=draws).double() if centred else None
    clip, bound = UserClip(0.7), CountingClip(0.7, 0.0, centre_D)
    norm = clip.norm * clipping.ROUNDING
    steps_D, length_B = clipping.steps_there(vectors_BD, norm, clip.step, centre_D)
    here_D1 = bound.clip_sum(vectors_BD)
    # Lengths are added up in another order: a step more or less.
    assert float((steps_D * clip.step - here_D1[:-1]).abs().max()) <= 6 * clip.step
    assert int((length_B <= clip.norm).sum()) == float(here_D1[-1]) == 3


# What is released


@pytest.mark.parametrize(("norm", "sigma"), [(1e-3, 0.3), (7.0, 11.0)])
def test_noise_of_the_sum_is_for_its_clip_norm(checks: SimpleNamespace, ledger, norm, sigma):
    made = mechanism(norm, sigma)
    noise_D, _ = release(ledger, made=made)
    assert made.std == norm * sigma
    checks.gaussian_noise(noise_D, norm * sigma)
    for factor in (2 / 3, 1.5, 0.905):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise_D, norm * sigma * factor)


def test_noise_of_the_count_is_its_own(checks: SimpleNamespace, ledger):
    made = mechanism(norm=1e-3, count_noise=25.0)
    counts = [
        release(ledger, np.zeros(1), 7.0, round_=round_, made=made)[1] for round_ in range(300)
    ]
    noise = np.array(counts) - 7.0
    checks.gaussian_noise(noise, 25.0)
    for factor in (2 / 3, 1.5):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise, 25.0 * factor)


def test_sum_and_count_have_different_noise(ledger):
    noise_D, noise = release(ledger, np.zeros(3), made=mechanism(1.0, 1.0, 1.0))
    assert len({*noise_D.tolist(), noise}) == 4


def test_one_charge_for_both_before_they_exist(ledger):
    release(ledger)
    assert [(c.round, c.covers, c.event) for c in ledger.charges] == [
        (1, "both", mechanism().event)
    ]


def test_what_cannot_be_paid_for_is_not_released(tmp_path):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    with (
        Ledger(tmp_path / "l", budget=1e-3, **terms) as ledger,
        pytest.raises(BudgetExceeded, match="over the budget"),
    ):
        release(ledger, made=mechanism(sigma=0.5))
    assert not ledger.charges


def test_values_and_ledgers_that_do_not_fit_are_refused(ledger):
    for sum_D, count in ((np.array([np.nan]), 0.0), (np.zeros(1), math.inf)):
        with pytest.raises(ValueError, match="not finite"):
            release(ledger, sum_D, count)
    with pytest.raises(ValueError, match="ledger is for add-remove"):
        release(ledger, made=mechanism(adjacency=Adjacency.REPLACE))
    assert not ledger.charges


def test_an_exact_replay_is_one_release_and_anything_else_is_refused(checks, ledger):
    first = release(ledger, np.ones(5), 3.0)
    again = release(ledger, np.ones(5), 3.0)
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert len(ledger.charges) == 1
    # The same event and the same noise on the sum, another on the count.
    same_sum = mechanism(0.5 * 4 / 5, 5.0, 1 / math.sqrt(0.09 + 0.01))
    assert same_sum.std == pytest.approx(mechanism().std)
    assert same_sum.event.noise_multiplier == pytest.approx(mechanism().event.noise_multiplier)
    for sum_D, count, made in (
        (np.ones(5), 4.0, None),
        (np.ones(5) * 2, 3.0, None),
        (np.ones(5), 3.0, mechanism(norm=0.6)),
        (np.ones(5), 3.0, same_sum),
    ):
        checks.does_not_repeat(
            lambda s=sum_D, c=count, m=made: release(ledger, s, c, made=m), ledger
        )
    others = [release(ledger, np.ones(5), 3.0, seed=None) for _ in range(2)]
    assert [charge.attempt for charge in ledger.charges] == [0, 1, 2]
    noise = [found[0][0] - 1.0 for found in (first, *others)]
    assert len({round(value, 9) for value in noise}) == 3


# What it costs


def costs_the_whole_vector(event_of):
    """``event_of(σ, σ_b)`` costs what a Gaussian costs on the vector that one user adds.

    Scaled to unit noise that vector is 1/σ long in the sum and ½/σ_b in the count.
    """
    for sigma, count_noise in ((4.0, 25.0), (1.0, 0.5), (3.0, 2.0)):
        length = math.hypot(1.0 / sigma, 0.5 / count_noise)
        exact = accountant.epsilon(
            [(PoissonGaussian(0.1, 1.0 / length), 50)], adjacency=Adjacency.REPLACE, delta=1e-5
        )
        found = accountant.epsilon(
            [(event_of(sigma, count_noise), 50)], adjacency=Adjacency.REPLACE, delta=1e-5
        )
        assert found == pytest.approx(exact, rel=1e-6), "not the cost of both together"


def test_it_costs_the_whole_vector():
    costs_the_whole_vector(lambda sigma, noise: mechanism(sigma=sigma, count_noise=noise).event)


@pytest.mark.parametrize(
    "fault",
    [
        lambda sigma, noise: PoissonGaussian(0.1, sigma),  # the count is free
        lambda sigma, noise: PoissonGaussian(
            0.1, 1 / math.hypot(1 / sigma, 1 / noise)
        ),  # bits 0, 1
        lambda sigma, noise: PoissonGaussian(0.1, 1 / (1 / sigma + 0.5 / noise)),  # added up
    ],
)
def test_other_costs_are_noticed(fault):
    with pytest.raises(AssertionError, match="both together"):
        costs_the_whole_vector(fault)


@given(st.floats(0.3, 50.0), st.floats(0.1, 1000.0))
def test_the_noise_that_is_left_for_the_sum(effective, count_noise):
    if 0.5 / count_noise >= 1.0 / effective:
        with pytest.raises(ValueError, match="leaves nothing"):
            sum_noise_for(effective, count_noise)
        return
    sigma = sum_noise_for(effective, count_noise)
    assert sigma >= effective
    if sigma < 1e4 * effective:
        made = mechanism(sigma=sigma, count_noise=count_noise)
        assert made.event.noise_multiplier == pytest.approx(effective, rel=1e-6)


def test_impossible_noise_is_refused():
    with pytest.raises(ValueError, match="positive"):
        mechanism(sigma=0.0)
    with pytest.raises(ValueError, match="positive"):
        mechanism(count_noise=math.nan)
