"""A distribution of privacy losses that dominates: what it costs at any epsilon, or any delta.

Legend: N cells, E values of epsilon.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_U = 2.0**-53
#: What all mass adds up to, rounded up.
_ALL = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class PrivacyLossDistribution:
    """Mass ``mass_N[i]`` at the loss ``start + i * interval``, and ``infinite`` at infinity.

    Formal guarantee (given by the code that builds one): it dominates a pair of output
    distributions P, Q, in that P(S) − αQ(S) ≤ H_α = infinite + Σ mass · (1 − α e^(−loss))₊ for
    every event S and every α ≥ 0. Masses add up to at least one. Post-processing, mixing and
    composing keep the order, so that whatever is made of this distribution bounds what is made of P
    and Q. For neighbours in the other order there is another ``PrivacyLossDistribution``; where one
    is made from this one, by exchanging the roles of P and Q (mass · e^(−loss) at −loss), it
    dominates as well.
    """

    start: float
    interval: float
    mass_N: np.ndarray
    infinite: float

    def __post_init__(self) -> None:
        if not (self.interval > 0.0 and len(self.mass_N) > 0 and self.infinite >= 0.0):
            raise ValueError("not a distribution of privacy losses")

    @cached_property
    def losses_N(self) -> np.ndarray:
        """The loss of each cell; (N,) float64."""
        return self.start + np.arange(len(self.mass_N)) * self.interval

    def delta(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon``, rounded up; at most 1."""
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilon_E: np.ndarray) -> np.ndarray:
        """``delta`` at each of ``epsilon_E``; (E,) float64."""
        ends = np.abs(self.losses_N[[0, -1]]).max()
        epsilon_E = epsilon_E - 8.0 * _U * (np.abs(epsilon_E) + ends)  # the other way of rounding
        # Linear in e^epsilon between cells, down to 1 at 0 and beyond the last cell constant.
        at_E = np.searchsorted(self.losses_N, epsilon_E)
        left_E, right_E = self._known_N[at_E], self._known_N[at_E + 1]
        above_E = self.start + at_E * self.interval - epsilon_E
        step_E = np.where(at_E == 0, math.inf, self.interval)
        share_E = np.expm1(-np.maximum(above_E, 0.0)) / np.expm1(-step_E)
        inside_E = right_E + (left_E - right_E) * share_E
        return np.minimum(1.0, np.where(at_E == len(self.mass_N), right_E, inside_E))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon ≥ 0 at ``delta``, rounded up; infinite where there is none."""
        if self.infinite * self._upward > delta:
            return math.inf
        at_N = self._deltas_N  # falls, and is linear in e^epsilon between cells
        last = int(np.searchsorted(-at_N, -delta))  # the first cell where it is at most delta
        if last == 0:
            below, step = _ALL, math.inf  # down to epsilon = −inf, where it is all mass
        else:
            below, step = float(at_N[last - 1]), self.interval
        if delta >= below:
            return 0.0
        above = float(at_N[last]) if last < len(at_N) else self.infinite * self._upward
        # e^ε = e^left + (e^right − e^left) · share, seen from the right end.
        left_out = (delta - above) / (below - above)
        right = self.start + last * self.interval
        result = right + math.log1p(math.expm1(-step) * left_out)
        return max(0.0, result + 8.0 * _U * (abs(result) + abs(right) + 1.0))

    @cached_property
    def _deltas_N(self) -> np.ndarray:
        """``delta`` at the loss of every cell, rounded up; it falls."""
        above_N = np.append(np.cumsum(self.mass_N[:0:-1])[::-1], 0.0)  # the mass beyond each cell
        # δ(l) = (1 − a) Σ_i (mass beyond cell i) a^(i − l) with a = e^−d: no differences.
        # By doubling: a sum over 2^k cells is one over half of them, and one over the half beyond.
        sums_N = -math.expm1(-self.interval) * above_N
        reach = 1
        while reach < len(sums_N):
            sums_N[:-reach] += math.exp(-self.interval * reach) * sums_N[reach:]
            reach *= 2
        return (sums_N + self.infinite) * self._upward

    @cached_property
    def _known_N(self) -> np.ndarray:
        """All mass, ``_deltas_N``, and what is left beyond the last cell."""
        return np.concatenate([[_ALL], self._deltas_N, [self.infinite * self._upward]])

    @property
    def _upward(self) -> float:
        """More than what sums of as many positive terms may lose."""
        return 1.0 + 8.0 * (len(self.mass_N) + 8) * _U
