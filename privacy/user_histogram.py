"""Histograms of a figure that each user has, of which the mean and the deciles are read.

A user is divided between the two knots that their value lies between, by linear binning (Wand
1994): so the mean over users is that of the knots, whatever lies between them, and one histogram
has the mean and the spread. A value on a knot is in one bin.

What is read of noisy counts beside the mean is read after their projection onto counts that are not
negative and have the same sum, the nearest ones (Duchi et al. 2008): post-processing, which costs
no privacy.

Legend: B knots, T tenths of the users.
"""

import math
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

_DECILES = 10
_DRAWS = 200


@dataclass(frozen=True)
class UserHistogram:
    """Counts of users, in steps, at ``knots``, which rise.

    Formal guarantee: a user's part has ℓ1 norm at most ``weight`` steps, whatever their value.
    """

    knots: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots) < 2 or not all(low < high for low, high in pairwise(self.knots)):
            raise ValueError(f"knots of a histogram must rise, got {self.knots}")

    def contribution(self, value: float, weight: int) -> np.ndarray:
        """Return a user's part, (B,) float64 of whole numbers that come to ``weight``; zeros of a
        value that is not between the first knot and the last."""
        part_B = np.zeros(len(self.knots))
        if not self.knots[0] <= value <= self.knots[-1]:
            return part_B
        upper = max(1, int(np.searchsorted(self.knots, value)))
        low, high = self.knots[upper - 1], self.knots[upper]
        above = round((value - low) / (high - low) * weight)
        part_B[upper - 1], part_B[upper] = weight - above, above
        return part_B

    def spread(self, values_U: np.ndarray) -> "Spread":
        """The spread of known values over users, without noise; there is at least one user."""
        weight = 2**20
        parts = (self.contribution(value, weight) for value in values_U.tolist())
        return self.read(np.sum([*parts], axis=0), 0.0)

    def mean(self, sum_B: np.ndarray) -> float:
        """Return the mean over users, within the knots; counts with noise may be negative."""
        mean = float(np.dot(self.knots, sum_B) / sum_B.sum())
        return min(self.knots[-1], max(self.knots[0], mean))

    def mean_noise(self, mean: float, counted: float, std: float) -> float:
        """Return the standard error of the mean over ``counted`` steps that noise of ``std`` steps
        on each count gives, to first order."""
        return std * math.sqrt(sum((knot - mean) ** 2 for knot in self.knots)) / counted

    def shares(self, sum_B: np.ndarray) -> np.ndarray:
        """Return the share of users at each knot, (B,): none negative, in all 1."""
        total, falling_B = sum_B.sum(), np.sort(sum_B)[::-1]
        excess_B = (np.cumsum(falling_B) - total) / np.arange(1, len(sum_B) + 1)
        taken = excess_B[np.flatnonzero(falling_B > excess_B)[-1]]
        return np.maximum(sum_B - taken, 0.0) / total

    def deciles(self, share_B: np.ndarray) -> np.ndarray:
        """Return the mean of each tenth of the users, the lowest first, (10,)."""
        ends_B = np.concatenate([[0.0], np.cumsum(share_B)])
        parts = np.linspace(0.0, ends_B[-1], _DECILES + 1)
        covered_TB = np.minimum(ends_B[1:], parts[1:, None]) - np.maximum(
            ends_B[:-1], parts[:-1, None]
        )
        covered_TB = np.maximum(covered_TB, 0.0)
        return covered_TB @ np.array(self.knots) / covered_TB.sum(axis=1)

    def read(self, sum_B: np.ndarray, std: float) -> "Spread":
        """The spread over users, from counts with noise of ``std`` whose sum is positive.

        The standard errors are those of counts as they were read, under noise drawn anew, by public
        numbers.
        """
        share_B = self.shares(sum_B)
        deciles_T, error_T = self.deciles(share_B), np.zeros(_DECILES)
        if std:
            scale = std / math.sqrt(2.0) / float(sum_B.sum())
            noise = np.random.default_rng(0).laplace(scale=scale, size=(_DRAWS, len(share_B)))
            again = [share_B + noise_B for noise_B in noise if 1.0 + noise_B.sum() > 0.0]
            again_T = np.stack([self.deciles(self.shares(one_B)) for one_B in again])
            error_T = np.sqrt(((again_T - deciles_T) ** 2).mean(axis=0))
        parts = (share_B, deciles_T, error_T)
        return Spread(self.knots, *(tuple(each.tolist()) for each in parts))


@dataclass(frozen=True)
class Spread:
    """A figure of users, as it differs over them.

    Attributes:
        knots: of the histogram.
        shares: of users, at each knot.
        deciles: the mean of each tenth of the users, the lowest first.
        errors: their standard errors that are noise's.
    """

    knots: tuple[float, ...]
    shares: tuple[float, ...]
    deciles: tuple[float, ...]
    errors: tuple[float, ...]

    def to_json(self) -> dict[str, list[float]]:
        """Return the same as lists, by name."""
        return {name: list(part) for name, part in asdict(self).items()}


#: Of the share of a user's judgements that a model gets right.
ACCURACIES = UserHistogram(tuple(tenth / 10 for tenth in range(11)))
