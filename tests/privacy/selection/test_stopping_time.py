"""How many candidates are run: the paper's distributions, and draws of them."""

import math

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.selection.stopping_time import StoppingTime


@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.02, 0.3, 0.9])
def test_masses_add_up_and_have_the_mean(eta, gamma):
    time = StoppingTime(eta, gamma)
    mass_K = time.masses(20_000)
    assert mass_K.sum() == pytest.approx(1.0, abs=1e-9)
    assert mass_K @ np.arange(1, len(mass_K) + 1) == pytest.approx(time.mean, rel=1e-6)


def test_one_is_geometric_and_zero_is_logarithmic():
    k = np.arange(1, 200)
    np.testing.assert_allclose(StoppingTime(1.0, 0.1).masses(199), stats.geom.pmf(k, 0.1))
    np.testing.assert_allclose(StoppingTime(0.0, 0.1).masses(199), stats.logser.pmf(k, 0.9))
    near = StoppingTime(1e-7, 0.1)
    np.testing.assert_allclose(near.masses(199), StoppingTime(0.0, 0.1).masses(199), rtol=1e-4)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0])
@pytest.mark.parametrize("runs", [1.01, 3.0, 100.0])
def test_the_mean_that_is_wanted(eta, runs):
    time = StoppingTime.with_mean(runs, eta)
    assert time.mean == pytest.approx(runs, rel=1e-6)
    assert time.mean <= runs


@pytest.mark.parametrize("runs", [0.0, 1.0, -3.0, math.nan, math.inf, 1e9])
def test_hostile_means_are_refused(runs):
    with pytest.raises(ValueError, match="expected number of runs"):
        StoppingTime.with_mean(runs, 0.0)


@pytest.mark.parametrize(("eta", "gamma"), [(-1.0, 0.5), (math.nan, 0.5), (0.0, 0.0), (0.0, 1.0)])
def test_hostile_parameters_are_refused(eta, gamma):
    with pytest.raises(ValueError, match=r"eta|gamma"):
        StoppingTime(eta, gamma)


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_draws_are_of_the_distribution(eta):
    """Two-sided: too few long ones would cost less than is charged, too many tell nothing."""
    time, generator = StoppingTime(eta, 0.2), Randomness(5).stream("test")
    drawn = np.array([time.draw(generator) for _ in range(20_000)])
    edges = [2, 3, 5, 8, 13]
    mass_K = time.masses(10_000)
    for edge in edges:
        expected = float(mass_K[edge - 1 :].sum())
        spread = math.sqrt(expected * (1 - expected) / len(drawn))
        assert abs((drawn >= edge).mean() - expected) <= 4.5 * spread
