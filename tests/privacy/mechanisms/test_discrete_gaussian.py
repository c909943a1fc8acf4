"""Discrete noise: whole numbers of the right size, charged for what they are."""

import math

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import discrete_gaussian, grid
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise, draw
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler

pytest.importorskip("opendp")

SYSTEM = Randomness(None)
SAMPLER = PoissonSampler(0.2)


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    return Ledger(path, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, budget=None)


def mechanism(norm, dimension, sigma=2.0):
    return GaussianSum(
        SAMPLER, UserClip(norm), sigma, Adjacency.ADD_REMOVE, DiscreteNoise(dimension)
    )


def test_small_draws_have_the_probabilities_of_the_discrete_gaussian():
    found = draw(1.5, 40_000)
    z = np.arange(-5, 6)
    weights = np.exp(-(z**2) / (2 * 1.5**2))
    weights /= np.exp(-(np.arange(-60, 61) ** 2) / (2 * 1.5**2)).sum()
    counts = np.array([(found == point).sum() for point in z] + [(np.abs(found) > 5).sum()])
    expected = np.append(weights, 1 - weights.sum()) * len(found)
    tail = stats.chisquare(counts, expected).pvalue
    assert 1e-6 < tail < 1 - 1e-6


def test_large_draws_are_gaussian_no_smaller_and_no_larger(checks):
    scale = 2.0**30
    found = draw(scale, 20_000)
    checks.gaussian_noise(found.astype(np.float64), scale)
    assert len(np.unique(found)) > 19_990


def test_the_release_has_the_promised_noise_on_the_grid(checks, ledger):
    made = mechanism(0.3, 10_000)
    sum_D = np.trunc(np.linspace(-5.0, 5.0, 10_000) / made.clip.step) * made.clip.step
    noisy_D = made.release(sum_D, round_=1, covers="sum", ledger=ledger, source=SYSTEM)
    checks.gaussian_noise(noisy_D - sum_D, made.std)
    grid.to_whole(noisy_D, made.clip.step)  # raises if a value is off the grid
    assert made.event == DiscretizedGaussian(PoissonGaussian(0.2, 2.0), 10_000, grid.PRECISION)
    assert ledger.spent() == {made.event: 1}


def test_noise_fits_the_bound_that_was_used(ledger):
    """Twice the clip norm is twice the noise; the scale in steps is never below what is charged."""
    for norm in (0.3, 0.6, 1.0, 1.999):
        made = mechanism(norm, 5_000)
        zero_D = np.zeros(5_000)
        noisy_D = made.release(zero_D, round_=1, covers=f"{norm}", ledger=ledger, source=SYSTEM)
        spread = noisy_D.std() / (2.0 * norm)
        assert 0.94 < spread < 1.06
        assert isinstance(made.event, DiscretizedGaussian)
        assert made.std / made.clip.step >= made.event.scale


def test_a_sum_and_a_count_have_their_own_noise(ledger):
    made = JointSum(
        SAMPLER, UserClip(0.1), 2.0, Adjacency.ADD_REMOVE, DiscreteNoise(201), count_noise=30.0
    )
    assert made.count_noise / grid.COUNT_STEP >= made.event.scale
    counts = []
    for round_ in range(60):
        noisy_D, count = made.release(
            np.zeros(200), 7.5, round_=round_, covers="both", ledger=ledger, source=SYSTEM
        )
        counts.append(count - 7.5)
        assert 0.7 < noisy_D.std() / 0.2 < 1.3
    square = float(np.sum(np.square(counts))) / 30.0**2
    assert 1e-6 < stats.chi2.cdf(square, 60) < 1 - 1e-6


def test_noise_is_fresh_every_time(ledger):
    made = mechanism(1.0, 50)
    released = [
        made.release(np.zeros(50), round_=1, covers="sum", ledger=ledger, source=SYSTEM)
        for _ in range(2)
    ]
    assert not (released[0] == released[1]).any()
    assert len(ledger.charges) == 2


def test_what_cannot_be_added_is_refused(ledger):
    made, ones = mechanism(1.0, 3), np.ones(3)

    def release(sum_D, source=SYSTEM):
        made.release(sum_D, round_=1, covers="sum", ledger=ledger, source=source)

    with pytest.raises(ValueError, match="no seed"):
        release(ones, Randomness(0))
    with pytest.raises(ValueError, match="not on the grid"):
        release(ones / 3)
    with pytest.raises(ValueError, match="noise for 3 coordinates"):
        release(np.ones(4))


@pytest.mark.parametrize("scale", [0.5, math.nan, math.inf, 2.0**60])
def test_scales_out_of_range(scale):
    with pytest.raises(ValueError, match="cannot be drawn"):
        draw(scale, 1)


def test_pieces_are_put_together_and_nothing_is_nothing():
    assert draw(3.0, 0).shape == (0,)
    found = draw(3.0, 12_345)
    assert found.shape == (12_345,)
    assert abs(np.corrcoef(found[:5000], found[5000:10_000])[0, 1]) < 0.08
    assert discrete_gaussian.installed()
