"""Synthetic users: their features, their judgements, their node."""

import numpy as np
import pytest

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.reproductions.btl import Population, node_of
from murmuration.strategies.protocol.users import Registry


def test_a_population_is_a_function_of_its_seed():
    one, same, other = (Population.draw(s, users=4, each=3, dimension=5) for s in (0, 0, 1))
    assert np.array_equal(one.examples.x_RD, same.examples.x_RD)
    assert not np.array_equal(one.truth_D, other.truth_D)
    assert one.examples.counts_U.tolist() == [3] * 4
    assert one.error(np.zeros(5)) == pytest.approx(2.0)
    assert one.error(one.truth_D) == 0.0


def test_judgements_follow_the_model_they_are_said_to():
    population = Population.draw(0, users=2000, each=10, dimension=4)
    x_RD = population.examples.x_RD.numpy()
    lengths = np.linalg.norm(x_RD, axis=1)
    assert 1.3 < np.sqrt((lengths**2).mean()) < 1.5  # two directions of length one, at random
    logits_R = x_RD @ population.truth_D
    # E[σ(−z) sign] over the calibration: where |z| is about one, 73 % agree.
    near = np.abs(np.abs(logits_R) - 1.0) < 0.1
    assert (logits_R[near] > 0).mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.03)
    assert population.error(population.likeliest()) < 0.15


def test_the_node_hosts_everybody():
    population = Population.draw(0, users=7, each=2, dimension=3)
    grid = node_of(population.examples, Randomness(0))
    assert len(Registry.ask(grid, Randomness(0), features="{}")) == 7


def test_the_semi_norm_is_how_far_log_odds_are_off():
    population = Population.draw(0, users=50, each=4, dimension=3)
    theta_D = np.array([0.3, -1.0, 0.2])
    off_R = population.examples.x_RD.numpy() @ (theta_D - population.truth_D)
    assert population.semi_norm_error(theta_D) == pytest.approx(np.sqrt((off_R**2).mean()))
    assert population.semi_norm_error(population.truth_D) == 0.0
