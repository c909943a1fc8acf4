"""What holds of the rounds of every strategy whose users' vectors are added up and noised."""

import numpy as np
import pytest

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip, UserClip
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan, QuantileRule
from murmuration.strategies.aup.centred import AupCentred
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan
from murmuration.strategies.dp_fedavg import DpFedAvg, FedAvgPlan
from murmuration.strategies.els import Els, ElsPlan, Group, GroupPlan
from murmuration.strategies.uls import Uls, UlsPlan

CLIPPED = {"cohort": 15, "clip": UserClip(0.4)}
EXAMPLES = {"group_size": 3, "probability": 0.5, "clip": ExampleClip(0.4)}
RADIUS = {"cohort": 15, "count_noise": 1.0, "rule": QuantileRule(0.4, 0.5)}
#: Of each strategy, settings of its plan.
WORLDS = {
    "uls": {"strategy": Uls, "kind": UlsPlan, **CLIPPED},
    "dp-fedavg": {"strategy": DpFedAvg, "kind": FedAvgPlan, **CLIPPED},
    "els": {"strategy": Els, "kind": ElsPlan, **EXAMPLES},
    "group": {"strategy": Group, "kind": GroupPlan, **EXAMPLES},
    "adaptive": {"strategy": Adaptive, "kind": AdaptivePlan, **RADIUS},
    "aup-centred": {"strategy": AupCentred, "kind": AdaptivePlan, **RADIUS},
    "aup-threshold": {
        "strategy": AupThreshold, "kind": ThresholdPlan, "cohort": 15, "test_epsilon": 5.0,
    },
}  # fmt: skip


@pytest.fixture(params=WORLDS)
def world(request, make_world, make_examples):
    """A function: a world of 30 users under each strategy in turn."""

    def make(dimension=5, ties=False, **changes):
        examples = make_examples([1, 3, 9, 2, 12, 40] * 5, dimension)
        if ties:
            examples.y_R.fill_(0.5)
        return make_world(examples, **{"noise_multiplier": 5.0, **WORLDS[request.param], **changes})

    return make


def test_noise_is_as_the_plan_says_no_less_and_no_more(world, checks):
    """Everybody calls ties: at θ = 0 all gradients are zero, what is released is noise alone."""
    made = world(dimension=4000, ties=True, optimizer={"rate": 1e-9})
    for round_ in (1, 2, 3):
        (released,) = made.run(round_)
        checks.released_noise(released, made.strategy.plan.noise)
        for wrong in (2 / 3, 0.905, 1.105, 1.5):
            with pytest.raises(AssertionError, match="promised scale"):
                checks.released_noise(released, wrong * made.strategy.plan.noise)


def test_users_may_be_on_any_nodes(world):
    found = []
    for nodes in (1, 7, 30):
        made = world(nodes=nodes, rounds=6)
        made.run(6)
        assert made.left_out == []
        found.append(made.strategy.optimizer.theta_D)
    assert np.linalg.norm(found[0]) > 0.01
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


def test_a_resumed_run_is_the_same_run(world):
    whole, first, second = (world(rounds=8) for _ in range(3))
    whole.run(8)
    first.run(4)
    second.strategy.restore(first.strategy.state())
    second.strategy.rounds_done = 4
    second.run(8)
    for name, value in whole.strategy.state().items():
        assert np.array_equal(second.strategy.state()[name], value), name


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT])
def test_every_round_is_charged_what_it_costs(world, adjacency):
    made = world(rounds=4, adjacency=adjacency)
    made.run(4)
    plan = made.strategy.plan
    of_rounds = [charge.round for charge in made.ledger.charges if "test" not in charge.covers]
    assert of_rounds == [1, 2, 3, 4]
    assert made.ledger.spent() == plan.charges
    assert made.ledger.epsilon() == pytest.approx(plan.epsilon(), rel=1e-9)
