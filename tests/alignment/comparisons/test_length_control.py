"""Win rates at equal length: what a crowd that likes long answers gives for length is taken off."""

import numpy as np
import pytest
from scipy.optimize import minimize

from murmuration.alignment.comparisons import intervals
from murmuration.alignment.comparisons.intervals import PromptBootstrap
from murmuration.alignment.comparisons.length_control import (
    fit_wins,
    rate_at_equal_length,
    relative_length,
)


def crowd(theta, phi, count, seed=0, ahead=100.0):
    """Wins of a model whose answers are longer by about ``ahead`` characters."""
    generator = np.random.default_rng(seed)
    longer_R = generator.normal(ahead, 120.0, size=count).round()
    chance_R = 1 / (1 + np.exp(-(theta + phi * np.tanh(longer_R / longer_R.std()))))
    return (generator.random(count) < chance_R).astype(float), longer_R


@pytest.mark.parametrize(("theta", "phi"), [(0.0, 2.0), (0.8, 1.0), (-0.5, 3.0), (1.0, -1.5)])
def test_the_rate_of_a_known_crowd_is_found(theta, phi):
    wins_R, longer_R = crowd(theta, phi, 40_000)
    fit = fit_wins(wins_R, relative_length(longer_R), np.ones((1, len(wins_R))))[0]
    assert fit == pytest.approx([theta, phi], abs=0.08)
    rate = rate_at_equal_length(fit[None])[0]
    assert rate == pytest.approx(1 / (1 + np.exp(-theta)), abs=0.02)
    assert abs(wins_R.mean() - rate) > 0.05  # which is not the plain rate


def test_it_is_the_most_likely_fit_of_another_solver():
    wins_R, longer_R = crowd(0.3, 1.2, 300)
    wins_R[:20] = 0.5  # ties
    x_R = relative_length(longer_R)

    def loss(fit):
        logits = fit[0] + fit[1] * x_R
        likelihood = np.logaddexp(0, logits) - wins_R * logits
        return likelihood.sum() + 0.5e-3 * (fit**2).sum()

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    assert fit_wins(wins_R, x_R, np.ones((1, 300)))[0] == pytest.approx(best, abs=1e-4)


def test_weights_are_copies():
    wins_R, longer_R = crowd(0.3, 1.2, 50)
    counts_R = np.random.default_rng(1).integers(0, 4, size=50)
    x_R = relative_length(longer_R)
    copied = fit_wins(
        np.repeat(wins_R, counts_R), np.repeat(x_R, counts_R), np.ones((1, counts_R.sum()))
    )
    assert fit_wins(wins_R, x_R, counts_R[None].astype(float)) == pytest.approx(copied, abs=1e-7)


def test_where_length_says_all_it_has_a_figure():
    """Separated data, of which plain logistic regression has no fit: longer always wins."""
    longer_R = np.array([-30.0, -20, -10, 10, 20, 30] * 20)
    fit = fit_wins((longer_R > 0).astype(float), relative_length(longer_R), np.ones((1, 120)))
    assert rate_at_equal_length(fit)[0] == pytest.approx(0.5)
    assert np.isfinite(fit).all()


def test_equal_lengths_leave_the_plain_rate():
    wins_R = np.array([1.0, 1, 0, 0.5, 1])
    x_R = relative_length(np.zeros(5))
    rate = rate_at_equal_length(fit_wins(wins_R, x_R, np.ones((1, 5))))[0]
    assert rate == pytest.approx(0.7, abs=1e-3)
    assert rate_at_equal_length(
        fit_wins(wins_R, relative_length(np.full(5, 7.0)), np.ones((1, 5)))
    )[0] == pytest.approx(rate)


def test_its_interval_holds_the_truth_as_often_as_it_says(monkeypatch):
    """Over 100 crowds: 95 % of intervals, give or take what chance does."""
    monkeypatch.setattr(intervals, "_DRAWS", 200)
    truth, held = 1 / (1 + np.exp(-0.4)), 0
    for seed in range(100):
        wins_R, longer_R = crowd(0.4, 1.5, 150, seed=seed)
        drawn = PromptBootstrap([f"p{k}" for k in range(75)], seed)
        estimate = drawn.length_controlled(wins_R.reshape(75, 2), longer_R.reshape(75, 2))
        assert estimate.low < estimate.value < estimate.high
        held += estimate.low <= truth <= estimate.high
    assert 88 <= held <= 99


def test_where_every_answer_wins_it_is_wilsons():
    drawn = PromptBootstrap(["p", "q", "r"], 0)
    wins_TN = np.ones((3, 1))
    assert drawn.length_controlled(wins_TN, np.array([[1.0], [2], [3]])) == drawn.share(wins_TN)
