"""The privacy loss distribution that a bound on δ at every ε comes to.

Let f(ε) ≥ H_{e^ε}, for both orders of two neighbours, at some ε_0 = 0 < … < ε_n. H_α(P‖Q) is convex
in α, and H_α(P‖Q) = 1 − α + α H_{1/α}(Q‖P), so

- H_1 ≤ (2 f(ε_k) + α_k − 1) / (α_k + 1) with α_k = e^{ε_k}, for each k: between 1/α_k and α_k it
  lies below a straight line;
- the largest convex function that is nowhere above f at these points bounds H for α ≥ 1, and its
  mirror image for α < 1; beyond the last point the last value does.

Both together are H of a distribution on the losses ±ε_k and ∞: with slopes s_k of the piece after
α_k its masses are α_k (s_k − s_{k−1}) at ε_k, e^{−ε_k} times as much at −ε_k, 2 s_0 + 1 − f(0) at
0, and f(ε_n) at infinity. It dominates, and such pairs compose (Zhu et al. 2022, Theorem 10).

Legend: N points of a curve.
"""

import numpy as np

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.mechanisms.hold_out import Profile

#: More than rounding takes from a curve, relatively.
_UPWARD = 1.0 + 1e-9
#: Steps of a curve, in nats; where it ends; what is nothing at its end.
_STEP, _MOST, _NOTHING = 0.01, 100.0, 1e-25
_LEAST_MASS = 1e-200


def dominating(curve: Profile, interval: float) -> DiscretePMF:
    """The loss of a pair that costs at least as much as a curve says; see the top of this file.

    ``curve`` gives δ at each ε ≥ 0, for neighbours in either order. It may be any upper bound; it
    is used as far as it falls.
    """
    index_N, delta_N = _points(curve, interval)
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


def _points(curve: Profile, interval: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps of ``interval``, (N,), and δ at each, rounded up, (N,), to where it falls no more."""
    cells = max(1, round(_STEP / interval))
    index, delta = [0], [min(1.0, curve(0.0) * _UPWARD)]
    while index[-1] * interval < _MOST and delta[-1] > _NOTHING:
        after = index[-1] + cells
        value = min(1.0, curve(after * interval) * _UPWARD)
        if value >= delta[-1] and delta[-1] < 1.0:
            break
        index.append(after)
        delta.append(value)
    return np.array(index), np.array(delta)


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
