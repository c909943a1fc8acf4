"""Rényi divergences of one run, and the privacy loss distribution that a bound on them comes to.

With κ(λ) = (λ − 1) D_λ(P‖Q) = log E_Q (P/Q)^λ, which is convex in λ and 0 at 1:

**Sampled Gaussians.** At whole orders, for a user who comes or goes in either order (Mironov et al.
2019), κ(λ) = log Σ_k C(λ, k) (1 − q)^(λ−k) q^k exp(k(k − 1) / 2σ²). Rounds add up. Between whole
orders a straight line lies above, by convexity.

**Held-out users.** Given the draw of the one user in whom the worlds differ, a run costs what
training costs, or what the figures about held-out users cost. e^κ is jointly convex in (P, Q), so
at worst it is the mean of the two, (1 − h) e^κ_T + h e^κ_H, and κ_H at most that of randomized
response.

**From Rényi to (ε, δ)** (Canonne, Kamath and Steinke 2020, Proposition 12):
log δ = κ − (λ − 1) ε − log(λ − 1) + λ log(1 − 1/λ), at the best λ.

**From a curve to a distribution.** Let f(ε) ≥ H_{e^ε}, for both orders of two neighbours, at some
ε_0 = 0 < … < ε_n. H_α(P‖Q) is convex in α, and H_α(P‖Q) = 1 − α + α H_{1/α}(Q‖P), so

- H_1 ≤ (2 f(ε_k) + α_k − 1) / (α_k + 1) with α_k = e^{ε_k}, for each k: between 1/α_k and α_k it
  lies below a straight line;
- the largest convex function that is nowhere above f at these points bounds H for α ≥ 1, and its
  mirror image for α < 1; beyond the last point the last value does.

Both together are H of a distribution on the losses ±ε_k and ∞: with slopes s_k of the piece after
α_k its masses are α_k (s_k − s_{k−1}) at ε_k, e^{−ε_k} times as much at −ε_k, 2 s_0 + 1 − f(0) at
0, and f(ε_n) at infinity. It dominates, and such pairs compose (Zhu et al. 2022, Theorem 10).

Legend: L whole orders, F all orders, N points of a curve.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF

#: Whole orders: dense where epsilons of a few are decided, by ratios up to where tails are.
WHOLE_L = np.unique(np.append(np.arange(1, 129), np.round(128 * 1.1 ** np.arange(1, 40))))
#: Orders at which bounds are evaluated, all above 1.
ORDERS_F = np.append(np.arange(9, 129) / 8.0, WHOLE_L[WHOLE_L > 16])
#: More than rounding takes from κ of a round, absolutely; of a curve, relatively.
_SLACK, _UPWARD = 1e-11, 1.0 + 1e-9
#: Steps of a curve, in nats; where it ends; what is nothing at its end.
_STEP, _MOST, _NOTHING = 0.01, 100.0, 1e-25
_LEAST_MASS = 1e-200


def of_sampled_gaussian(probability: float, noise_multiplier: float) -> np.ndarray:
    """κ of a Poisson-sampled Gaussian at the whole orders, (L,), rounded up."""
    q, inverse = probability, 0.5 / noise_multiplier**2
    if q == 1.0:
        return WHOLE_L * (WHOLE_L - 1.0) * inverse + _SLACK
    result_L = np.empty(len(WHOLE_L))
    for place, order in enumerate(WHOLE_L):
        k = np.arange(order + 1.0)
        binomial = special.gammaln(order + 1) - special.gammaln(k + 1)
        binomial -= special.gammaln(order - k + 1)
        exponent = (order - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1.0) * inverse
        result_L[place] = special.logsumexp(binomial + exponent)
    return np.maximum(result_L, 0.0) + _SLACK


def of_pure(epsilon: float) -> np.ndarray:
    """κ of all that is (``epsilon``, 0)-DP, at the whole orders, (L,), rounded up."""
    low, high = (1.0 - WHOLE_L) * epsilon, WHOLE_L * epsilon
    return np.maximum(np.logaddexp(low, high) - np.logaddexp(0.0, epsilon), 0.0) + _SLACK


def of_either(share: float, held_L: np.ndarray, other_L: np.ndarray) -> np.ndarray:
    """κ, (L,), of a user who is exposed to one with probability ``share``, in secret, and otherwise
    to the other."""
    if share == 0.0:
        return other_L
    return np.logaddexp(math.log(share) + held_L, math.log1p(-share) + other_L)


def at_all_orders(whole_L: np.ndarray) -> np.ndarray:
    """κ at ``ORDERS_F`` from κ at the whole orders: straight lines, from 0 at 1."""
    exact_L = np.append(0.0, whole_L[1:])
    return np.interp(ORDERS_F, WHOLE_L, exact_L)


def delta_of(kappa_F: np.ndarray, epsilon_N: np.ndarray) -> np.ndarray:
    """δ, (N,), at each epsilon ≥ 0, of what has at most this κ at ``ORDERS_F``."""
    constant_F = kappa_F - np.log(ORDERS_F - 1.0) + ORDERS_F * np.log1p(-1.0 / ORDERS_F)
    best_N = np.full(len(epsilon_N), np.inf)
    for order, constant in zip(ORDERS_F, constant_F, strict=True):
        np.minimum(best_N, constant - (order - 1.0) * epsilon_N, out=best_N)
    return np.exp(np.minimum(best_N, 0.0))


def dominating(curve: Callable[[np.ndarray], np.ndarray], interval: float) -> DiscretePMF:
    """The loss of a pair that costs at least as much as a curve says; see the top of this file.

    ``curve`` gives δ, (N,), at each of N epsilons ≥ 0, for neighbours in either order. It may be
    any upper bound; what rises in it is not used.
    """
    cells = max(1, round(_STEP / interval))
    index_N = cells * np.arange(math.ceil(_MOST / (cells * interval)) + 1)
    delta_N = np.minimum(1.0, np.minimum.accumulate(curve(index_N * interval)) * _UPWARD)
    last = int(np.argmax(delta_N <= max(_NOTHING, float(delta_N.min()))))
    index_N, delta_N = index_N[: last + 1], delta_N[: last + 1]
    alpha_N = np.exp(index_N * interval)
    delta_N[0] = min(delta_N[0], float(((2 * delta_N + alpha_N - 1) / (alpha_N + 1)).min()))
    kinks = _hull(alpha_N, delta_N)
    index_N, alpha_N, delta_N = index_N[kinks], alpha_N[kinks], delta_N[kinks]
    slope_N = np.append(np.diff(delta_N) / np.diff(alpha_N), 0.0)
    above_N = np.maximum(alpha_N[1:] * np.diff(slope_N), 0.0)
    middle = max(0.0, 2.0 * float(slope_N[0]) + 1.0 - float(delta_N[0]))
    mass_N = np.concatenate([(above_N / alpha_N[1:])[::-1], [middle], above_N])
    place_N = np.concatenate([-index_N[:0:-1], [0], index_N[1:]])
    kept_N = mass_N >= _LEAST_MASS
    lost = float(mass_N[~kept_N].sum())
    return DiscretePMF(place_N[kept_N], mass_N[kept_N], float(delta_N[-1]) + lost)


def _hull(alpha_N: np.ndarray, delta_N: np.ndarray) -> list[int]:
    """The corners of the largest convex function that is nowhere above these points."""
    corners: list[int] = []
    for place in range(len(alpha_N)):
        while len(corners) > 1:
            first, middle = corners[-2:]
            before = (delta_N[middle] - delta_N[first]) / (alpha_N[middle] - alpha_N[first])
            after = (delta_N[place] - delta_N[middle]) / (alpha_N[place] - alpha_N[middle])
            if before < after:
                break
            corners.pop()
        corners.append(place)
    return corners
