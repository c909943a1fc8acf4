"""Objective perturbation in a federation: the plan, the node half, the noise, the whole."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.btl import Population, without_labels
from murmuration.research.theory.analytic_gaussian import calibrate_noise
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.solved import objective_perturbation
from murmuration.strategies.solved.objective_perturbation import (
    ObjectivePerturbation,
    ObjectivePlan,
)
from murmuration.strategies.steps.optimizers import SolvedModel

PLAN = {"users": 40, "delta": 1e-5, "adjacency": Adjacency.REPLACE_LABELS}


def test_the_plan_is_a_gaussian_of_sensitivity_length():
    made = ObjectivePlan.for_epsilon(1.0, **PLAN, length=1.5)
    assert made.std == pytest.approx(1.5 * calibrate_noise(1.0, 1e-5), rel=1e-3)
    assert made.std >= 1.5 * calibrate_noise(1.0, 1e-5)
    assert made.charges == {PoissonGaussian(1.0, made.noise_multiplier): 1}
    assert 0.999 < made.epsilon() <= 1.0
    assert ObjectivePlan.for_epsilon(1.0, **PLAN).clip.norm == 0.5


def asked(examples, users_S=None, length=0.0):
    users_S = np.arange(len(examples.counts_U)) if users_S is None else np.asarray(users_S)
    work = TrainRequest(
        {"theta": np.zeros(examples.dimension, np.float32)}, {"length": length}, users_S
    )
    return objective_perturbation.client_update(examples, work, np.empty(0), None)["sum"]  # type: ignore[arg-type]


def test_flipping_labels_attains_the_length_and_never_exceeds_it(make_examples):
    for length in (0.0, 0.3):
        single = replace(make_examples([1], scale=3.0), y_R=torch.ones(1))
        moved = asked(single, length=length) - asked(replace(single, y_R=torch.zeros(1)),
                                                     length=length)  # fmt: skip
        assert np.linalg.norm(moved) == pytest.approx(length or 1.0, rel=1e-5)
        assert np.linalg.norm(moved) <= (length or 1.0)
    generator, examples = np.random.default_rng(0), make_examples([5, 2, 30])
    for _ in range(30):
        one, other = examples.y_R.clone(), examples.y_R.clone()
        for y_R in (one, other):
            y_R[7:] = torch.from_numpy(generator.choice([0.0, 0.5, 1.0], 30)).float()
        moved = asked(replace(examples, y_R=one)) - asked(replace(examples, y_R=other))
        assert np.linalg.norm(moved) <= 1.0


def test_users_add_up_however_they_are_grouped(make_examples):
    examples = make_examples([3, 5, 1, 70])
    apart = sum(asked(examples, [user]) for user in range(4))
    np.testing.assert_allclose(asked(examples), apart, rtol=1e-12)
    turned = replace(examples, x_RD=-examples.x_RD, y_R=1.0 - examples.y_R)
    np.testing.assert_allclose(asked(examples), asked(turned), rtol=1e-6)


def test_what_a_node_refuses(make_examples):
    examples = make_examples([2])
    randomized = replace(examples, flip_J=torch.full((2,), 0.1, dtype=torch.float64))
    with pytest.raises(InputError, match="randomized already"):
        asked(randomized)
    several = replace(examples, start_U=torch.tensor([0, 1]), width=2, kind="top-1")
    with pytest.raises(InputError, match="is for pairs"):
        asked(several)


@pytest.fixture(scope="module")
def population():
    return Population.draw(0, users=300, each=5, dimension=6)


@pytest.fixture
def make_objective_world(make_filter_world):
    """A function: objective perturbation over a population's nodes."""

    def make(examples, *, nodes=1, seed=0, budget=None, noise=2.0, **more):
        made = ObjectivePlan(**{**PLAN, "users": len(examples.counts_U)}, noise_multiplier=noise)

        def strategy(plan, ledger, **arguments):
            return ObjectivePerturbation(
                plan, ledger, without_labels(examples), **more, **arguments
            )

        return make_filter_world(
            examples, strategy, made, SolvedModel(examples.dimension), nodes=nodes, seed=seed,
            budget=budget,
        )  # fmt: skip

    return make


def start(world):
    world.strategy.start(world.grid, num_rounds=1)
    return world.strategy.optimizer.theta.numpy().copy()


def test_noise_is_as_promised_not_more_and_not_less(make_objective_world, checks):
    generator = torch.Generator().manual_seed(0)
    wide = PairExamples(torch.randn(40, 60, generator=generator), torch.ones(40),
                        torch.arange(0, 41, 2))  # fmt: skip
    released = []
    for noise in (0.4, 40.0):
        world = make_objective_world(wide, noise=noise)
        mechanism = world.strategy.plan.mechanism
        release = type(mechanism).release

        def watched(self, sum_D, release=release, **more):
            released.append(release(self, sum_D, **more))
            return released[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(mechanism), "release", watched)
            start(world)
        checks.released_noise(released[-1] - asked(wide), noise * 0.5)


def test_without_noise_the_model_is_found(make_objective_world, population):
    found_D = start(make_objective_world(population.examples, noise=1e-6))
    assert population.error(found_D) < 1.2 * population.error(population.likeliest()) + 0.1


def test_golden(make_objective_world):
    """A change of these numbers is a change of the algorithm."""
    crowd = Population.draw(7, users=50, each=3, dimension=3)
    np.testing.assert_allclose(start(make_objective_world(crowd.examples)), GOLDEN, rtol=1e-4)


GOLDEN = [0.4573727, 0.8418822, 1.8498458]


def test_options(make_objective_world, population):
    strong = start(make_objective_world(population.examples, ridge=1e4))
    assert np.linalg.norm(strong) < 0.1
    world = make_objective_world(population.examples)
    start(world)
    assert world.strategy.figures()["noise_norm"].value > 0
    assert world.ledger.epsilon() == pytest.approx(world.strategy.plan.epsilon())
    with pytest.raises(BudgetExceeded, match="plan costs"):
        make_objective_world(population.examples, budget=0.1)
