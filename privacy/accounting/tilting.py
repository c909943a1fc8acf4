"""Choose the tilt of a composition and the losses to compute; no choice can make the result wrong.

The moments of an outline with about a thousand points stand for those of the whole distribution;
whatever is chosen by them, the bound that ``privacy.accounting.convolution`` adds is about what was
computed.

Legend: N cells of one distribution, O points of its outline, L candidates.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.accounting.convolution import Parts
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF

#: Cells of an outline are wider by this part of their distance from the mean.
_GROWTH = 0.02
#: The logarithm of how little of the tilted distribution may lie outside the window.
REACH = 40.0
_CANDIDATES = 80


@dataclass(frozen=True, eq=False)
class Outline:
    """Few points with nearly the moments of ``parts``: losses and logarithms of masses."""

    points: tuple[tuple[np.ndarray, np.ndarray, int], ...]
    interval: float

    @classmethod
    def of(cls, parts: Parts, interval: float) -> "Outline":
        """The outline of a composition, in steps of ``interval``."""
        return cls(tuple((*_outline(m, interval), times) for m, times in parts), interval)

    def log_moments(self, order_L: np.ndarray) -> np.ndarray:
        """log E[e^(order · loss)] of the composition for each order; (L,) float64."""
        total_L = np.zeros(len(order_L))
        for loss_O, log_mass_O, times in self.points:
            exponent_LO = order_L[:, None] * loss_O + log_mass_O
            largest_L = exponent_LO.max(axis=1)
            sum_L = np.exp(exponent_LO - largest_L[:, None]).sum(axis=1)
            total_L += times * (largest_L + np.log(sum_L))
        return total_L

    def order_for_delta(self, delta: float, steps: int) -> float:
        """λ with the least bound on epsilon at ``delta``, of ``steps`` neighbours in a row.

        δ(ε) ≤ e^(K − λε) λ^λ/(λ + 1)^(λ+1), times e^((steps − 1) ε) for more than one step.
        """
        base = steps - 1.0

        def bound(order_L: np.ndarray) -> np.ndarray:
            at_L = self.log_moments(order_L) + _hockey_stick(order_L) - math.log(delta)
            return at_L / (order_L - base)

        return self._least(bound, base)

    def order_for_epsilon(self, epsilon: float) -> float:
        """λ with the least bound on delta at ``epsilon``."""

        def bound(order_L: np.ndarray) -> np.ndarray:
            return self.log_moments(order_L) + _hockey_stick(order_L) - order_L * epsilon

        return self._least(bound, 0.0)

    def reach(self, order: float) -> tuple[float, float]:
        """The orders that show best where the distribution tilted by ``order`` begins and ends.

        But for e⁻⁴⁰ of it, by Markov's inequality; ``composition`` computes where.
        """
        step_L = np.geomspace(1e-6, 1.0 / self.interval, _CANDIDATES)
        here = float(self.log_moments(np.array([order]))[0])
        up_L = (self.log_moments(order + step_L) - here + REACH) / step_L
        down_L = -(self.log_moments(order - step_L) - here + REACH) / step_L
        return (
            order - float(step_L[int(np.argmax(down_L))]),
            order + float(step_L[int(np.argmin(up_L))]),
        )

    def _least(self, bound: Callable[[np.ndarray], np.ndarray], base: float) -> float:
        low, high = math.log(1e-6), math.log(1.0 / self.interval)
        for _ in range(2):
            candidates_L = np.linspace(low, high, _CANDIDATES // 2)
            value_L = bound(base + np.exp(candidates_L))
            best, step = candidates_L[int(np.argmin(value_L))], candidates_L[1] - candidates_L[0]
            low, high = best - step, best + step
        return base + math.exp(best)


def _hockey_stick(order_L: np.ndarray) -> np.ndarray:
    """log max_x e^(−λx)(1 − e^(−x)) = λ log λ − (λ + 1) log(λ + 1)."""
    return -order_L * np.log1p(1.0 / order_L) - np.log1p(order_L)


def _outline(masses: DiscretePMF, interval: float) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring cells taken together at their mean, finely near the mean of all."""
    index_N, mass_N = masses.index_N, masses.mass_N
    middle = float(index_N @ mass_N) / float(mass_N.sum())
    distance_N = index_N - middle
    spread = math.sqrt(float((distance_N**2) @ mass_N) / float(mass_N.sum())) + 1.0
    # Cells of about equal width at first, then of equal ratio.
    group_N = np.floor(np.arcsinh(distance_N / (2.0 * spread)) / _GROWTH)
    starts_O = np.flatnonzero(np.diff(group_N, prepend=-math.inf))
    mass_O = np.add.reduceat(mass_N, starts_O)
    loss_O = np.add.reduceat(mass_N * index_N, starts_O) / mass_O * interval
    return loss_O, np.log(mass_O)
