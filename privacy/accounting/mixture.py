"""The cost of sampling examples instead of users: a mixture of Gaussians.

When every kept example of a user enters a round by a coin of its own, the user moves the noisy sum
by as many clipped gradients as coins came up: a Gaussian whose mean is Binomial(G, p). The
hockey-stick divergence between that mixture and the centred Gaussian is the exact cost of a round
(Charles et al. 2024, Theorem 1 and Theorem 3; Choquette-Choo et al. 2024, Lemma 4.5), in both
directions, for a user who is added or removed. No such statement is known for a replaced user.

``dp_accounting`` has the same distribution (``MixtureOfGaussiansDpEvent``) and is the oracle in the
tests, but takes seconds; here the grid is inverted and integrated as arrays. In units of the noise
the privacy loss l(z) = log sum_k w_k exp(c_k z - c_k^2/2), with c_k = k/sigma, is increasing and
convex, so Newton's method inverts it on the whole grid at once. Between neighbouring grid points
the mass is divided so that the totals under both distributions stay as they are: Doroshenko et al.
2022, "connect the dots", written without its differences of nearly equal numbers.

What is cut off is never forgotten. Counts so unlikely that they hold less than ``_TAIL`` together
are taken out of the mixture without renormalising; H(mixture || Gaussian) grows by at most their
mass, which is added to the infinite loss, and H(Gaussian || mixture) can only be overestimated. The
ends of the z axis go to the next larger loss, or to infinity.

Legend: N grid points (N-1 bins between them), K counts kept in the mixture.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, special, stats

from murmuration.privacy.adjacency import Adjacency, Unsupported

#: Probability that may go to an infinite loss at each cut, each round.
_TAIL = 0.5 * math.exp(-50)
#: The same as a quantile of the standard normal distribution.
_FAR = -float(special.ndtri(_TAIL))
#: Losses that span more than this, 100 at the finest spacing, are infinite beyond it.
_MOST_POINTS = 1_000_000
#: Elements of an (N, K) array that are held at a time.
_BLOCK = 2**18


@dataclass(frozen=True)
class MixtureGaussian:
    """A Gaussian sum of clipped examples, each sampled with ``probability`` by a coin of its own.

    ``noise_multiplier`` is the standard deviation over the clip norm of one *example*;
    ``group_size`` the most examples that any user has kept, an enforced cap. With a group size of 1
    it is the same as ``PoissonGaussian``. Guarantee: the loss of one user who is added, removed or
    zeroed out, attained in the worst case (Charles et al. 2024, Theorem 1).
    """

    kind: ClassVar[str] = "mixture-gaussian"
    noise_multiplier: float
    group_size: int
    probability: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0.0):
            raise ValueError(f"the noise multiplier must be positive, got {self.noise_multiplier}")
        if not (type(self.group_size) is int and self.group_size >= 1):
            raise ValueError(f"the group size must be a whole number ≥ 1, got {self.group_size!r}")
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(f"the sampling probability must be in (0, 1], got {self.probability}")

    def loss(self, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
        """The privacy loss distribution of one round, discretized pessimistically to ``interval``.

        Raises:
            Unsupported: under ``replace`` and ``replace-labels``.
        """
        if adjacency.vectors_changed != 1:
            raise Unsupported(
                "sampling examples (ELS, the mixture of Gaussians) has no guarantee under "
                f"{adjacency}: nothing is proved for a user whose examples are replaced; "
                "use add-remove or zero-out"
            )
        return _distribution(self.noise_multiplier, self.group_size, self.probability, interval)


@dataclass(frozen=True, eq=False)
class _Mixture:
    """sum_k ``weights_K`` N(``centres_K``, 1), less than a distribution by the mass ``cut``."""

    centres_K: np.ndarray
    weights_K: np.ndarray
    cut: float

    @classmethod
    def binomial(cls, sigma: float, trials: int, probability: float) -> "_Mixture":
        """Means Binomial(trials, probability) / sigma, without the counts that never happen."""
        weights = np.asarray(stats.binom.pmf(np.arange(trials + 1), trials, probability))
        rarest_first = np.argsort(weights, kind="stable")
        unlikely = rarest_first[np.cumsum(weights[rarest_first]) < _TAIL]
        cut = float(weights[unlikely].sum())
        kept_K = np.delete(np.arange(trials + 1), unlikely)
        return cls(kept_K / sigma, weights[kept_K], cut)

    def loss(self, z_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logarithm of mixture over standard Gaussian density at ``z_N``, and its slope."""
        constants_K = np.log(self.weights_K) - self.centres_K**2 / 2
        loss_N, slope_N = np.empty_like(z_N), np.empty_like(z_N)
        for at in _blocks(len(z_N), len(self.centres_K)):
            terms = z_N[at, None] * self.centres_K + constants_K
            largest = terms.max(axis=1)
            np.exp(terms - largest[:, None], out=terms)
            total = terms.sum(axis=1)
            loss_N[at] = largest + np.log(total)
            slope_N[at] = terms @ self.centres_K / total
        return loss_N, slope_N

    def masses(self, z_N: np.ndarray) -> tuple[float, np.ndarray, float]:
        """The mass before the first point, between neighbouring points, and after the last.

        Each from the tail that is small there: differences of numbers near one would be rounded.
        """
        middle = int(np.searchsorted(z_N[:-1], self.centres_K @ self.weights_K))
        below = self._tail(z_N[: middle + 1], 1.0)
        above = self._tail(z_N[middle:], -1.0)
        return float(below[0]), np.concatenate([np.diff(below), -np.diff(above)]), float(above[-1])

    def _tail(self, z_N: np.ndarray, side: float) -> np.ndarray:
        """The mass below (``side`` 1) or above (-1) each point."""
        mass_N = np.empty_like(z_N)
        for at in _blocks(len(z_N), len(self.centres_K)):
            distance = (z_N[at, None] - self.centres_K) * side
            mass_N[at] = special.ndtr(distance) @ self.weights_K
        return mass_N

    def far_end(self) -> float:
        """Where the mass above falls to ``_TAIL``, to within 0.001 on the safe side."""

        def excess(z: float) -> float:
            above = float(self._tail(np.array([z]), -1.0)[0])
            return math.log(max(above, 1e-300) / _TAIL)

        end = self.centres_K[-1] + _FAR + 1.0
        return float(optimize.brentq(excess, 0.0, end, xtol=1e-4)) + 1e-3  # type: ignore[arg-type]


_NULL = _Mixture(np.zeros(1), np.ones(1), 0.0)


def _blocks(length: int, width: int) -> list[slice]:
    step = max(1, _BLOCK // width)
    return [slice(start, start + step) for start in range(0, length, step)]


@functools.lru_cache(maxsize=16)
def _distribution(
    sigma: float, trials: int, probability: float, interval: float
) -> pld.PrivacyLossDistribution:
    mixture = _Mixture.binomial(sigma, trials, probability)
    if mixture.centres_K[-1] == 0.0:  # so rarely sampled that all of it was cut
        removed = pld_pmf.SparsePLDPmf({0: 1.0 - mixture.cut}, interval, mixture.cut, True)
        return pld.PrivacyLossDistribution(removed)
    lowest, z_N = _grid(mixture, interval)
    before, mixture_bins, after = mixture.masses(z_N)
    null_before, null_bins, _ = _NULL.masses(z_N)
    loss_N = (lowest + np.arange(len(z_N))) * interval
    # A factor that would overflow is cut off: where its mass is 0, this errs on the safe side.
    ratio_N, inverse_N = np.exp(np.minimum(loss_N, 700.0)), np.exp(np.minimum(-loss_N, 700.0))
    shrink = -math.expm1(-interval)

    # Removed: the observed value is from the mixture, the loss is l(z).
    upper = (mixture_bins - ratio_N[:-1] * null_bins) / shrink
    upper = np.clip(upper, 0.0, mixture_bins)
    remove_N = np.zeros(len(z_N))
    remove_N[:-1] += mixture_bins - upper
    remove_N[1:] += upper
    remove_N[1] += before
    # Just short of one, which the library's composition cannot take.
    infinite = min(after + mixture.cut, 1.0 - 2.0**-53)
    removed = pld_pmf.DensePLDPmf(interval, lowest, remove_N, infinite, True)

    # Added: the observed value is from the Gaussian, the loss is -l(z); large z are of no interest.
    last = min(len(z_N) - 1, int(np.searchsorted(z_N, _FAR)))
    upper = (null_bins - inverse_N[1:] * mixture_bins)[:last] / shrink
    upper = np.clip(upper, 0.0, null_bins[:last])
    add_N = np.zeros(last + 1)
    add_N[:-1] += upper
    add_N[1:] += null_bins[:last] - upper
    add_N[-2] += special.ndtr(-z_N[last])
    added = pld_pmf.DensePLDPmf(interval, -(lowest + last), add_N[::-1].copy(), null_before, True)
    return pld.PrivacyLossDistribution(removed, added)


def _grid(mixture: _Mixture, interval: float) -> tuple[int, np.ndarray]:
    """The first multiple of ``interval``, and where the loss passes each multiple from there on.

    The two outer points stand where the axis is cut off, inside the outer bins; the first is minus
    infinity where the loss is bounded from below inside its bin.
    """
    table_z = np.linspace(-_FAR, mixture.far_end(), 4096)
    table_loss, _ = mixture.loss(table_z)
    if table_loss[-1] - table_loss[0] > _MOST_POINTS * interval:
        most = table_loss[0] + _MOST_POINTS * interval
        table_z = np.linspace(-_FAR, np.interp(most, table_loss, table_z), 4096)
        table_loss, _ = mixture.loss(table_z)
    lowest = math.floor(table_loss[0] / interval)
    highest = max(lowest + 1, math.ceil(table_loss[-1] / interval))
    inner = np.arange(lowest + 1, highest) * interval
    z = np.interp(inner, table_loss, table_z)
    for _ in range(60):  # convex and increasing: Newton's method cannot fail
        loss, slope = mixture.loss(z)
        excess = loss - inner
        if np.abs(excess).max(initial=0.0) <= 1e-6 * interval:
            break
        z -= excess / slope
    bounded = mixture.centres_K[0] == 0.0 and lowest * interval <= math.log(mixture.weights_K[0])
    return lowest, np.concatenate([[-math.inf if bounded else -_FAR], z, [table_z[-1]]])
