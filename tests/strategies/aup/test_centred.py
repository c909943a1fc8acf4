"""Centred AUP: the centre, what users send, what the estimate is, and when centring pays."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from failing import Watched

from murmuration.preference.linear.examples import PairExamples
from murmuration.strategies import adaptive
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan, QuantileRule
from murmuration.strategies.aup.centred import AupCentred, Centre
from murmuration.strategies.protocol import messages


@pytest.fixture
def world(make_world):
    """``make_world`` for centred AUP; ``radius`` is where the rule starts."""

    def make(examples, *, strategy=AupCentred, radius=0.5, quantile=0.5, **more):
        defaults = {
            "cohort": max(1, len(examples.counts_U) // 2),
            "count_noise": 1.0,
            "rule": QuantileRule(radius, quantile),
        }
        return make_world(examples, kind=AdaptivePlan, strategy=strategy, **{**defaults, **more})

    return make


def half_around(centre_D):
    """The node half around a fixed centre."""

    def half(examples, work, keys_S, source):
        arrays = {**work.arrays, "centre": np.asarray(centre_D, dtype=np.float32)}
        parameters = {"middle": 0.5, **work.parameters}
        return adaptive.client_update(
            examples, replace(work, arrays=arrays, parameters=parameters), keys_S, source
        )

    return half


# The centre


def test_centring_pays_or_costs_nothing():
    """The centre is no further from the truth than zero is, but for noise of few coordinates."""
    generator = np.random.default_rng(0)
    noise, dimension = 0.1, 200
    for length in (0.0, 0.1, 0.3, 1.0, 10.0):
        truth_D = np.full(dimension, length / math.sqrt(dimension))
        off = []
        for _ in range(20):
            centre = Centre(dimension)
            for draw_D in truth_D + noise * generator.standard_normal((30, dimension)):
                centre.add(draw_D, noise)
            off.append(float(np.sum((centre.value_D - truth_D) ** 2)))
        few = 4 * noise**2 * 0.1
        assert np.mean(off) <= length**2 + few
        if length >= 1.0:
            assert np.mean(off) < 0.5 * length**2


def test_a_new_centre_is_zero_and_weighs_the_past_down():
    centre = Centre(3)
    assert centre.value_D.tolist() == [0.0] * 3
    assert centre.value_D.dtype == np.float32
    centre.add(np.array([1.0, 0.0, 0.0]), 0.0)
    np.testing.assert_allclose(centre.value_D, [1, 0, 0], rtol=1e-6)
    for _ in range(60):
        centre.add(np.array([0.0, 1.0, 0.0]), 0.0)
    np.testing.assert_allclose(centre.value_D, [0, 1, 0], atol=2e-3)


# What users send


@pytest.mark.parametrize("centre_D", [[0.0] * 4, [3.0, 0.0, -4.0, 0.0], [-20.0] * 4])
def test_one_vote_each_wherever_the_centre_is(checks, centre_D):
    """No user's term is longer than the radius; far from the centre it is as long."""
    half = half_around(centre_D)
    light, heavy = checks.like_everybody(1), -checks.like_everybody(1000)
    users = checks.gather(light, heavy, light)
    everyone = checks.ask(half, users)
    for user in range(3):
        rest_S = [other for other in range(3) if other != user]
        moved = float(np.linalg.norm(everyone - checks.ask(half, users, users_S=rest_S)))
        assert 1 - 1e-4 <= moved <= 1 + 1e-6


def test_a_centre_of_another_length_is_refused(checks, make_examples):
    with pytest.raises(ValueError, match="centre of shape"):
        checks.ask(half_around([0.0]), make_examples([2]))


# The whole


def test_unbounded_and_noiseless_it_is_plain_averaging(world, make_examples):
    """Whatever the centre, it cancels where nobody is projected and everybody is there."""
    examples = make_examples([1, 3, 9, 2, 12])
    plain = {"cohort": 5, "noise_multiplier": 1e-9, "radius": 1e3, "rounds": 12}
    optimizer = {"rate": 2e3, "momentum": 0.0}
    centred = world(examples, optimizer=optimizer, **plain)
    centred.run(12)
    assert centred.strategy.figures()["centre_norm"].value > 0.01
    uncentred = world(examples, optimizer=optimizer, strategy=Adaptive, **plain)
    uncentred.run(12)
    assert np.linalg.norm(uncentred.strategy.optimizer.theta_D) > 0.5
    np.testing.assert_allclose(
        centred.strategy.optimizer.theta_D, uncentred.strategy.optimizer.theta_D, atol=1e-4
    )


def alike(users, common=1.0, apart=0.1, dimension=8):
    """Users who have much in common: gradients at θ = 0 differ by a tenth of their length."""
    generator = torch.Generator().manual_seed(0)
    x_RD = apart * torch.randn(users, dimension, generator=generator) / math.sqrt(dimension)
    x_RD[:, 0] += common
    return PairExamples(x_RD, torch.ones(users), torch.arange(users + 1))


def test_users_who_agree_need_a_fraction_of_the_noise(world):
    """What centring is for: the radius becomes the distance between users, not their length."""
    still = {"optimizer": {"rate": 1e-9}, "cohort": 100, "rounds": 60, "radius": 1.0}
    made = {}
    for strategy in (Adaptive, AupCentred):
        made[strategy] = world(alike(200), strategy=strategy, count_noise=5.0, **still)
        (*_, last) = made[strategy].run(60)
        estimate_D = last * made[strategy].strategy.figures()["radius"].value
        assert estimate_D[0] == pytest.approx(-0.5, abs=0.1)  # the mean gradient, either way
    assert 0.4 < made[Adaptive].strategy.radius < 0.6
    assert made[AupCentred].strategy.radius < 0.15


def test_nodes_get_the_centre_that_was_released_before(world):
    made = world(alike(40), cohort=40, wrap=Watched, noise_multiplier=0.1)
    given = []
    for round_ in range(1, 4):
        given.append(made.strategy.arrays()["centre"])
        made.run(round_)
    sent = [messages.read_work(message.content).arrays["centre"] for message in made.grid.sent]
    assert len(sent) == 3
    assert all(np.array_equal(a, b) for a, b in zip(sent, given, strict=True))
    assert not sent[0].any()
    assert sent[2].any()


def test_golden_trajectory(world):
    made = world(alike(40, dimension=3), rounds=8, noise_multiplier=0.5)
    made.run(8)
    np.testing.assert_allclose(made.strategy.optimizer.theta_D, GOLDEN, atol=1e-6)
    np.testing.assert_allclose(made.strategy.centre.value_D, GOLDEN_CENTRE, atol=1e-6)


GOLDEN = [1.1311379, -0.0145999, 0.0309955]
GOLDEN_CENTRE = [-0.3471426, 0.0044469, -0.0107418]
