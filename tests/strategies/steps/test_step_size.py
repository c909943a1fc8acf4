"""The default step: noise adds up to what it may, and never beyond the ceiling."""

import math

import numpy as np
import pytest

from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer
from murmuration.strategies.steps.step_size import NOISE_LOGITS, noise_limited_rate


def settings(kind="sgd", **changes):
    return OptimizerSettings(**{"kind": kind, "rate": 0.2, "rounds": 12, **changes})


def test_noise_limited_rate_lets_noise_add_up_to_a_fraction_of_a_logit():
    config, noise = settings(rounds=150, momentum=0.0, averaging=0.0), 0.02
    rate = noise_limited_rate(noise, config, ceiling=1e9)
    runs = 4000  # coordinates are independent runs of one direction
    optimizer = ServerOptimizer(settings(rounds=150, momentum=0.0, rate=rate), np.zeros(runs))
    generator = np.random.default_rng(0)
    for round_, drawn_D in enumerate(noise * generator.normal(size=(150, runs)), start=1):
        optimizer.step(round_, drawn_D)
    spread = float(optimizer.theta.std())
    assert spread == pytest.approx(NOISE_LOGITS, rel=6 / math.sqrt(2 * runs))


def test_noise_limited_rate_has_a_ceiling():
    assert noise_limited_rate(0.0, settings(), 7.0) == 7.0
    assert noise_limited_rate(1e-9, settings(), 7.0) == 7.0
    assert noise_limited_rate(2.0, settings(), 7.0) == noise_limited_rate(1.0, settings(), 7.0) / 2


def test_default_rate_of_an_optimizer_that_divides_by_the_gradients_scale():
    config = settings("adam", rounds=100)
    rates = {noise_limited_rate(noise, config, 100.0) for noise in (1e-6, 0.1, 30.0)}
    assert len(rates) == 1
    assert rates.pop() < 0.1
