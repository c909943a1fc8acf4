"""Curves against what they come from."""

import math

import numpy as np
import pytest

from murmuration.privacy.accounting.accountant import epsilon
from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.selection.dominating_pair import dominating
from murmuration.research.theory.analytic_gaussian import delta_of as gaussian_delta

INTERVAL = 1e-4


def divergence(loss, target):
    above_N = np.maximum(0.0, -np.expm1(target - loss.index_N * INTERVAL))
    return loss.infinite + float(loss.mass_N @ above_N)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 5.0])
def test_a_distribution_from_a_curve_dominates_it_on_both_sides(sigma):
    """A curve that is known: between its points and below zero it must hold, too."""
    loss = dominating(lambda e: gaussian_delta(sigma, e), INTERVAL)
    assert float(loss.mass_N.sum()) + loss.infinite == pytest.approx(1.0, abs=1e-6)
    for target in np.linspace(-4.0, 4.0, 161) + 0.00337:
        exact = gaussian_delta(sigma, abs(float(target)))
        if target < 0:
            exact = 1.0 - math.exp(target) + math.exp(target) * exact
        assert divergence(loss, target) >= exact * (1 - 1e-12)
        assert divergence(loss, target) <= exact * 1.01 + 1e-9


def test_a_curve_may_be_loose_and_rise():
    """Where an upper bound is no curve of anything the best convex one below it counts."""
    loss = dominating(lambda e: 1.0 if e < 1.0 else 1e-6 * (1.0 + e), INTERVAL)
    total = float(loss.mass_N.sum()) + loss.infinite
    assert total == pytest.approx(1.0, abs=1e-6)
    assert (loss.mass_N >= 0.0).all()
    # (1, δ) alone: what it says at zero is (e − 1 + 2δ) / (e + 1).
    assert divergence(loss, 0.0) == pytest.approx((math.e - 1) / (math.e + 1), abs=1e-4)
    assert divergence(loss, 1.0) <= 2.1e-6
    assert math.isclose(
        epsilon([(PureDp(1.0), 1)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5), 1.0, abs_tol=1e-3
    )
