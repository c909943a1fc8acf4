"""Figure 7 of Charles et al. 2024: means without noise are the mean, and who is better is said."""

import numpy as np
import pytest

from murmuration.research.reproductions.uls import mean_estimation
from murmuration.research.reproductions.uls.mean_estimation import Setting


@pytest.fixture
def grid(monkeypatch):
    """A function: one step size and clip norm, and a noise multiplier."""

    def put(rate, clip, sigma):
        monkeypatch.setattr(mean_estimation, "RATES", (rate,))
        monkeypatch.setattr(mean_estimation, "CLIPS", (clip,))
        monkeypatch.setattr(mean_estimation, "noise_multiplier", lambda *args, **named: sigma)

    return put


@pytest.mark.parametrize("group_size", [0, 16])
def test_everybody_without_noise_is_the_mean_of_everything(grid, group_size):
    grid(1.0, 1e6, 0.0)
    everything = Setting("compute", compute=256 * 16)
    row = mean_estimation.best_of_sweep((everything, group_size, 16, 1))
    # The mean of 256 users' means, of variance 1 + 1/16 each, in 32 dimensions.
    assert row["error_mean"] == pytest.approx(np.sqrt(32 * (1 + 1 / 16) / 256), rel=0.1)


@pytest.mark.parametrize(("group_size", "divisor"), [(0, 64), (4, 16)])
def test_noise_is_of_the_clip_norm_over_the_nominal_size(grid, group_size, divisor):
    grid(1.0, 1e-6, 1e9)
    row = mean_estimation.best_of_sweep((Setting("epsilon"), group_size, 64, 1))
    assert row["error_mean"] == pytest.approx(1e3 / divisor * np.sqrt(32), rel=0.05)


def test_of_a_larger_group_means_are_less_noisy(grid):
    """σ₂ = 4: with one example of each a step's target varies by 1 + 16, with all by 1 + 1."""
    grid(1.0, 1e6, 0.0)
    few, many = (
        mean_estimation.best_of_sweep((Setting("spread", compute=c, spread=4.0), g, 16, 1))
        for c, g in ((256, 1), (256 * 16, 16))
    )
    assert few["error_mean"] == pytest.approx(np.sqrt(32 * 17 / 256), rel=0.12)
    assert many["error_mean"] == pytest.approx(np.sqrt(32 * 2 / 256), rel=0.12)


def test_the_best_of_the_sweep_is_reported(monkeypatch):
    monkeypatch.setattr(mean_estimation, "RATES", (1e-9, 1.0))
    monkeypatch.setattr(mean_estimation, "CLIPS", (100.0,))
    monkeypatch.setattr(mean_estimation, "noise_multiplier", lambda *args, **named: 1e-6)
    row = mean_estimation.best_of_sweep((Setting("compute", compute=256 * 16), 16, 4, 3))
    assert (row["rate"], row["clip"], row["algorithm"]) == (1.0, 100.0, "ULS, G = 16")
    assert row["error_mean"] < 1.0
