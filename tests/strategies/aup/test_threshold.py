"""Centred AUP with a sparse vector test: what it charges, where the radius goes, resuming."""

from itertools import pairwise

import pytest
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan, ThresholdRule

PLAN = {
    "users": 100,
    "cohort": 20,
    "rounds": 8,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
}


@pytest.fixture
def world(make_world):
    """``make_world`` for this strategy; tests are nearly exact."""

    def make(examples, **more):
        defaults = {"cohort": len(examples.counts_U), "test_epsilon": 5.0, "rounds": 60}
        still = {"optimizer": {"rate": 1e-9}}
        settings = {**defaults, **still, **more}
        return make_world(examples, kind=ThresholdPlan, strategy=AupThreshold, **settings)

    return make


def lengths(users=100):
    """Gradients at θ = 0 of lengths 0.005, 0.01, …, in all directions."""
    generator = torch.Generator().manual_seed(0)
    x_RD = torch.randn(users, 16, generator=generator)
    x_RD *= (torch.arange(1, users + 1) / users / x_RD.norm(dim=1))[:, None]
    return PairExamples(x_RD, torch.ones(users), torch.arange(users + 1))


def test_plan_charges_every_series_in_full():
    plan = ThresholdPlan(**PLAN, noise_multiplier=2.0, test_epsilon=0.1, series=3)
    assert plan.charges == {PoissonGaussian(0.2, 2.0): 8, PureDp(0.1): 3}
    assert plan.mechanism_at(0.7).std == pytest.approx(1.4)
    assert plan.mechanism_at(0.7).event == plan.mechanism_at(9.0).event


@pytest.mark.parametrize("adjacency", Adjacency)
def test_for_epsilon_meets_its_target_and_tests_as_the_relation_allows(adjacency):
    plan = ThresholdPlan.for_epsilon(1.0, **{**PLAN, "adjacency": adjacency})
    assert 0.999 < plan.epsilon() <= 1.0
    swap = adjacency in (Adjacency.REPLACE, Adjacency.REPLACE_LABELS)
    assert plan.test.monotone is not swap
    assert plan.test.query_scale == (4 if swap else 2) / plan.test_epsilon
    assert plan.test.threshold == 16.0


def test_impossible_plans_cannot_be_built():
    for changes, message in (({"series": 0}, "at least one series"), ({"cohort": 0}, "--cohort")):
        with pytest.raises(ValueError, match=message):
            ThresholdPlan.for_epsilon(1.0, **{**PLAN, **changes})


def test_the_radius_shrinks_to_where_four_in_five_are_within_and_stays(world):
    made = world(lengths(), noise_multiplier=1e-6)
    radii = []
    for round_ in range(1, 41):
        made.run(round_)
        radii.append(made.strategy.radius)
    assert radii[0] == pytest.approx(0.45)
    widened = [b / a for a, b in pairwise(radii) if b > a]
    assert widened == pytest.approx([1.25] * 2)
    assert len(set(radii[-20:])) == 1, "spent, and still moving"
    assert 0.35 < radii[-1] < 0.55  # 0.4 is the true one
    tests = [charge for charge in made.ledger.charges if charge.event == PureDp(5.0)]
    assert [charge.covers for charge in tests] == ["radius test 1", "radius test 2"]
    assert len(made.ledger.charges) == 42


def test_nodes_count_users_as_they_are(world):
    assert world(lengths()).strategy.parameters()["middle"] == 0.0


def test_series_that_were_not_needed_are_charged_once_when_all_is_done(world):
    made = world(lengths(), rounds=5, series=3, rule=ThresholdRule(64.0))
    made.run(3)
    assert [c.covers for c in made.ledger.charges if c.event == PureDp(5.0)] == ["radius test 1"]
    for _ in range(2):  # the second time as after a crash that kept the last checkpoint
        made.run(5)
        tests = [c.covers for c in made.ledger.charges if c.event == PureDp(5.0)]
        assert tests == ["radius test 1", "radius test 2, not needed", "radius test 3, not needed"]
    assert made.ledger.spent() == made.strategy.plan.charges


def test_series_are_charged_in_full_where_the_budget_ends_the_run(world, monkeypatch):
    made = world(lengths(), rounds=5, series=2, rule=ThresholdRule(64.0))
    release = made.strategy._release

    def refused(round_, totals):
        if round_ == 3:
            raise BudgetExceeded("no more")
        return release(round_, totals)

    monkeypatch.setattr(made.strategy, "_release", refused)
    made.run(5)
    assert "stopped before round 3" in made.strategy.stopped
    assert made.ledger.spent()[PureDp(5.0)] == 2


def test_a_series_that_the_budget_does_not_cover_does_not_lose_the_result(world):
    made = world(lengths(), rounds=1, seed=None, rule=ThresholdRule(64.0))
    ledger, plan = made.ledger, made.strategy.plan
    ledger.budget = plan.epsilon()
    # Begun, and lost in a crash before the first checkpoint: all that is planned is spent.
    ledger.charge(plan.test.event, round_=1, covers="radius test 1")
    made.run(1)
    assert made.strategy.rounds_done == 1
    assert ledger.spent() == plan.charges


def copied(state):
    """As it was: what a state holds changes with the next release."""
    return {name: value.copy() for name, value in state.items()}


@pytest.mark.parametrize("seed", [None, 3])
def test_a_broken_off_series_is_spent(world, seed):
    made = world(lengths(), seed=seed)
    made.run(1)
    assert made.strategy.state()["series"].tolist() == [0, 1]
    made.strategy.restore(made.strategy.state())
    assert made.strategy.state()["series"].tolist() == [1, 0]
    made.run(60)
    tests = [charge.covers for charge in made.ledger.charges if charge.event == PureDp(5.0)]
    assert tests == ["radius test 1", "radius test 2"]
