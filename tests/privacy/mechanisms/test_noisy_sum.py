import dataclasses
import inspect
import itertools
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import GroupGaussian, PoissonGaussian, PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.clipping import ExampleClip, LabelClip, UserClip
from murmuration.privacy.mechanisms.noisy_sum import (
    GaussianSum,
    JointSum,
    sum_noise_for,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    ExampleSampler,
    PoissonSampler,
)

D = 20_000
ZERO_D = np.zeros(D)


def plan(norm=0.5, sigma=4.0, adjacency=Adjacency.ADD_REMOVE):
    return GaussianSum(PoissonSampler(0.1), UserClip(norm), sigma, adjacency)


@pytest.fixture
def ledger(checks, tmp_path):
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        yield ledger


def release(
    ledger,
    sum_D=ZERO_D,
    *,
    round_=1,
    covers="gradient",
    seed=0,
    mechanism=None,
):
    source = Randomness(seed)
    mechanism = mechanism or plan()
    return mechanism.release(sum_D, round_=round_, covers=covers, ledger=ledger, source=source)


def mechanism(norm=0.5, sigma=4.0, count_noise=10.0, adjacency=Adjacency.ADD_REMOVE):
    parts = PoissonSampler(0.1), UserClip(norm), sigma
    return JointSum(*parts, adjacency, count_noise=count_noise)


def release_joint(ledger, sum_D=None, count=0.0, *, round_=1, seed=0, made=None):
    sum_D = np.zeros(D) if sum_D is None else sum_D
    made, source = made or mechanism(), Randomness(seed)
    return made.release(sum_D, count, round_=round_, covers="both", ledger=ledger, source=source)


def test_the_noise_has_the_right_scale_and_no_other(checks, ledger):
    noise_D = release(ledger)
    checks.gaussian_noise(noise_D, 2.0)
    for factor in (2 / 3, 1.5, 0.95, 1.05):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise_D, 2.0 * factor)


@pytest.mark.parametrize("norm", [1e-3, 0.1, 7.0])
@pytest.mark.parametrize("sigma", [0.3, 11.0])
def test_the_noise_scales_with_the_clip_norm_and_the_multiplier(checks, ledger, norm, sigma):
    mechanism = plan(norm, sigma)
    assert mechanism.std == norm * sigma
    checks.gaussian_noise(release(ledger, mechanism=mechanism), norm * sigma)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_what_is_charged_is_what_is_run_under_every_relation(checks, adjacency, tmp_path):
    # Under ``replace`` the accountant supplies the factor two; here it would be counted twice.
    mechanism = plan(0.7, 5.0, adjacency)
    with Ledger(tmp_path / "l", adjacency=adjacency, delta=1e-5, budget=None) as ledger:
        noise_D = release(ledger, mechanism=mechanism)
        assert ledger.spent() == {mechanism.event: 1} == {PoissonGaussian(0.1, 5.0): 1}
    checks.gaussian_noise(noise_D, 3.5)


def test_the_noise_fits_the_bound_that_was_used(checks, ledger):
    """Which is measured: the length to which one far too long user is cut."""
    mechanism = plan(0.3)
    exact_D = mechanism.clip.clip_sum(torch.full((1, D), 1e3)).numpy()
    noisy_D = release(ledger, exact_D, mechanism=mechanism)
    checks.gaussian_noise(noisy_D - exact_D, 4.0 * float(np.linalg.norm(exact_D)))


def test_noise_for_another_clip_bound_cannot_be_expressed():
    names = [field.name for field in dataclasses.fields(GaussianSum)]
    assert names == [
        "sampler",
        "clip",
        "noise_multiplier",
        "adjacency",
        "discrete",
    ]
    assert not {"std", "clip", "norm", "sensitivity", "event"} & set(
        inspect.signature(GaussianSum.release).parameters
    )
    mechanism = plan(0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.clip = UserClip(1.0)
    with pytest.raises(AttributeError):
        mechanism.std = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.clip.norm = 1.0
    doubled = dataclasses.replace(mechanism, clip=UserClip(1.0))
    assert doubled.std == 2 * mechanism.std
    assert doubled.event == mechanism.event


def test_the_sum_is_still_in_there(ledger):
    sum_D = np.linspace(-50, 50, D)
    released_D = release(ledger, sum_D)
    assert np.array_equal(sum_D, np.linspace(-50, 50, D)), "the argument is left as it was"
    assert released_D.dtype == np.float64
    assert released_D.shape == (D,)
    assert abs((released_D - sum_D).mean()) < 5 * 2.0 / D**0.5


def test_noise_of_other_rounds_attempts_purposes_and_seeds_is_unrelated(checks, ledger):
    def attempt(number):
        def charge(*_, **__):
            return SimpleNamespace(attempt=number)

        return SimpleNamespace(adjacency=Adjacency.ADD_REMOVE, charge=charge)

    noises = [
        release(ledger),
        release(ledger, round_=2),
        release(ledger, covers="radius"),
        release(attempt(0), seed=1),
        release(attempt(1)),
    ]
    assert np.array_equal(noises[0], release(attempt(0)))  # the stand-in is a ledger like another
    for i, noise_D in enumerate(noises):
        checks.gaussian_noise(noise_D, 2.0)
        for other_D in noises[:i]:
            checks.unrelated(noise_D, other_D)


def test_noise_comes_from_no_global_generator(checks, tmp_path):
    draws = []
    for state in (7, 8):
        np.random.seed(state)  # noqa: NPY002
        with checks.promise(tmp_path / f"{state}") as ledger:
            draws.append(release(ledger))
    assert np.array_equal(*draws)


@pytest.mark.parametrize("seed", [0, None])
def test_no_two_sums_have_the_same_noise(checks, tmp_path, seed):
    """The same noise twice, or at two scales, would give their difference away, or both."""
    moved_D = np.zeros(D)
    moved_D[0] = 1e-12
    cases = [(ZERO_D, plan()), (ZERO_D, plan()), (ZERO_D + 1.0, plan()), (moved_D, plan())]
    cases += [(ZERO_D, plan(1.0)), (ZERO_D, plan(0.5, 8.0)), (ZERO_D, plan(2.0, 4.0))]
    noises = []
    for sum_D, mechanism in cases:  # as after so many crashes: the file is all that is left
        with checks.promise(tmp_path / "l") as ledger:
            noisy_D = release(ledger, sum_D, seed=seed, mechanism=mechanism)
            noises.append((noisy_D - sum_D) / mechanism.std)
            assert [charge.attempt for charge in ledger.charges] == [*range(len(noises))]
    for one, other in itertools.combinations(noises, 2):
        checks.unrelated(one, other)


def test_the_charge_is_on_disk_before_any_noise_exists(checks, tmp_path, monkeypatch):
    for kind, seed in (("seeded", 0), ("deployed", None)):
        (tmp_path / kind).mkdir()

        def run(ledger, drawing, seed=seed):
            monkeypatch.setattr(Randomness, "stream", lambda *_: drawing())
            return release(ledger, seed=seed)

        checks.charged_before_it_exists(run, tmp_path / kind)


def test_nothing_is_drawn_or_returned_when_the_charge_cannot_be_synced(ledger, monkeypatch):
    drawn = []
    monkeypatch.setattr(Randomness, "stream", lambda *name: drawn.append(name))

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        release(ledger)
    assert drawn == []


@pytest.mark.parametrize("released", [release, release_joint])
def test_nothing_is_drawn_when_the_budget_refuses(checks, tmp_path, monkeypatch, released):
    event = plan().event if released is release else mechanism().event
    budget = accountant.epsilon([(event, 1)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    with checks.promise(tmp_path / "l", budget=budget) as ledger:
        released(ledger)
        before = (tmp_path / "l").read_bytes()
        drawn = []
        monkeypatch.setattr(Randomness, "stream", lambda *name: drawn.append(name))
        with pytest.raises(BudgetExceeded):
            released(ledger, round_=2)
        assert drawn == []
        assert (tmp_path / "l").read_bytes() == before


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_sum_that_is_not_finite_is_refused_before_it_is_charged(ledger, bad):
    sum_D = np.zeros(5)
    sum_D[3] = bad
    with pytest.raises(ValueError, match="not finite"):
        release(ledger, sum_D)
    assert ledger.charges == []


@pytest.mark.parametrize("adjacency", [a for a in Adjacency if a is not Adjacency.ADD_REMOVE])
def test_a_ledger_for_another_relation_is_refused(ledger, adjacency):
    with pytest.raises(ValueError, match=f"ledger is for add-remove, the plan for {adjacency}"):
        release(ledger, mechanism=plan(adjacency=adjacency))
    assert ledger.charges == []


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_plan_without_noise_cannot_be_made(sigma):
    with pytest.raises(ValueError, match="noise multiplier must be positive"):
        plan(sigma=sigma)


def test_a_sum_of_examples(checks, ledger, tmp_path):
    grouped = ExampleSampler(0.1, 4, GroupGaussian)
    found = GaussianSum(grouped, ExampleClip(0.5), 4.0, Adjacency.REPLACE)
    assert found.event == GroupGaussian(4.0, 4, 0.1)
    sampler = ExampleSampler(0.1, 4)
    mechanism = GaussianSum(sampler, ExampleClip(0.5), 4.0, Adjacency.ADD_REMOVE)
    assert mechanism.event == MixtureGaussian(4.0, 4, 0.1)
    assert mechanism.std == 2.0
    released_D = mechanism.release(
        ZERO_D, round_=1, covers="gradient", ledger=ledger, source=Randomness(0)
    )
    assert abs(float(released_D.std()) / 2.0 - 1.0) < 5 / math.sqrt(2 * D)
    assert ledger.spent() == {mechanism.event: 1}
    # Keyed as a whole-user release of the same sum, so there are no two in one ledger.
    whole = plan(norm=0.5, sigma=4.0)
    checks.unrelated(release(ledger, mechanism=whole), released_D)
    with checks.promise(tmp_path / "other") as other:
        assert np.array_equal(release(other, mechanism=whole), released_D)


# A sum and a count for one charge: bounds, noise of both, cost, replays.


# What a user adds


@pytest.mark.parametrize(("norm", "sigma"), [(1e-3, 0.3), (7.0, 11.0)])
def test_noise_of_the_sum_is_for_its_clip_norm(checks, ledger, norm, sigma):
    made = mechanism(norm, sigma)
    noise_D, _ = release_joint(ledger, made=made)
    assert made.std == norm * sigma
    checks.gaussian_noise(noise_D, norm * sigma)
    for factor in (2 / 3, 1.5, 0.905):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise_D, norm * sigma * factor)


def test_noise_of_the_count_is_its_own(checks, ledger):
    made = mechanism(norm=1e-3, count_noise=25.0)
    counts = [
        release_joint(ledger, np.zeros(1), 7.0, round_=round_, made=made)[1]
        for round_ in range(300)
    ]
    noise = np.array(counts) - 7.0
    checks.gaussian_noise(noise, 25.0)
    for factor in (2 / 3, 1.5):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise, 25.0 * factor)


def test_one_charge_for_both_and_no_two_values_have_the_same_noise(ledger):
    made = mechanism(1.0, 1.0, 1.0)
    found = [release_joint(ledger, np.zeros(3), made=made) for _ in range(3)]
    assert len({value for noise_D, noise in found for value in (*noise_D.tolist(), noise)}) == 12
    assert [(c.round, c.covers, c.event, c.attempt) for c in ledger.charges] == [
        (1, "both", made.event, attempt) for attempt in range(3)
    ]


def test_values_and_ledgers_that_do_not_fit_are_refused(ledger):
    for sum_D, count in ((np.array([np.nan]), 0.0), (np.zeros(1), math.inf)):
        with pytest.raises(ValueError, match="not finite"):
            release_joint(ledger, sum_D, count)
    with pytest.raises(ValueError, match="ledger is for add-remove"):
        release_joint(ledger, made=mechanism(adjacency=Adjacency.REPLACE))
    assert not ledger.charges


# What it costs


@pytest.mark.parametrize(("sigma", "count_noise"), [(4.0, 25.0), (1.0, 0.5), (3.0, 2.0)])
def test_it_costs_the_whole_vector(sigma, count_noise):
    """Scaled to unit noise what one user adds is 1/σ long in the sum and ½/σ_b in the count."""
    whole = PoissonGaussian(0.1, 1.0 / math.hypot(1.0 / sigma, 0.5 / count_noise))
    both = mechanism(sigma=sigma, count_noise=count_noise).event
    terms = {"adjacency": Adjacency.REPLACE, "delta": 1e-5}
    exact, found = (accountant.epsilon([(event, 50)], **terms) for event in (whole, both))
    assert found == pytest.approx(exact, rel=1e-6)


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


@pytest.mark.parametrize("clip", [ExampleClip(1.0), LabelClip(1.0)])
def test_sum_and_count_are_of_whole_users_vectors(clip):
    """A user may add several clipped examples: no row of the table is about them and a count."""
    with pytest.raises(Unsupported):
        JointSum(PoissonSampler(0.05), clip, 1.0, Adjacency.ADD_REMOVE, count_noise=3.0)


def test_a_sampler_that_charges_another_event_is_refused():
    class Cheap(PoissonSampler):
        def event(self, noise_multiplier):
            return PureDp(1e-6)

    with pytest.raises(ValueError, match="another event"):
        GaussianSum(Cheap(0.05), UserClip(1.0), 1.0, Adjacency.ADD_REMOVE)
