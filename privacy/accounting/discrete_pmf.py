"""The privacy loss of one release on a grid: what a mechanism's cost becomes before it is composed.

One direction of a release is how likely each loss log P/Q is under P, discretized so that it errs
towards a larger epsilon, with what is cut off at an infinite loss. An event gives one for a user
who is removed and one for a user who is added, or one where the two agree.

Legend: N cells of one distribution.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Of one operation on floating-point numbers, relatively.
ROUNDING = 2.0**-53
#: What underflows, wherever it is left out.
LOST = 1e-280
_LEAST_MASS = 1e-200  # what is less goes to infinity, so that no tilt overflows
_MOST_SURPLUS = 0.01  # more than one in all: what was rounded, if it is no mistake


@dataclass(frozen=True, eq=False)
class DiscretePMF:
    """One direction of one release: ``mass_N`` at ``index_N`` steps (rising), and at infinity."""

    index_N: np.ndarray
    mass_N: np.ndarray
    infinite: float

    @classmethod
    def dense(cls, lowest: int, mass_N: np.ndarray, infinite: float) -> "DiscretePMF":
        """Mass at every step from ``lowest`` on; ValueError if it is no distribution."""
        sound = bool((mass_N >= 0.0).all()) and mass_N.sum() <= 1.0 + _MOST_SURPLUS
        if not (sound and 0.0 <= infinite <= 1.0):
            raise ValueError("not a distribution of privacy losses")
        kept_N = mass_N >= _LEAST_MASS
        if not kept_N.all():
            infinite += float(mass_N[~kept_N].sum()) + (LOST if mass_N[~kept_N].any() else 0.0)
        return cls(lowest + np.flatnonzero(kept_N), mass_N[kept_N], float(infinite))

    @classmethod
    def worst(cls, epsilon: float, delta: float, interval: float) -> "DiscretePMF":
        """The worst privacy loss of any (``epsilon``, ``delta``)-DP mechanism (Kairouz et al.
        2015), rounded up.

        Randomized response with two outcomes, or an infinite loss.
        """
        low, high = math.ceil(-epsilon / interval), math.ceil(epsilon / interval)
        likely = (1.0 - delta) / (1.0 + math.exp(-epsilon))
        rare = (1.0 - delta) / (1.0 + math.exp(epsilon))
        if delta == 1.0:
            return cls(np.zeros(0, np.int64), np.zeros(0), 1.0)
        if low == high:
            return cls(np.array([low]), np.array([likely + rare]), delta)
        return cls(np.array([low, high]), np.array([rare, likely]), delta)

    def moved_to_infinity(self, mass: float) -> "DiscretePMF":
        """With ``mass`` taken from the lowest losses and put at an infinite one.

        Dominates whatever costs at most ``mass`` more than this at every α: see the end of the
        proof in ``privacy.accounting.grid_noise``.
        """
        gone_N = np.minimum(np.cumsum(self.mass_N), mass)
        left_N = np.maximum(self.mass_N - np.diff(gone_N, prepend=0.0), 0.0)
        kept_N = left_N >= _LEAST_MASS
        lost = float(left_N[~kept_N].sum())
        infinite = min(self.infinite + mass + lost, 1.0 - ROUNDING)
        return DiscretePMF(self.index_N[kept_N], left_N[kept_N], infinite)

    @property
    def surplus(self) -> float:
        """The excess of the total mass over one, which is too pessimistic but never wrong.

        Nearly nothing where ``between`` made them; what another event rounds up shows here.
        """
        return max(0.0, float(self.mass_N.sum()) + self.infinite - 1.0)

    @property
    def variance(self) -> float:
        """Return the variance of the finite losses, in squared steps."""
        total = float(self.mass_N.sum())
        distance_N = self.index_N - float(self.index_N @ self.mass_N) / total
        return float(distance_N**2 @ self.mass_N) / total

    @cached_property
    def log_mass_N(self) -> np.ndarray:
        """The logarithms of the masses."""
        return np.log(self.mass_N)

    def log_moment(self, tilt: float) -> float:
        """log Σ mass · e^(tilt · index), without what is at infinity."""
        exponent_N = self.log_mass_N + tilt * self.index_N
        largest = float(exponent_N.max())
        return largest + math.log(float(np.exp(exponent_N - largest).sum()))

    def merged(self, factor: int, interval: float) -> "DiscretePMF":
        """On a grid of ``factor`` times this one's ``interval``, erring on the safe side.

        Each mass goes to the two coarse cells around it, with the same sums of mass and of
        mass · e^(−loss): a spread, which dominates (Doroshenko et al. 2022).
        """
        cell_N, rest_N = np.divmod(self.index_N, factor)
        whole = math.expm1(-factor * interval)
        up_N = np.expm1(-rest_N * interval) / whole
        down_N = np.exp(-rest_N * interval) * np.expm1((rest_N - factor) * interval) / whole
        first = int(cell_N[0])
        mass_M = np.bincount(cell_N - first, self.mass_N * down_N)
        mass_M = np.append(mass_M, 0.0)
        mass_M[1:] += np.bincount(cell_N - first, self.mass_N * up_N)
        kept_M = mass_M > 0.0
        index_M = first + np.flatnonzero(kept_M)
        upward = 1.0 + (2 * factor + 40) * ROUNDING
        return DiscretePMF(index_M, mass_M[kept_M] * upward, self.infinite)


def between(
    upper_N: np.ndarray,
    lower_N: np.ndarray,
    lowest: int,
    interval: float,
    *,
    below: float = 0.0,
    cut: float = 0.0,
) -> DiscretePMF:
    """The loss of what has ``upper_N`` of P and ``lower_N`` of Q from each of N losses to the next.

    The losses rise from ``lowest`` in steps of ``interval``; after the last comes an infinite one,
    where ``cut`` is added. ``below`` is of P, at losses smaller than the second. What lies between
    two losses is divided between them so that the totals under P and under Q stay as they are,
    which dominates: Doroshenko et al. 2022, "connect the dots", written without its differences of
    nearly equal numbers.
    """
    # A factor that would overflow is cut off: where its mass is 0, this errs on the safe side.
    ratio_N = np.exp(np.minimum((lowest + np.arange(len(upper_N))) * interval, 700.0))
    share_N = np.full(len(upper_N), -math.expm1(-interval))
    share_N[-1] = 1.0
    to_next_N = np.clip((upper_N - ratio_N * lower_N) / share_N, 0.0, upper_N)
    mass_N = upper_N - to_next_N
    mass_N[1:] += to_next_N[:-1]
    mass_N[min(1, len(mass_N) - 1)] += below
    # Just short of one: something must be left to compose.
    return DiscretePMF.dense(lowest, mass_N, min(float(to_next_N[-1]) + cut, 1.0 - ROUNDING))
