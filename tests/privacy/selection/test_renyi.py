"""Rényi divergences against another library and exact sums; curves against what they come from."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import integrate, stats

from murmuration.privacy.accounting.accountant import epsilon
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.selection import renyi
from murmuration.research.theory.analytic_gaussian import delta_of as gaussian_delta

INTERVAL = 1e-4


def divergence(loss, target):
    above_N = np.maximum(0.0, -np.expm1(target - loss.index_N * INTERVAL))
    return loss.infinite + float(loss.mass_N @ above_N)


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.2, 4.0), (0.5, 0.8), (1.0, 2.0)])
def test_sampled_gaussians_are_those_of_dp_accounting(q, sigma):
    orders = [int(order) for order in renyi.WHOLE_L[1:40]]
    theirs = RdpAccountant(orders=orders)
    event = dp_accounting.GaussianDpEvent(sigma)
    theirs.compose(event if q == 1.0 else dp_accounting.PoissonSampledDpEvent(q, event))
    ours_L = renyi.of_sampled_gaussian(q, sigma)[1:40] / (renyi.WHOLE_L[1:40] - 1)
    np.testing.assert_allclose(ours_L, theirs._rdp, rtol=1e-6, atol=1e-10)


def test_between_whole_orders_the_line_lies_above_the_truth():
    q, sigma = 0.3, 1.5
    kappa_F = renyi.at_all_orders(renyi.of_sampled_gaussian(q, sigma))

    def exact(order):
        def density(x):
            ratio = 1 - q + q * math.exp((x - 0.5) / sigma**2)
            return float(stats.norm.pdf(x, scale=sigma)) * ratio**order

        return math.log(integrate.quad(density, -30, 40, limit=200)[0])

    for place in (0, 1, 4, 7, 12, 21, 30):
        order = float(renyi.ORDERS_F[place])
        assert exact(order) <= kappa_F[place] + 1e-9
        assert kappa_F[place] <= 1.6 * exact(order) + 0.02


@pytest.mark.parametrize("pure", [0.1, 1.0, 5.0])
def test_pure_is_randomized_response(pure):
    p, q = 1 / (1 + math.exp(-pure)), 1 / (1 + math.exp(pure))
    for place, order in enumerate(renyi.WHOLE_L[:30]):
        exact = math.log(p**order * q ** (1.0 - order) + q**order * p ** (1.0 - order))
        assert renyi.of_pure(pure)[place] == pytest.approx(exact, rel=1e-6, abs=1e-8)


def test_held_out_by_a_coin_is_the_mean_of_both_and_no_more():
    """By the exact pair of a mixture: what a user who may be held out changes."""
    share, pure, sigma = 0.3, 1.0, 1.2
    held_L, other_L = renyi.of_pure(pure), renyi.of_sampled_gaussian(1.0, sigma)
    both_L = renyi.of_either(share, held_L, other_L)
    assert (both_L <= np.maximum(held_L, other_L) + 1e-9).all()
    assert (both_L >= np.minimum(held_L, other_L) - 1e-9).all()
    p = 1 / (1 + math.exp(-pure))
    for place, order in ((1, 2), (3, 4)):
        # P = (1 − h) N(1) × R(1−p) + h N(0) × R(p), over Q = N(0) × R(1−p).
        def density(x, order=order):
            total = 0.0
            for y, ratio in ((1 - p, p / (1 - p)), (p, (1 - p) / p)):
                mixed = (1 - share) * math.exp((x - 0.5) / sigma**2) + share * ratio
                total += y * mixed**order
            return total * float(stats.norm.pdf(x, scale=sigma))

        exact = math.log(integrate.quad(density, -20, 30, limit=300)[0])
        assert exact <= both_L[place] + 1e-7
    np.testing.assert_array_equal(renyi.of_either(0.0, held_L, other_L), other_L)


@pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.2, 6.0, 100), (1.0, 3.0, 4)])
def test_delta_is_above_the_exact_one_and_near_it(q, sigma, rounds):
    kappa_F = renyi.at_all_orders(rounds * renyi.of_sampled_gaussian(q, sigma))
    event = (PoissonGaussian(q, sigma), rounds)
    exact = epsilon([event], adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    assert renyi.delta_of(kappa_F, np.array([exact]))[0] >= 1e-5 * (1 - 1e-3)
    assert renyi.delta_of(kappa_F, np.array([1.12 * exact]))[0] <= 1e-5


@pytest.mark.parametrize("sigma", [0.7, 1.0, 5.0])
def test_a_distribution_from_a_curve_dominates_it_on_both_sides(sigma):
    """A curve that is known: between its points and below zero it must hold, too."""
    loss = renyi.dominating(
        lambda e_N: np.array([gaussian_delta(sigma, float(e)) for e in e_N]), INTERVAL
    )
    assert float(loss.mass_N.sum()) + loss.infinite == pytest.approx(1.0, abs=1e-6)
    for target in np.linspace(-4.0, 4.0, 161) + 0.00337:
        exact = gaussian_delta(sigma, abs(float(target)))
        if target < 0:
            exact = 1.0 - math.exp(target) + math.exp(target) * exact
        assert divergence(loss, target) >= exact * (1 - 1e-12)
        assert divergence(loss, target) <= exact * 1.01 + 1e-9


def test_a_curve_may_be_loose_and_rise():
    """Where an upper bound is no curve of anything the best convex one below it counts."""
    loss = renyi.dominating(lambda e_N: np.where(e_N < 1.0, 1.0, 1e-6 * (1.0 + e_N)), INTERVAL)
    total = float(loss.mass_N.sum()) + loss.infinite
    assert total == pytest.approx(1.0, abs=1e-6)
    assert (loss.mass_N >= 0.0).all()
    # (1, δ) alone: what it says at zero is (e − 1 + 2δ) / (e + 1).
    assert divergence(loss, 0.0) == pytest.approx((math.e - 1) / (math.e + 1), abs=1e-4)
    assert divergence(loss, 1.0) <= 2.1e-6
    assert math.isclose(
        epsilon([(PureDp(1.0), 1)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5), 1.0, abs_tol=1e-3
    )
