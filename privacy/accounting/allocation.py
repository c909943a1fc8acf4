"""What random allocation costs: each user is in exactly one, random, round of each block of b.

Let a block be b rounds, each of which releases a sum of clipped vectors with Gaussian noise of σ
clip norms, and let a user's vector be in the sum of one of them, each with probability 1/b
(Feldman and Shenfeld 2025). With c = 1/σ and independent standard normal y_1 … y_b write

    S = (X_1 + … + X_b) / b,       X_t = exp(c y_t − c²/2),       E X_t = 1.

**The dominating pair.** Q is the distribution of (y_1, …, y_b), and P has density S over it: the
mixture over t of Q with y_t moved by c. Whatever a block releases of somebody who is there, and of
somebody who is not, is made from P and from Q by the same map, round by round: what comes before
round t fixes the direction u and the length ℓ ≤ 1 of the user's vector in it, in clip norms; then
σℓ y_t u, plus independent noise that makes up what is missing of N(0, σ²I), plus the others'
sum, is the release. So the pair dominates, rounds that adapt to earlier ones included, and
blocks compose (Zhu et al. 2022, Theorem 10). A block that is broken off is post-processing of a
whole one. If it is known beforehand that r of its rounds will be run, the user is in none of them
with probability 1 − r/b, and the same holds with S = (X_1 + … + X_r + b − r) / b. Nothing is proved
of a user whose vectors are *replaced*, who would move the sum in two directions.

**On a grid.** For every α ≥ 0

    H_α(P‖Q) = E_Q (S − α)₊,       H_α(Q‖P) = E_Q (1 − αS)₊,

both expectations of convex functions of S. So whatever moves each X, and each sum of X, to the two
grid points around it such that the mean stays increases both: a mean-preserving spread. That is the
only thing that is done here, in sums of positive numbers alone. Where some y_t is larger than
``_FAR`` + c the loss counts as infinite: H changes by no more than the probability of that.
Rounding of S is covered by ``_SLACK``, that of masses by ``_UPWARD``.

Legend: K points of a grid, J and L points of two that are added.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy import special

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import check_gaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.numba_jit import kernel

#: Rounds of a block: beyond, a cohort is a ten-thousandth of the users.
MOST_ROUNDS = 10_000
#: Standard deviations at which the axis is cut off; 1e-21 lies beyond.
_FAR = 9.5
#: Steps of the grid for each standard deviation of what is on it, and where losses are put on cells
#: of ``_COARSE`` or more anyway.
_FINENESS, _FEWER = 120.0, 40.0
_COARSE = 1e-3
#: More than rounding can have moved a loss by, and masses.
_SLACK, _UPWARD = 1e-9, 1.0 + 1e-9
#: Mass below which the grid of a sum may begin late: what is there goes to zero, in part.
_RARE = 1e-24
#: With less noise X is beyond what float64 can square, and the loss counts as infinite.
_LEAST_NOISE = 0.1


@dataclass(frozen=True)
class AllocatedGaussian:
    """A block of ``rounds`` Gaussian sums, in one of which each user is, charged with the first.

    ``noise_multiplier`` is the standard deviation of a round's noise over the clip norm;
    no more than the first ``released`` of its rounds will be run (0 becomes: all).
    Guarantee: the loss of one user who is added, removed or zeroed out, in a whole block.
    """

    kind: ClassVar[str] = "allocated-gaussian"
    rounds: int
    noise_multiplier: float
    released: int = 0

    def __post_init__(self) -> None:
        check_block(self.rounds, self.noise_multiplier)
        if not (type(self.released) is int and 0 <= self.released <= self.rounds):
            raise ValueError(
                f"of {self.rounds} rounds of a block 1 to all are run, got {self.released!r}"
            )
        object.__setattr__(self, "released", self.released or self.rounds)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The privacy loss of a block, discretized pessimistically to ``interval``.

        Raises:
            Unsupported: under ``replace`` and ``replace-labels``.
        """
        if adjacency.vectors_changed != 1:
            raise Unsupported(
                "random allocation has no guarantee under "
                f"{adjacency}: nothing is proved for a user whose vectors are replaced; "
                "use add-remove or zero-out, or Poisson sampling"
            )
        if self.noise_multiplier < _LEAST_NOISE:
            return (DiscretePMF.worst(0.0, 1.0, interval),)
        fineness = _FEWER if interval >= _COARSE else _FINENESS
        mean_K, mass_K = _mean_ratio(self.released, self.noise_multiplier, fineness)
        share, mass_K = self.released / self.rounds, mass_K * _UPWARD
        mean_K = share * mean_K + (1.0 - share)
        zero = float(mass_K[0]) if mean_K[0] == 0.0 else 0.0
        mean_K, mass_K = mean_K[mean_K > 0.0], mass_K[mean_K > 0.0]
        never = float(special.ndtr(-_FAR))  # for a moved y; others have c more to go
        farther = self.rounds * float(special.ndtr(-_FAR - 1.0 / self.noise_multiplier))
        loss_K = np.log(mean_K)
        return (
            DiscretePMF.spread(loss_K + _SLACK, mass_K * mean_K, interval, never + farther),
            DiscretePMF.spread(-loss_K[::-1] + _SLACK, mass_K[::-1], interval, zero + farther),
        )


@dataclass(frozen=True)
class AllocatedLater:
    """A later round of a block, which the block's first has paid for with an ``AllocatedGaussian``.

    A ledger takes it only where that is so: this is a round of the latest block, and nothing was
    charged for it since that began.
    """

    kind: ClassVar[str] = "allocated-later"
    rounds: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_block(self.rounds, self.noise_multiplier)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """None, for certain: it was charged with the first."""
        del adjacency
        return (DiscretePMF.worst(0.0, 0.0, interval),)

    def check_paid(self, round_: int, before: Iterable[tuple[object, int]]) -> None:
        """ValueError unless the latest block ``before``, (event, round), holds this round."""
        before = list(before)
        if round_ in self.latest_block(before)[1]:
            return
        if (self, round_) in before:
            raise ValueError(f"round {round_} of a block a second time")
        raise ValueError(f"round {round_} of a block without the first, which pays")

    def latest_block(self, before: Iterable[tuple[object, int]]) -> tuple[int, frozenset[int]]:
        """Return how many blocks like this one's there were, and the rounds of the latest that it
        pays for and that were not charged yet.

        ``before`` are (event, round) as they were charged.
        """
        blocks, left = 0, set[int]()
        for event, at in before:
            if length := self.paid_by(event):
                blocks, left = blocks + 1, set(range(at + 1, at + length))
            elif event == self:
                left.discard(at)
        return blocks, frozenset(left)

    def paid_by(self, event: object) -> int:
        """Return for how many rounds an event pays: those of such a block, on a grid or not, of
        whose first round it is; 0 for any other event."""
        block = getattr(event, "continuous", event)
        if not isinstance(block, AllocatedGaussian) or block.rounds != self.rounds:
            return 0
        return block.released if block.noise_multiplier == self.noise_multiplier else 0


def blocks_of(rounds: int, noise_multiplier: float, times: int) -> dict[AllocatedGaussian, int]:
    """Return so many ``times`` as blocks of ``rounds``, the last of which may be broken off."""
    whole, left = divmod(times, rounds)
    blocks = {AllocatedGaussian(rounds, noise_multiplier): whole} if whole else {}
    return blocks | ({AllocatedGaussian(rounds, noise_multiplier, left): 1} if left else {})


def check_block(rounds: int, noise_multiplier: float) -> None:
    """ValueError, naming it, for a parameter that is out of range."""
    check_gaussian(noise_multiplier, 1.0)
    if not (type(rounds) is int and 1 <= rounds <= MOST_ROUNDS):
        raise ValueError(f"a block has 1 to {MOST_ROUNDS:,} rounds, got {rounds!r}")


@lru_cache(maxsize=32)
def _mean_ratio(rounds: int, sigma: float, fineness: float) -> tuple[np.ndarray, np.ndarray]:
    """S on a grid that begins at 0: its values, and their probabilities under Q."""
    single = _single(1.0 / sigma, fineness)
    total = single
    for digit in f"{rounds:b}"[1:]:  # twice as many, and one more where the digit says so
        total = _sum(total, total, fineness)
        if digit == "1":
            total = _sum(total, single, fineness)
    sum_K, mass_K = total
    return sum_K / rounds, mass_K


def _single(centre: float, fineness: float) -> tuple[np.ndarray, np.ndarray]:
    """X where y ≤ ``_FAR`` + c: each piece of the axis at its two ends, with the same mean."""
    ends_K = np.linspace(-_FAR, _FAR + centre, math.ceil((2 * _FAR + centre) * fineness))
    value_K = np.append(0.0, np.exp(centre * ends_K - centre**2 / 2.0))
    ends_K = np.append(-np.inf, ends_K)
    chance_K, mean_K = _between(ends_K), _between(ends_K - centre)
    up_K = np.clip((mean_K - value_K[:-1] * chance_K) / np.diff(value_K), 0.0, chance_K)
    mass_K = np.append(chance_K - up_K, 0.0)
    mass_K[1:] += up_K
    return value_K, mass_K


def _between(ends_K: np.ndarray) -> np.ndarray:
    """Standard normal probability between neighbouring ends, from the tail that is small there."""
    below_K, above_K = special.ndtr(ends_K), special.ndtr(-ends_K)
    return np.where(ends_K[:-1] < 0.0, np.diff(below_K), -np.diff(above_K))


def _sum(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], fineness: float
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of two that are independent, each value of it at the two grid points around it."""
    (one_J, mass_J), (other_L, mass_L) = one, other
    mean = float(one_J @ mass_J + other_L @ mass_L)
    spread = math.sqrt(_variance(*one) + _variance(*other))
    lowest = _low_end(*one) + _low_end(*other)
    grid_K = _grid(lowest, float(one_J[-1] + other_L[-1]), mean, spread, fineness)
    result_K = np.zeros(len(grid_K))
    _add_pairs(one_J, mass_J, other_L, mass_L, grid_K, result_K)
    return grid_K, result_K


def _variance(value_K: np.ndarray, mass_K: np.ndarray) -> float:
    return float((value_K - value_K @ mass_K) ** 2 @ mass_K)


def _low_end(value_K: np.ndarray, mass_K: np.ndarray) -> float:
    """The largest value, above zero, with at most ``_RARE`` below."""
    return float(value_K[max(1, int(np.searchsorted(np.cumsum(mass_K), _RARE)))])


def _grid(lowest: float, highest: float, mean: float, spread: float, fineness: float) -> np.ndarray:
    """Zero, then from ``lowest`` to ``highest``: dense where the mass is, by ratios elsewhere."""
    points = [0.0, lowest]
    while points[-1] < highest:
        at = points[-1]
        step = min(math.hypot(spread, at - mean), at * max(1.0, spread / mean)) / fineness
        points.append(at + step)
    points[-1] = max(points[-1], highest)
    return np.array(points)


@kernel()
def _add_pairs(
    one_J: np.ndarray,
    mass_J: np.ndarray,
    other_L: np.ndarray,
    mass_L: np.ndarray,
    grid_K: np.ndarray,
    result_K: np.ndarray,
) -> None:
    for j in range(len(one_J)):
        if mass_J[j] == 0.0:
            continue
        k = 0
        for i in range(len(other_L)):
            value, mass = one_J[j] + other_L[i], mass_J[j] * mass_L[i]
            while k + 2 < len(grid_K) and grid_K[k + 1] <= value:
                k += 1
            up = (value - grid_K[k]) / (grid_K[k + 1] - grid_K[k])
            up = min(1.0, max(0.0, up))
            result_K[k] += mass * (1.0 - up)
            result_K[k + 1] += mass * up
