"""Bounds on membership inference: closed forms, optimal attacks, and never above a point's."""

import itertools
import math

import numpy as np
import pytest
from closed_forms import found_at_most
from scipy.special import ndtr, ndtri

from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    DiscretizedGaussian,
    GroupGaussian,
    HoldOut,
    MixtureGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    RandomizedLabels,
    Unprotected,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.attack_bounds import AttackBounds
from murmuration.research.theory.analytic_gaussian import delta_of

ADD, REPLACE, DELTA = Adjacency.ADD_REMOVE, Adjacency.REPLACE, 1e-5
ULS = (PoissonGaussian(0.2, 4.0), 200)
COINS = HoldOut(0.2, 0.5)
RUNS = {
    "uls": ([ULS], ADD),
    "zero-out": ([ULS], Adjacency.ZERO_OUT),
    "replace": ([ULS], REPLACE),
    "els": ([(MixtureGaussian(8.0, 8, 0.05), 100)], ADD),
    "hold-out": ([ULS, *COINS.charges.items()], ADD),
    "hold-out, replaced": ([ULS, *COINS.charges.items()], REPLACE),
    "choices and tests": ([ULS, (PureChoice(0.3), 2), (PureDp(0.2), 1)], ADD),
    "parts": ([(ParallelEvent(0, ULS[0]), 50), (ParallelEvent(1, ULS[0]), 200)], ADD),
    "grid": ([(DiscretizedGaussian(ULS[0], 1000, 20), 200)], ADD),
    "labels": ([(RandomizedLabels(0.2), 8)], Adjacency.REPLACE_LABELS),
    "group": ([(GroupGaussian(20.0, 4, 0.05), 100)], ADD),
    "unprotected": ([ULS, (Unprotected(), 1)], ADD),
    "nothing": ([], ADD),
}


def bounds(run, adjacency=ADD, delta=DELTA):
    spent = accountant.epsilon(run, adjacency=adjacency, delta=delta)
    return attack_bounds.of_run(run, adjacency=adjacency, epsilon=spent, delta=delta)


def rates(found):
    return found.tpr_at_1_percent_fpr, found.tpr_at_0_1_percent_fpr


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize(("sigma", "rounds"), [(5.0, 1), (20.0, 100), (1.0, 4), (50.0, 1)])
def test_a_gaussian_has_its_closed_form(adjacency, sigma, rounds):
    mu = adjacency.vectors_changed * math.sqrt(rounds) / sigma
    found = bounds([(PoissonGaussian(1.0, sigma), rounds)], adjacency)
    assert mu <= found.gdp_mu <= mu * 1.002
    for rate, fpr in zip(rates(found), (0.01, 0.001), strict=True):
        exact = ndtr(ndtri(fpr) + mu)
        assert exact <= rate <= exact * 1.003


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
def test_a_pure_promise_has_its_closed_form(epsilon):
    found = bounds([(PureDp(epsilon), 1)], delta=1e-12)
    assert found.gdp_mu == pytest.approx(-2 * ndtri(1 / (1 + math.exp(epsilon))), rel=2e-3)
    for rate, fpr in zip(rates(found), (0.01, 0.001), strict=True):
        assert rate == pytest.approx(found_at_most(epsilon, 0.0, fpr), rel=2e-3)


def best_attack(p_N, q_N, fpr):
    """The true-positive rate of the likelihood ratio test between two lists of cells."""
    order_N = np.argsort(-p_N / q_N)
    return np.interp(fpr, np.cumsum(q_N[order_N]), np.cumsum(p_N[order_N]))


def cells(*shifts_and_weights):
    edges = np.linspace(-12.0, 14.0, 200_001)
    masses = [w * np.diff(ndtr(edges - shift)) for shift, w in shifts_and_weights]
    return np.maximum(np.sum(masses, axis=0), 1e-300)


def told(epsilon, cells_N, user_is_held_out):
    """Cells beside one bit about held-out users, which differs by a factor of e^epsilon."""
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    first, second = (p, q) if user_is_held_out else (q, p)
    return np.concatenate([first * cells_N, second * cells_N])


SIGMA, Q, H, HELD = 1.0, 0.3, 0.25, 1.2
WITH, WITHOUT = cells((0.0, 1 - Q), (1 / SIGMA, Q)), cells((0.0, 1.0))
TRAINED = (1 - H) * told(HELD, WITH, False) + H * told(HELD, WITHOUT, True)
SWAPPED = [
    (1 - H) * told(HELD, cells((0.0, 1 - Q), (sign / SIGMA, Q)), False)
    + H * told(HELD, WITHOUT, sign > 0)
    for sign in (1, -1)
]
COIN = HoldOut(H, HELD)


@pytest.mark.parametrize(
    ("run", "adjacency", "p_N", "q_N"),
    [
        ([], ADD, WITH, WITHOUT),
        (COIN.charges.items(), ADD, TRAINED, told(HELD, WITHOUT, False)),
        (COIN.charges.items(), REPLACE, *SWAPPED),
    ],
    ids=["sampled", "held out", "held out, replaced"],
)
def test_the_best_attack_in_either_order_stays_below_and_comes_close(run, adjacency, p_N, q_N):
    found = bounds([(PoissonGaussian(Q, SIGMA), 1), *run], adjacency)
    for rate, fpr in zip(rates(found), (0.01, 0.001), strict=True):
        best = max(best_attack(p_N, q_N, fpr), best_attack(q_N, p_N, fpr))
        # Where users are held out, the order that is dearer counts for both.
        assert best <= rate <= best * (1.12 if run else 1.01) + DELTA
    fprs_N = np.geomspace(1e-9, 0.999, 200)
    best_N = np.maximum(best_attack(p_N, q_N, fprs_N), best_attack(q_N, p_N, fprs_N))
    assert (best_N <= ndtr(ndtri(fprs_N) + found.gdp_mu) + DELTA).all()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("delta", [1e-5, 0.01])
def test_never_above_what_a_point_of_the_curve_allows(name, delta):
    run, adjacency = RUNS[name]
    spent = accountant.epsilon(run, adjacency=adjacency, delta=delta)
    found = attack_bounds.of_run(run, adjacency=adjacency, epsilon=spent, delta=delta)
    for rate, fpr in zip(rates(found), (0.01, 0.001), strict=True):
        assert fpr <= rate <= found_at_most(spent, delta, fpr) * 1.001
    point = attack_bounds.of_point(spent, delta)
    if name in ("group", "unprotected"):
        assert found == point  # nothing else is known
    elif name != "nothing" and delta == DELTA:
        assert found.tpr_at_1_percent_fpr < 0.9 * point.tpr_at_1_percent_fpr
        assert found.gdp_mu < 0.9 * point.gdp_mu


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ("group", "unprotected")])
def test_no_line_that_the_curve_gives_allows_more_than_a_gaussian_with_mu(name):
    run, adjacency = RUNS[name]
    spent = accountant.epsilon(run, adjacency=adjacency, delta=DELTA)
    found = bounds(run, adjacency)
    curve = accountant.curve(run, adjacency=adjacency, delta=0.01)
    lines = [(math.exp(e), max(DELTA, curve(e))) for e in np.linspace(0.0, spent, 400)]
    lines += [(1 / a, 1 - (1 - d) / a) for a, d in lines]
    fprs_N = np.geomspace(1e-10, 0.999, 1000)
    most_N = np.min([d + a * fprs_N for a, d in lines], axis=0)
    gaussian_N = ndtr(ndtri(fprs_N) + found.gdp_mu)
    assert (most_N <= gaussian_N * 1.001 + DELTA).all()
    smaller_N = ndtr(ndtri(fprs_N) + 0.98 * found.gdp_mu)
    assert (most_N > smaller_N).any()
    for rate, fpr in zip(rates(found), (0.01, 0.001), strict=True):
        assert rate == pytest.approx(min(d + a * fpr for a, d in lines), rel=5e-3, abs=2 * DELTA)


@pytest.mark.parametrize("name", ["uls", "zero-out", "replace", "els", "hold-out", "parts", "grid"])
def test_mu_is_the_least_whose_gaussian_has_as_much_delta_down_to_the_runs_own(name):
    run, adjacency = RUNS[name]
    spent = accountant.epsilon(run, adjacency=adjacency, delta=DELTA)
    mu = bounds(run, adjacency).gdp_mu
    curve = accountant.curve(run, adjacency=adjacency, delta=DELTA)
    points = [(e, curve(e)) for e in np.linspace(0.0, spent * 0.999, 300)]
    assert all(delta <= delta_of(1 / mu, e) * (1 + 1e-3) for e, delta in points)
    assert any(delta > delta_of(1 / (0.99 * mu), e) for e, delta in points)


def test_more_rounds_and_less_noise_never_make_it_harder():
    def of(sigma, rounds):
        found = bounds([(PoissonGaussian(0.2, sigma), rounds), *COINS.charges.items()])
        return (*rates(found), found.gdp_mu)

    grown = [of(4.0, 10), of(4.0, 40), of(3.0, 40), of(3.0, 200), of(1.0, 200)]
    for one, two in itertools.pairwise(grown):
        assert all(a <= b for a, b in zip(one, two, strict=True))
    assert grown[0] < grown[-1]


def test_nothing_protected_is_found_for_certain_and_nothing_released_by_guessing():
    assert bounds([(Unprotected(), 1)]) == AttackBounds(1.0, 1.0, None)
    assert attack_bounds.of_point(501.0, DELTA) == AttackBounds(1.0, 1.0, None)
    assert bounds([]) == AttackBounds(0.01002, 0.001011, 0.0)


@pytest.mark.parametrize(
    "bad", [(-0.1, 0.1, 1.0), (0.1, 1.1, 1.0), (0.1, 0.1, math.inf), (0.1, 0.1, -1.0)]
)
def test_what_is_no_bound_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        AttackBounds(*bad)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("f", [0.001, 0.01, 0.5])
def test_randomized_response_reaches_it_where_it_can(epsilon, f):
    likely = math.exp(epsilon) / (1 + math.exp(epsilon))  # the point (1 - told, told) is reached
    assert found_at_most(epsilon, 0.0, 1 - likely) == pytest.approx(likely)
    assert f <= found_at_most(epsilon, 1e-5, f) <= 1


def test_by_the_table_of_attacks():
    assert found_at_most(1.0, 1e-5, 0.01) == pytest.approx(0.0272, abs=1e-4)
    assert found_at_most(8.0, 1e-5, 0.01) > 0.999
    assert found_at_most(math.inf, 1e-5, 0.01) == 1.0


def test_odds_grow_by_e_to_the_epsilon():
    assert attack_bounds.sure_at_most(0.0, 0.3) == pytest.approx(0.3)
    assert attack_bounds.sure_at_most(1.0) == pytest.approx(math.e / (1 + math.e))
    assert attack_bounds.sure_at_most(math.inf) == attack_bounds.sure_at_most(1000.0) == 1.0
