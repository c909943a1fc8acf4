"""The privacy loss of a sampled Gaussian sum: a mixture of Gaussians, for users and examples.

A user who is sampled as a whole moves the noisy sum by one clipped vector, or not at all. When
every kept example of a user is sampled independently, the user moves it by as many clipped
gradients as are sampled: a Gaussian whose mean is Binomial(G, p). The hockey-stick divergence
between that mixture and the centred Gaussian is the exact cost of a round (Charles et al. 2024,
Theorem 1 and Theorem 3; Choquette-Choo et al. 2024, Lemma 4.5), in both directions, for a user who
is added or removed. One who is sampled as a whole and is replaced moves the sum one way in one
world and the other way in the other (Koskela et al. 2020; Zhu et al. 2022); where examples are
replaced no such statement is known.

``dp_accounting`` has the same distributions (``GaussianDpEvent``, ``MixtureOfGaussiansDpEvent``)
and is the oracle in the tests, but takes seconds; here the grid is inverted and integrated as
arrays. In units of the noise the privacy loss l(z) = log sum_k w_k exp(c_k z - c_k^2/2), with
c_k = k/sigma, is increasing and convex, so Newton's method inverts it on the whole grid at once;
for one draw the inverse has a closed form. Then ``masses.between`` divides the mass.

What is cut off is never forgotten. Counts so unlikely that they hold less than ``_TAIL`` together
are taken out of the mixture without renormalising; H(mixture || Gaussian) grows by at most their
mass, which is added to the infinite loss, and H(Gaussian || mixture) can only be overestimated. The
ends of the z axis go to the next larger loss, or to infinity.

Legend: N grid points, B = N - 1 bins between them, K counts kept in the mixture.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF, between
from murmuration.privacy.accounting.event import check_gaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import check_event

#: Probability that may go to an infinite loss at each cut, each round.
_TAIL = 0.5 * math.exp(-50)
#: The same as a quantile of the standard normal distribution.
_FAR = -float(special.ndtri(_TAIL))
#: Losses that span more than this, 100 at the finest spacing, are infinite beyond it.
MOST_POINTS = 1_000_000
_MOST_STEPS = 2**53
#: The same where the inverse has a closed form: 1,600.
MOST_OF_ONE_COIN = 16_000_000
#: Elements of an (N, K) array that are held at a time.
_BLOCK = 2**18


@dataclass(frozen=True)
class PoissonGaussian:
    """A Gaussian sum over a Poisson-sampled cohort.

    ``noise_multiplier`` is the standard deviation over the clip norm under *every* relation: for
    ``replace`` the factor two is in the loss.
    """

    kind: ClassVar[str] = "poisson-gaussian"
    probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, self.probability)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """See ``Event.loss``."""
        return subsampled_gaussian_pmf(
            self.probability,
            self.noise_multiplier,
            swapped=adjacency.vectors_changed == 2,
            interval=interval,
        )


@dataclass(frozen=True)
class MixtureGaussian:
    """A Gaussian sum of clipped examples, each sampled independently with ``probability``.

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
        check_gaussian(self.noise_multiplier, self.probability, self.group_size)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The privacy loss of one round, discretized pessimistically to ``interval``.

        Raises:
            Unsupported: under ``replace`` and ``replace-labels``.
        """
        check_event(self.kind, adjacency)
        mixture = _Mixture.binomial(self.noise_multiplier, self.group_size, self.probability)
        if mixture.centres_K[-1] == 0.0:  # so rarely sampled that all of it was cut
            return (DiscretePMF.dense(0, np.array([1.0 - mixture.cut]), mixture.cut),)
        lowest, z_N = _grid(mixture, interval)
        return (
            mixture.removed(_NULL, lowest, z_N, interval, exact=False),
            mixture.added(lowest, z_N, interval, exact=False),
        )


@dataclass(frozen=True, eq=False)
class _Mixture:
    """sum_k ``weights_K`` N(``centres_K``, 1), less than a distribution by the mass ``cut``."""

    centres_K: np.ndarray
    weights_K: np.ndarray
    cut: float

    @classmethod
    def binomial(cls, sigma: float, trials: int, probability: float) -> "_Mixture":
        """Means Binomial(trials, probability) / sigma, without the counts that never happen."""
        from scipy import stats  # slow to import, only for this

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

    def removed(
        self, other: "_Mixture", lowest: int, z_N: np.ndarray, interval: float, *, exact: bool
    ) -> DiscretePMF:
        """The loss where the observed value is from here, and not from ``other``.

        ``exact`` says that the loss at the last of ``z_N`` is a whole number of steps, too; where
        it is not, all that lies beyond is infinite.
        """
        before, upper_B, after = self.masses(z_N)
        _, lower_B, other_after = other.masses(z_N)
        upper_N, lower_N = np.append(upper_B, after), np.append(lower_B, other_after)
        if not exact:
            upper_N[-1], lower_N[-1] = 0.0, 0.0
        cut = self.cut + (0.0 if exact else after)
        return between(upper_N, lower_N, lowest, interval, below=before, cut=cut)

    def added(self, lowest: int, z_N: np.ndarray, interval: float, *, exact: bool) -> DiscretePMF:
        """The loss where the observed value is from the standard Gaussian, and not from here.

        It is −l(z): small z cost most, and large ones are of no interest. ``exact`` is about the
        first point.
        """
        before, upper_B, _ = _NULL.masses(z_N)
        mixture_before, lower_B, _ = self.masses(z_N)
        last = min(len(z_N) - 1, int(np.searchsorted(z_N, _FAR)))
        upper_N = np.append(upper_B[:last][::-1], before if exact else 0.0)
        lower_N = np.append(lower_B[:last][::-1], mixture_before if exact else 0.0)
        rest = float(special.ndtr(-z_N[last]))
        cut = 0.0 if exact else before
        return between(upper_N, lower_N, -(lowest + last), interval, below=rest, cut=cut)

    def far_end(self) -> float:
        """The point where the mass above falls to ``_TAIL``, to within 0.001 on the safe side."""

        def excess(z: float) -> float:
            above = float(self._tail(np.array([z]), -1.0)[0])
            return math.log(max(above, 1e-300) / _TAIL)

        from scipy import optimize  # as above

        end = self.centres_K[-1] + _FAR + 1.0
        return float(optimize.brentq(excess, 0.0, end, xtol=1e-4)) + 1e-3  # type: ignore[arg-type]


_NULL = _Mixture(np.zeros(1), np.ones(1), 0.0)


def _blocks(length: int, width: int) -> list[slice]:
    step = max(1, _BLOCK // width)
    return [slice(start, start + step) for start in range(0, length, step)]


def subsampled_gaussian_pmf(
    probability: float, noise_multiplier: float, *, swapped: bool, interval: float
) -> tuple[DiscretePMF, ...]:
    """The privacy loss of a sum in which each user is with ``probability``.

    ``noise_multiplier`` is the standard deviation over the length of one user's vector. ``swapped``
    says that a user's vector is exchanged for any other, not for nothing.
    """
    centre = 1.0 / noise_multiplier
    kept_K = (
        np.array([probability]) if probability == 1.0 else np.array([1 - probability, probability])
    )
    sampled = _Mixture(np.array([0.0, centre])[-len(kept_K) :], kept_K, 0.0)
    opposite = _Mixture(-sampled.centres_K, kept_K, 0.0)
    ends = np.array([-_FAR - centre if swapped else -_FAR, _FAR + centre])
    other = opposite if swapped else _NULL
    low, high = sampled.loss(ends)[0] - other.loss(ends)[0]
    lowest = math.floor(low / interval)
    highest = max(lowest + 1, min(math.ceil(high / interval), lowest + MOST_OF_ONE_COIN))
    loss_N = np.arange(lowest, highest + 1) * interval
    with np.errstate(divide="ignore", over="ignore"):  # at the ends of what the loss can be
        if swapped:
            z_N = _whole_of_swapped(loss_N, probability, centre) / centre
        else:
            z_N = centre / 2.0 + _whole(loss_N, probability) / centre
    removed = sampled.removed(other, lowest, z_N, interval, exact=True)
    if swapped or probability == 1.0:  # the same in both orders
        return (removed,)
    return removed, sampled.added(lowest, z_N, interval, exact=True)


def _whole(sampled_N: np.ndarray, probability: float) -> np.ndarray:
    """The loss without sampling whose sampled loss is given: log(1 + (e^l − 1)/q).

    Minus infinity where no loss without sampling is so small, that is, up to log(1 − q).
    """
    if probability == 1.0:
        return sampled_N
    rise_N = np.expm1(np.minimum(sampled_N, 1.0)) / probability
    # Near log(1 − q), as (1 − q)(e^(l − log(1 − q)) − 1)/q: the difference is small, and exact.
    never = math.log1p(-probability)
    left_N = np.expm1(np.clip(sampled_N - never, 0.0, 1.0 - never))
    low_N = np.log(left_N * ((1.0 - probability) / probability))
    # Above one, where e^l could overflow, the same as a sum of logarithms.
    high_N = np.maximum(sampled_N, 1.0)
    above_N = high_N - math.log(probability) + np.log1p(-(1.0 - probability) * np.exp(-high_N))
    middle_N = np.log1p(np.maximum(rise_N, -0.5))
    return np.select([sampled_N > 1.0, rise_N < -0.5], [above_N, low_N], middle_N)


def _whole_of_swapped(loss_N: np.ndarray, probability: float, centre: float) -> np.ndarray:
    """The same for a swap: l/2 + arsinh(sinh(l/2) e^α), e^α = (1/q − 1) e^(c²/2)."""
    half_N = np.abs(loss_N) / 2.0
    if probability == 1.0:
        return loss_N / 2.0
    alpha = 0.5 * centre**2 + math.log1p(-probability) - math.log(probability)
    # The logarithm of what arsinh is of; where it is large, arsinh is next to that and log 2.
    log_N = alpha + half_N + np.log(-np.expm1(-2.0 * half_N)) - math.log(2.0)
    high_N = np.maximum(log_N, 0.0)
    above_N = high_N + np.log1p(np.sqrt(1.0 + np.exp(-2.0 * high_N)))
    below_N = np.arcsinh(np.exp(np.minimum(log_N, 0.0)))
    return np.sign(loss_N) * (half_N + np.where(log_N > 0.0, above_N, below_N))


def _grid(mixture: _Mixture, interval: float) -> tuple[int, np.ndarray]:
    """The first multiple of ``interval``, and where the loss passes each multiple from there on.

    The two outer points stand where the axis is cut off, inside the outer bins; the first is minus
    infinity where the loss is bounded from below inside its bin.
    """
    table_z = np.linspace(-_FAR, mixture.far_end(), 4096)
    table_loss, _ = mixture.loss(table_z)
    if table_loss[-1] - table_loss[0] > MOST_POINTS * interval:
        most = table_loss[0] + MOST_POINTS * interval
        table_z = np.linspace(-_FAR, np.interp(most, table_loss, table_z), 4096)
        table_loss, _ = mixture.loss(table_z)
    lowest = math.floor(table_loss[0] / interval)
    highest = max(lowest + 1, math.ceil(table_loss[-1] / interval))
    if max(-lowest, highest) > _MOST_STEPS:
        raise OverflowError(f"losses from {table_loss[0]:.3g} on are too large to be counted")
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
