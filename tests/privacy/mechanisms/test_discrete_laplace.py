from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.randomness import Randomness


def draws(scale, count=4000):
    coins = Randomness(3).stream("laplace", scale.numerator)
    return np.array([discrete_laplace.draw(scale, coins) for _ in range(count)])


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20)])
def test_distribution(scale):
    z_N = draws(scale)
    places = np.arange(-400, 401)
    expected = np.exp(-np.abs(places) / float(scale))
    expected /= expected.sum()
    seen = np.array([(z_N == place).sum() for place in places])
    kept = expected * len(z_N) >= 8
    tail = [len(z_N) - seen[kept].sum()], [(1 - expected[kept].sum()) * len(z_N)]
    observed = np.concatenate([seen[kept], tail[0]])
    wanted = np.concatenate([expected[kept] * len(z_N), tail[1]])
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4
    assert discrete_laplace.std(scale) == pytest.approx(
        float(np.sqrt((expected * places**2).sum())), rel=1e-3
    )


def test_a_float_epsilon_is_taken_exactly():
    scale = 2**20 / Fraction(0.1)
    z_N = draws(scale, 400)
    assert len(np.unique(z_N)) > 390
    assert np.abs(z_N).mean() == pytest.approx(float(scale), rel=0.2)


def test_no_noise_without_a_scale():
    for scale in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="positive"):
            discrete_laplace.draw(scale, Randomness(1).stream("x"))
