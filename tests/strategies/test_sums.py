"""Plans of noisy sums: what is released, charged, told and calibrated comes from one mechanism."""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian, PureChoice
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip, NoClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise, installed
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.strategy import RankingPlan
from murmuration.research.strategies.aup_corrected import CorrectedPlan
from murmuration.strategies.adaptive import AdaptivePlan, RadiusPlan
from murmuration.strategies.aup.threshold import ThresholdPlan
from murmuration.strategies.dp_fedavg import FedAvgPlan
from murmuration.strategies.els import ElsPlan, GroupPlan
from murmuration.strategies.solved.label_moment import LabelMomentPlan
from murmuration.strategies.solved.objective_perturbation import ObjectivePlan
from murmuration.strategies.solved.whole_crowd import WholeCrowdPlan
from murmuration.strategies.sums import CohortPlan, SumPlan, check_vectors_fit
from murmuration.strategies.uls import Uls, UlsPlan
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.strategy import SurveyPlan

SIZES = {"users": 400, "rounds": 3, "delta": 1e-4, "adjacency": Adjacency.ADD_REMOVE}
USERS = {**SIZES, "cohort": 200}
CLIPPED = {**USERS, "clip": UserClip(0.3)}
EXAMPLES = {**SIZES, "group_size": 2, "probability": 0.1, "clip": ExampleClip(0.3)}
LABELS = {"users": 40, "delta": 1e-4, "adjacency": Adjacency.REPLACE_LABELS}
PLANS = {
    UlsPlan: CLIPPED,
    FedAvgPlan: CLIPPED,
    ElsPlan: EXAMPLES,
    GroupPlan: EXAMPLES,
    AdaptivePlan: USERS,
    ThresholdPlan: USERS,
    CorrectedPlan: USERS,
    LabelMomentPlan: {**LABELS, "rounds": 1},
    ObjectivePlan: LABELS,
    RankingPlan: {**SIZES, "rounds": 1, "layout": VoteLayout(items=4, cap=3)},
    SurveyPlan: {**SIZES, "rounds": 1, "questionnaire": Questionnaire()},
}


@pytest.fixture(params=PLANS, ids=lambda kind: kind.__name__)
def plan(request):
    return request.param.for_epsilon(8.0, **PLANS[request.param])


def test_every_kind_of_plan_is_here():
    def below(kind):
        return {kind, *(under for child in kind.__subclasses__() for under in below(child))}

    ours = {kind for kind in below(SumPlan) if kind.__module__.startswith("murmuration.")}
    assert ours - {SumPlan, CohortPlan, RadiusPlan, WholeCrowdPlan} == set(PLANS)


def test_rounds_are_charged_as_the_mechanism_that_they_run(plan):
    assert plan.charges[plan.mechanism.event] == plan.rounds
    assert plan.mechanism.adjacency is plan.adjacency
    if isinstance(plan, ElsPlan):  # everybody takes part; their judgements are sampled
        assert plan.mechanism.sampler.probability == plan.probability
        assert plan.mechanism.sampler.group_size == plan.group_size
    else:
        assert plan.mechanism.sampler == plan.sampler


def test_less_noise_is_charged_for(plan):
    """No field that makes noise smaller is left out of what the ledger is told."""
    less = replace(plan, noise_multiplier=0.9 * plan.noise_multiplier)
    assert less.noise < plan.noise
    assert less.epsilon() > plan.epsilon()
    assert less.mechanism.event != plan.mechanism.event


def test_a_budget_is_met_from_below(plan):
    assert 0.99 * 8.0 < plan.epsilon() <= 8.0


def test_a_hold_out_is_charged_beside_the_rounds(plan):
    if isinstance(plan, CohortPlan | ElsPlan):
        coins = HoldOut(0.2, 0.1)
        held = replace(plan, hold_out=coins)
        assert held.charges == {**plan.charges, **coins.charges}


def test_nothing_of_a_plan_can_be_changed(plan):
    for field in fields(plan):
        with pytest.raises(AttributeError):
            setattr(plan, field.name, getattr(plan, field.name))


@pytest.mark.parametrize(
    "change",
    [{"users": 0}, {"rounds": 0}, *({"noise_multiplier": noise} for noise in (0.0, math.nan))],
)
def test_plans_of_nobody_of_no_round_or_of_no_noise_cannot_be_built(plan, change):
    with pytest.raises(ValueError, match=r"at least one user|--rounds|noise|weight"):
        replace(plan, **change)


def test_a_plan_that_clips_nothing_cannot_be_made():
    with pytest.raises(AttributeError, match="clip"):
        CohortPlan(**USERS, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="unclipped vectors"):
        Everybody(**SIZES, noise_multiplier=1.0, clip=NoClip())


def test_what_else_is_spent_is_part_of_the_cost():
    plan = ElsPlan(**EXAMPLES, noise_multiplier=2.0)
    chosen = replace(plan, chosen_at=0.5)
    assert chosen.charges == {**plan.charges, PureChoice(0.5): 1}
    assert chosen.epsilon() == pytest.approx(plan.epsilon() + 0.5)


def test_further_releases_of_a_round_add_up_with_the_first_and_with_a_hold_out():
    class Twice(UlsPlan):
        """Every round releases a second sum."""

        @property
        def besides(self):
            return {self.mechanism.event: self.rounds}

    plan = Twice(**CLIPPED, noise_multiplier=2.0, hold_out=HoldOut(0.2, 0.5))
    once = UlsPlan(**CLIPPED, noise_multiplier=2.0, hold_out=HoldOut(0.2, 0.5))
    event = plan.mechanism.event
    assert plan.charges == {**once.charges, event: 6}
    assert once.charges[event] == 3
    assert 2.97 < Twice.for_epsilon(3.0, **CLIPPED).epsilon() <= 3.0


@dataclass(frozen=True, kw_only=True)
class Everybody(SumPlan):
    """Has a clip, and nothing else of its own."""

    clip: UserClip


def test_without_a_cohort_everybody_is_in_every_round():
    everybody = Everybody.for_epsilon(1.0, **SIZES, clip=UserClip(1.0)).noise_multiplier
    of_all = {**CLIPPED, "cohort": SIZES["users"]}
    assert everybody == UlsPlan.for_epsilon(1.0, **of_all).noise_multiplier
    spent = accountant.epsilon(
        [(PoissonGaussian(1.0, everybody), 3)], adjacency=Adjacency.ADD_REMOVE, delta=1e-4
    )
    assert 0.999 < spent <= 1.0


@pytest.mark.skipif(not installed(), reason="needs OpenDP")
def test_noise_on_a_grid_meets_the_budget_as_it_is_charged():
    plan = UlsPlan.for_epsilon(1.0, **CLIPPED, discrete=DiscreteNoise(100))
    assert plan.mechanism.discrete == DiscreteNoise(100)
    assert 0.999 < plan.epsilon() <= 1.0


def test_twice_the_nominal_users_must_fit():
    step = UserClip(1.0).step
    fits = int(2**52 * step) // 2
    check_vectors_fit(fits, UserClip(1.0))
    with pytest.raises(ValueError, match="leave the range"):
        check_vectors_fit(fits + 1, UserClip(1.0))


def test_the_server_half_keeps_to_the_plan(make_world, make_examples):
    world = make_world(make_examples([1, 2, 3]), strategy=Uls, clip=UserClip(0.7))
    strategy, plan = world.strategy, world.strategy.plan
    assert strategy.parameters() == plan.node_config
    assert strategy.parameters()["clip-norm"] == 0.7
    assert strategy.steps() == {"sum": UserClip(0.7).step}
    assert strategy.is_valid({"sum": np.array([1.4, 0.0])}, 2)
    assert not strategy.is_valid({"sum": np.array([1.41, 0.0])}, 2)
    assert strategy.node_noise() is None


@pytest.mark.parametrize("kind", [UlsPlan, AdaptivePlan])
def test_whoever_is_sampled_is_charged_for(kind):
    """A plan that asks everybody in each round does not cost what a sample would."""

    class Everybody(kind):
        @property
        def sampler(self):
            return PoissonSampler(1.0)

    sizes = {"users": 1000, "cohort": 50, "rounds": 10, "delta": 1e-5, "noise_multiplier": 5.0}
    sizes |= {"adjacency": Adjacency.ADD_REMOVE}
    sizes |= {"count_noise": 50.0} if kind is AdaptivePlan else {"clip": UserClip(0.1)}
    assert Everybody(**sizes).mechanism.event.probability == 1.0
    assert Everybody(**sizes).epsilon() > 5 * kind(**sizes).epsilon()
