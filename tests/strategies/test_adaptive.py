"""Adaptive clipping: the plan, the node half, the noise in force, where the clip norm goes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from failing import Watched
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import adaptive
from murmuration.strategies.adaptive import (
    Adaptive,
    AdaptivePlan,
    QuantileRule,
    bounded,
    least_unit,
)
from murmuration.strategies.aup.centred import AupCentred
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.steps.optimizers import OptimizerSettings

PLAN = {
    "users": 100,
    "cohort": 20,
    "rounds": 8,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
}
MEDIAN = QuantileRule(0.5, 0.5)


@pytest.fixture
def world(make_world):
    """``make_world`` for the adaptive strategy: noise and rule have defaults."""

    def make(examples, *, strategy=Adaptive, least_unit=0.0, **more):
        defaults = {
            "cohort": max(1, len(examples.counts_U) // 2),
            "count_noise": 1.0,
            "rule": MEDIAN,
        }
        made = make_world(examples, kind=AdaptivePlan, strategy=strategy, **{**defaults, **more})
        made.strategy.least_unit = least_unit
        return made

    return make


def half(examples, work, keys_S, source):
    """The node half with the parameter that ULS does not have."""
    asked = replace(work, parameters={"middle": 0.5, **work.parameters})
    return adaptive.client_update(examples, asked, keys_S, source)


def spread(users, dimension=4, seed=0):
    """One judgement each, of very different lengths: gradients at θ = 0 are half as long."""
    generator = torch.Generator().manual_seed(seed)
    x_RD = torch.randn(users, dimension, generator=generator)
    lengths_R = torch.exp(0.7 * torch.randn(users, generator=generator))
    x_RD *= (lengths_R / x_RD.norm(dim=1))[:, None]
    return PairExamples(x_RD, torch.ones(users), torch.arange(users + 1))


# The plan


def test_plan_binds_everything():
    plan = AdaptivePlan(**PLAN, noise_multiplier=1.5, count_noise=2.0, rule=QuantileRule(0.3, 0.4))
    mechanism = plan.mechanism_at(0.7)
    assert mechanism.std == pytest.approx(1.05)
    assert mechanism.event == plan.mechanism_at(99.0).event  # what it costs does not depend on data
    effective = 1 / np.hypot(1 / 1.5, 0.5 / 2.0)
    assert plan.charges == {plan.mechanism_at(1.0).event: 8}
    assert mechanism.event == PoissonGaussian(0.2, mechanism.event.noise_multiplier)
    assert mechanism.event.noise_multiplier == pytest.approx(effective)
    assert plan.noise == pytest.approx(1.5 / 20)
    assert plan.clip.norm == 0.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": 0.0}, "positive"),
        ({"count_noise": float("inf")}, "positive"),
    ],
)
def test_impossible_plans_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        AdaptivePlan(**{**PLAN, "noise_multiplier": 1.5, "count_noise": 1.0, **changes})


# The node half


def test_one_vote_each(checks):
    checks.one_vote_each(half)


def count(examples, **parameters):
    users_S = np.arange(len(examples.counts_U))
    theta_D = np.zeros(examples.dimension, np.float32)
    parameters = {"round": 1, "group-size": 16, "clip-norm": 1.0, "middle": 0.5, **parameters}
    work = messages.TrainRequest({"theta": theta_D}, parameters, users_S)
    (found,) = adaptive.client_update(
        examples, work, users_S.astype(np.uint64), adaptive.Randomness(0)
    )["within"]
    return float(found)


def test_who_is_within_is_counted_from_a_half(checks):
    examples = spread(101)
    within = int((examples.x_RD.norm(dim=1) / 2 <= 0.5).sum())
    assert 20 < within < 80
    assert count(examples, **{"clip-norm": 0.5}) == within - 50.5
    assert count(examples, **{"clip-norm": 0.5, "middle": 0.0}) == within
    examples.x_RD[0] = torch.nan
    assert count(examples, **{"clip-norm": 1e9}) == 50.0


@pytest.mark.parametrize("middle", [0.5, 0.0])
def test_who_has_nothing_is_not_counted(make_examples, middle):
    """Neither within nor beyond: as if they were away, which is what zero-out compares with."""
    asked = {"clip-norm": 1e9, "middle": middle}
    assert count(make_examples([3, 0, 2, 0]), **asked) == count(make_examples([3, 2]), **asked)
    assert count(make_examples([0, 0]), **asked) == 0.0


# The whole


@pytest.mark.parametrize("start", [0.01, 20.0])
@pytest.mark.parametrize("quantile", [0.25, 0.6])
def test_the_clip_norm_goes_to_the_quantile_from_below_and_above(world, start, quantile):
    """Hardly a step is taken, so gradients stay as they are at θ = 0."""
    examples = spread(400)
    norms = (examples.x_RD.norm(dim=1) / 2).numpy()
    made = world(
        examples, rounds=150, rule=QuantileRule(start, quantile), optimizer={"rate": 1e-9},
        cohort=200, count_noise=10.0, noise_multiplier=5.0,
    )  # fmt: skip
    late = []
    for round_ in range(1, 151):
        made.run(round_)
        late += [made.strategy.radius] * (round_ > 100)
    low, high = np.quantile(norms, [quantile - 0.06, quantile + 0.06])
    assert low < np.mean(late) < high


def test_noise_is_for_the_norm_that_nodes_were_told_and_the_next_is_another(
    world, make_examples, checks
):
    examples = make_examples([1, 2] * 15, dimension=6000)
    examples.x_RD.zero_()  # all within: the norm falls by a tenth a round
    still = {"cohort": 15, "optimizer": {"rate": 1e-9}, "count_noise": 0.01}
    made = world(examples, least_unit=1e6, wrap=Watched, **still)
    plan, unit = made.strategy.plan, made.strategy.least_unit
    norms = set()
    for round_ in range(1, 5):
        (released,) = made.run(round_)
        norm = messages.read_work(made.grid.sent[-1].content).number("clip-norm")
        norms.add(norm)
        checks.released_noise(released * unit, plan.noise_multiplier * norm / plan.cohort)
    assert len(norms) == 4


def test_golden_trajectory(world, make_examples):
    made = world(make_examples([1, 3, 9, 2] * 5, dimension=3), rounds=6)
    made.run(6)
    np.testing.assert_allclose(made.strategy.optimizer.theta_D, GOLDEN, atol=1e-6)
    assert made.strategy.radius == pytest.approx(GOLDEN_RADIUS, rel=1e-6)


GOLDEN = [-0.0011877, -0.1965149, 0.1527691]
GOLDEN_RADIUS = 0.4396095


def test_sums_that_users_cannot_produce_are_left_out(world, make_examples):
    strategy = world(make_examples([1] * 4)).strategy
    norm = strategy.radius
    full = {"sum": np.array([norm * 3, 0, 0, 0, 0]), "within": np.array([1.5])}
    assert strategy.is_valid(full, 3)
    for name, value in (("sum", full["sum"] * 1.01), ("within", 1.6), ("within", -1.6)):
        assert not strategy.is_valid({**full, name: np.atleast_1d(value)}, 3)
    assert not strategy.is_valid({**full, "within": np.array([np.nan])}, 3)


def test_no_gradients_are_divided_by_less_than_the_least_unit(world, make_examples):
    examples = make_examples([2] * 10)
    small, large = world(examples, cohort=10), world(examples, cohort=10, least_unit=2.0)
    (in_radii,), (released,) = small.run(1), large.run(1)
    np.testing.assert_allclose(released, in_radii * MEDIAN.start / 2.0, rtol=1e-12)
    ratio = (
        large.strategy.figures()["noise_norm"].value / small.strategy.figures()["noise_norm"].value
    )
    assert ratio == pytest.approx(MEDIAN.start / 2.0)


# Adaptive clipping and centred AUP from settings: options reach the plan.


CONFIG = RunConfig(
    test="others.jsonl", strategy="aup", epsilon=0.5, delta=1e-3, rounds=4, cohort=20
)


@pytest.fixture
def made(build_from):
    """A function: what is built from settings, for 80 users."""

    def make(dimension=9, **changes):
        config = CONFIG.changed(**changes)
        return build_from(config, 80, dimension=dimension, budget=config.epsilon)

    return make


@pytest.mark.parametrize(
    ("changes", "strategy", "plan"),
    [
        ({"strategy": "adaptive"}, Adaptive, AdaptivePlan),
        ({}, AupCentred, AdaptivePlan),
        ({"variant": "above-threshold"}, AupThreshold, ThresholdPlan),
    ],
)
def test_options_reach_the_plan(made, changes, strategy, plan):
    built = made(clip_norm=0.7, group_size=3, adjacency="replace", **changes)
    assert type(built.strategy) is strategy
    found = built.strategy.plan
    assert type(found) is plan
    assert (found.users, found.cohort, found.rounds, found.delta) == (80, 20, 4, 1e-3)
    assert (found.clip.norm, found.group_size) == (0.7, 3)
    assert found.adjacency is Adjacency.REPLACE
    assert built.charges == found.charges
    assert (built.clip_norm, built.group_size) == (0.7, 3)
    assert built.noise == pytest.approx(found.noise_multiplier / 20)
    assert 0.499 < found.epsilon() <= 0.5


def test_few_even_dimensions_shorten_steps_and_a_given_step_stays(made):
    few, many = made(dimension=1), made(dimension=10_000)
    assert few.strategy.least_unit == pytest.approx(10_000 * many.strategy.least_unit)
    assert few.strategy.least_unit > 0
    assert made(dimension=1, learning_rate=2.0).strategy.least_unit == 0.0
    assert made(dimension=1, optimizer="adam").strategy.least_unit == 0.0


def test_centred_users_send_as_much_and_get_a_centre_more(made):
    adaptive, centred = made(strategy="adaptive"), made()
    # Down 4 bytes a number, and 4 more for the centre; up 4.
    assert centred.bytes_per_user == pytest.approx(12 / 8 * adaptive.bytes_per_user)


# The rule finds the quantile from both sides; the two limits on steps.


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.8])
def test_the_quantile_of_log_normal_norms_is_found_from_below_and_from_above(quantile):
    generator = np.random.default_rng(0)
    norms = np.exp(0.8 * generator.standard_normal(500))
    true = float(np.quantile(norms, quantile))
    for start in (0.01 * true, 50.0 * true):
        rule, radius, late = QuantileRule(start, quantile), start, []
        for round_ in range(300):
            share = float((norms <= radius).mean()) + 0.05 * generator.standard_normal()
            radius = rule.next(radius, share)
            late += [radius] * (round_ >= 200)
        assert 0.9 * true < np.mean(late) < 1.1 * true


@given(st.floats(0.01, 0.99), st.floats(1e-3, 1e3), st.floats(-50, 50))
def test_too_few_within_widens_and_too_many_narrows(quantile, radius, share):
    found = QuantileRule(radius, quantile).next(radius, share)
    assert (found > radius) == (share < quantile) or found == radius
    assert math.isfinite(found)
    assert found > 0


def test_no_run_of_noise_ends_at_zero_or_infinity():
    low = high = 0.5
    rule = QuantileRule(0.5, 0.5)
    for _ in range(10_000):
        low, high = rule.next(low, 3.0), rule.next(high, -3.0)
    assert low == bounded(0.0, 0.5) > 0
    assert high == bounded(math.inf, 0.5) < math.inf


@pytest.mark.parametrize("share", [1e5, -1e5, 1e300, -1e300])
def test_noise_of_many_cohorts_moves_the_radius_to_an_end(share):
    """As a cohort of one draws it at a small epsilon; the round is charged by then."""
    ends = bounded(0.0, 0.5), bounded(math.inf, 0.5)
    assert QuantileRule(0.5, 0.15).next(ends[share > 0], share) == ends[share < 0]


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"quantile": 0.0}, "quantile"), ({"quantile": 1.0}, "quantile"), ({"rate": 0.0}, "rate")],
)
def test_rules_that_lead_nowhere_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        QuantileRule(**{"start": 1.0, "quantile": 0.5, **rule})


def test_steps_are_no_longer_than_of_use():
    """At the least unit a run takes two and a half time constants, whatever the rate."""
    for rate, rounds, dimension in ((3.0, 200, 32), (0.1, 50, 1000)):
        settings = OptimizerSettings("sgd", rate, rounds)
        unit = least_unit(settings, dimension)
        curvature = 0.25 * 2 / dimension
        steps = sum(settings.factor(t) for t in range(1, rounds + 1))
        assert steps * rate / unit * curvature == pytest.approx(2.5)
    assert least_unit(OptimizerSettings("adam", 0.1, 100), 10) == 0.0
