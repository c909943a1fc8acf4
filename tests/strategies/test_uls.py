"""ULS: the plan, the node half, the noise that is released, and the whole against its oracle."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    BufferedLater,
    PoissonGaussian,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.clipping import NoClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.sampling import (
    CyclicSampler,
    whole_groups,
)
from murmuration.strategies import uls
from murmuration.strategies.config import RunConfig
from murmuration.strategies.uls import UlsPlan

PLAN = {
    "users": 100,
    "cohort": 20,
    "rounds": 8,
    "delta": 1e-4,
    "adjacency": Adjacency.ADD_REMOVE,
    "clip": UserClip(0.3),
}


def plan(**changes):
    return UlsPlan(**{**PLAN, "noise_multiplier": 1.5, **changes})


# The plan


def test_plan_binds_everything():
    made = plan()
    assert made.mechanism.event == PoissonGaussian(0.2, 1.5)
    assert made.mechanism.std == pytest.approx(0.45)
    assert made.noise == pytest.approx(0.45 / 20)
    assert made.charges == {PoissonGaussian(0.2, 1.5): 8}
    assert made.mechanism.clip is made.clip
    for frozen, name in ((made.clip, "norm"), (made.mechanism, "clip")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": 0}, "--cohort must be at least 1"),
        ({"cohort": 101}, "--cohort 101 is more than the 100 users"),
        ({"group_size": 0}, "--group-size must be at least 1"),
        ({"clip": NoClip()}, "unclipped vectors"),
    ],
)
def test_impossible_plans_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=message):
        plan(**changes)
    if "clip" not in changes:
        with pytest.raises(ValueError, match=message):
            UlsPlan.for_epsilon(1.0, **{**PLAN, **changes})


BUFFERED = {"sampling": "blt"}
CORRELATED = {"sampling": "banded", "users": 100, "cohort": 20, "delta": 1e-5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "all", "users": 0}, "--sampling all goes by how many users there are"),
        ({**BUFFERED, "cohort": 30}, "--sampling blt: each of 100 users is in one of a whole"),
        ({**BUFFERED, "optimizer": "adam"}, "--sampling blt is made for what --optimizer sgd"),
        ({**BUFFERED, "rounds": 4_001}, "--sampling blt is for 2 to 4,000 --rounds, got 4,001"),
        ({**BUFFERED, "users": 0}, "--sampling blt goes by how many users"),
        ({**BUFFERED, "noise": "discrete"}, "leave out --noise"),
        ({"adjacency": "replace"}, "--sampling banded has no guarantee under replace"),
        ({"adjacency": "replace-labels"}, "use --adjacency add-remove or zero-out"),
        ({"cohort": 60}, "0.5 of the users at most, not 0.6: lower --cohort"),
        ({"rounds": 1}, "--sampling banded is for 2 to 4,000 --rounds, got 1"),
        ({"noise": "discrete"}, "leave out --noise"),
        ({"strategy": "aup"}, "--sampling is for --strategy uls and dp-fedavg, not aup"),
        (
            {**BUFFERED, "strategy": "els"},
            "--sampling is for --strategy uls and dp-fedavg, not els",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["uls", "dp-fedavg"])
def test_noise_that_cannot_be_correlated_is_refused_before_anything_is_read(
    strategy, changes, message
):
    with pytest.raises((InputError, ValueError), match=message):
        RunConfig.from_run_config({**CORRELATED, "strategy": strategy, "test": "t", **changes})


FACTOR = Banded((0.8, 0.5, 0.3))


def test_a_plan_with_bands_costs_what_its_dearest_group_does():
    made = UlsPlan.for_epsilon(3.0, **{**PLAN, "rounds": 20}, factor=FACTOR)
    assert made.epsilon() == pytest.approx(3.0, abs=1e-3)
    assert made.epsilon() <= 3.0
    assert sum(made.charges.values()) == 20
    event = PoissonGaussian(made.sampler.of_group.probability, made.noise_multiplier)
    cost = accountant.epsilon([(event, 7)], adjacency=made.adjacency, delta=made.delta)
    assert made.epsilon() == cost
    assert made.noise == pytest.approx(
        made.mechanism.std / made.cohort * FACTOR.row_norm(20), rel=1e-12
    )
    with pytest.raises(ValueError, match="lower --cohort"):
        plan(factor=FACTOR, cohort=34)
    with pytest.raises(ValueError, match="nothing is proven of discrete Gaussian noise"):
        plan(factor=FACTOR, discrete=DiscreteNoise(7))


BUFFERS = BufferedToeplitz.scaled(np.array([0.6, 0.2]), np.array([0.7, 0.3]), 20, 5)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_plan_with_buffers_costs_what_one_release_does(adjacency):
    own = {"rounds": 20, "cohort": 20, "adjacency": adjacency}
    made = UlsPlan.for_epsilon(3.0, **{**PLAN, **own}, factor=BUFFERS)
    held = UlsPlan.for_epsilon(
        3.0, **{**PLAN, **own}, factor=BUFFERS, hold_out=HoldOut(0.5, 0.2)
    )  # whose turn it is shows who is held out
    assert held.noise_multiplier == made.noise_multiplier and held.epsilon() == made.epsilon()
    event = PoissonGaussian(1.0, made.noise_multiplier)
    cost = accountant.epsilon([(event, 1)], adjacency=adjacency, delta=made.delta)
    assert made.epsilon() == pytest.approx(cost, rel=1e-7)
    assert made.epsilon() <= 3.0
    assert cost == pytest.approx(3.0, abs=1e-3)
    assert made.charges == {
        BufferedGaussian(20, 5, made.noise_multiplier): 1,
        BufferedLater(20, 5, made.noise_multiplier): 19,
    }
    assert made.sampler == CyclicSampler(0.2, 5)
    assert made.sampler.of_group.probability == 1.0
    with pytest.raises(ValueError, match="4 groups, and noise for 5"):
        plan(factor=BUFFERS, cohort=25, rounds=20)
    with pytest.raises(ValueError, match="round 21 of a factor for 20"):
        plan(factor=BUFFERS, cohort=20, rounds=21)
    with pytest.raises(ValueError, match="nothing is proven of discrete Gaussian noise"):
        plan(factor=BUFFERS, cohort=20, rounds=20, discrete=DiscreteNoise(7))


def test_the_cohort_that_is_taken_makes_whole_groups():
    for users, cohort in ((2_700, 540), (1_000, 200), (104, 104), (120, 120), (9_999, 500)):
        config = RunConfig.from_run_config(
            {**CORRELATED, **BUFFERED, "users": users, "cohort": 0, "test": "t"}
        )
        assert config.resolved(users).cohort == cohort
        whole_groups(users, cohort)
    open_list = {
        **CORRELATED,
        **BUFFERED,
        "users": 0,
        "cohort": 0,
        "adjacency": "zero-out",
        "test": "t",
    }
    assert RunConfig.from_run_config(open_list).resolved(523).cohort == 105
    coins = {**open_list, "sampling": "poisson"}
    assert RunConfig.from_run_config(coins).resolved(523).cohort == 104


def test_everybody_is_the_cohort():
    settings = {"sampling": "all", "delta": 1e-5, "test": "t"}
    for users, adjacency in ((100, "add-remove"), (0, "zero-out")):
        given = {**settings, "users": users, "adjacency": adjacency, "cohort": 0}
        config = RunConfig.from_run_config(given)
        assert config.resolved(100).cohort == 100
        assert config.resolved(100).resolved(100).cohort == 100  # as a resumed run does
    held_out = RunConfig.from_run_config({**given, "test": "", "heldout": 0.2})
    assert held_out.resolved(100).cohort == 80
    with pytest.raises(InputError, match="no meaning with --sampling all: everybody takes part"):
        RunConfig.from_run_config({**settings, "users": 100, "cohort": 99}).resolved(100)


def test_everybody_in_each_round_costs_what_as_many_releases_do():
    made = UlsPlan.for_epsilon(3.0, **{**PLAN, "cohort": PLAN["users"]})
    cost = accountant.epsilon(
        [(PoissonGaussian(1.0, made.noise_multiplier / math.sqrt(made.rounds)), 1)],
        adjacency=made.adjacency,
        delta=made.delta,
    )
    assert cost == pytest.approx(3.0, abs=1e-3)
    whole = UlsPlan.for_epsilon(
        3.0,
        **{**PLAN, "cohort": PLAN["users"]},
        factor=BufferedToeplitz.scaled(np.zeros(1), np.zeros(1), made.rounds, 1),
    )  # noise that takes nothing back
    assert whole.noise == pytest.approx(made.noise, rel=1e-3)


# The node half


def test_one_vote_each(checks):
    checks.one_vote_each(uls.client_update)


def test_survives_nan(checks):
    checks.survives_nan(uls.client_update)


def test_accepts_silence(checks):
    checks.accepts_silence(uls.client_update)


def test_node_half_does_not_touch_its_arguments(checks, make_examples):
    examples = make_examples([2, 30])
    kept = examples.x_RD.clone(), examples.y_R.clone()
    first = checks.ask(uls.client_update, examples, theta_D=np.ones(5))
    assert checks.ask(uls.client_update, examples, theta_D=np.ones(5)).tolist() == first.tolist()
    assert torch.equal(kept[0], examples.x_RD)
    assert torch.equal(kept[1], examples.y_R)


# The whole


def test_noiseless_and_unclipped_is_gradient_descent_on_users_means(
    make_world, make_examples, oracle
):
    counts = [1, 3, 9, 2, 12]
    examples = make_examples(counts)
    world = make_world(
        examples,
        nodes=2,
        cohort=5,
        rounds=6,
        noise_multiplier=1e-9,
        clip=UserClip(10.0),  # longer than every row
        optimizer={"rate": 2.0, "momentum": 0.0, "averaging": 0.0},
    )
    edges = np.cumsum([0, *counts])

    def mean(theta_D):
        users = [torch.arange(*edges[user : user + 2]) for user in range(5)]
        return torch.stack([oracle(examples, theta_D, rows) for rows in users]).mean(0)

    world.descends(mean, examples, rate=2.0, rounds=6, terms=25)
    assert np.linalg.norm(world.strategy.optimizer.theta_D) > 0.5


def test_noise_is_fresh_in_every_round_and_run(make_world, make_examples):
    examples = make_examples([1, 2], dimension=2000)
    examples.y_R.fill_(0.5)

    def released(seed):
        return make_world(examples, seed=seed, optimizer={"rate": 1e-9}, noise_multiplier=1.0).run(
            3
        )

    vectors = [*released(0), *released(1), *released(None), *released(None)]
    cosines = np.corrcoef(np.array(vectors)) - np.eye(len(vectors))
    assert np.abs(cosines).max() < 6 / np.sqrt(2000)
    assert np.array_equal(released(0), vectors[:3])


def test_denominator_is_the_nominal_cohort(make_world, checks):
    world = make_world(
        checks.gather(*[checks.like_everybody(2)] * 30),
        cohort=9,
        noise_multiplier=1e-9,
        optimizer={"rate": 1e-9},
    )
    checks.fixed_denominator(world)


def test_a_sum_as_long_as_it_may_be_is_admitted(make_world, checks):
    """All users pull the same way: the node's float32 sum is exactly at the bound."""
    for users in (1, 7, 300):
        world = make_world(
            checks.gather(*[checks.like_everybody(1, dimension=997)] * users),
            cohort=users,
            clip=UserClip(0.1),
        )
        world.run(1)
        assert world.left_out == []


@pytest.mark.parametrize("seed", [0, None])
def test_each_release_is_charged_and_has_noise_of_its_own(make_world, make_examples, seed):
    world = make_world(make_examples([1] * 6, dimension=2000), seed=seed)
    first, second = (world.strategy.gradient(1, {"sum": np.ones(2000)}) for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert [charge.attempt for charge in world.ledger.charges] == [0, 1]
