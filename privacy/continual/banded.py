"""Noise that later rounds cancel in part: a banded factor, optimised for the model's sum of
gradients.

With C of b bands (c_0 … c_(b−1) on the diagonal and below it) round t gets the noise
w_t = (z_t − c_1 w_(t−1) − … − c_(b−1) w_(t−b+1)) / c_0: only the last b − 1 of these vectors need
to be known.

C is scaled so that no column is longer than 1. Users are divided once into b groups, each by their
own name alone; round t is of group t mod b, and samples its users with b times the probability of
sampling among all users.

**The guarantee** (Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, (Amplified)
Banded Matrix Factorization, Theorem 4). The releases are C⁻¹ (C x + z), row by row, so they reveal
what C x + z reveals. A user of a group can be in rounds b apart only, and column t of C has entries
in rows t … t + b − 1 only: what the user adds in two of their rounds is in different rows. In one
of them it is c ⊗ v, with v of at most the clip norm and known from what was released before; all
else in these rows is the others' sums, which depend on the user through earlier releases alone. As
‖c‖ ≤ 1 these rows are one Poisson-sampled Gaussian sum, released row by row, and the rounds of the
group compose. So a run costs each user the rounds of their own group, and no more than ⌈T/b⌉ of
them.

**Adjacency.** It holds where a user *comes or goes* (``add-remove``) and where their part becomes
nothing (``zero-out``): the others stay in their groups, because a group is a function of the user's
own name. It is claimed for no other. The theorem is about data that come or go; a user who is
replaced by one of another name would be in another group, whose rounds would have to be paid for,
too.

C is chosen by minimising ‖A C⁻¹‖_F over its coefficients (the same paper; McKenna 2024 for Toeplitz
factors), from ``square_root`` on.

Legend: T rounds, B bands.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import BandedGaussian, ParallelEvent
from murmuration.privacy.continual.toeplitz import GRID, ToeplitzFactor, Workload
from murmuration.privacy.mechanisms.sampling import CyclicSampler
from murmuration.privacy.theorems import Mechanism, Participation


@dataclass(frozen=True)
class Banded(ToeplitzFactor):
    """C, by its ``coefficients`` c_0 … c_(b−1).

    Raises:
        ValueError: the first is not positive, one is not finite, or a column is longer than 1.
    """

    participation: ClassVar[Participation] = Participation.TURNS_BY_COIN
    mechanism: ClassVar[Mechanism] = Mechanism.BANDED
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        finite = all(math.isfinite(c) for c in self.coefficients)
        if not (self.coefficients and finite and self.coefficients[0] > 0.0):
            raise ValueError(f"a banded factor begins with a positive number: {self.coefficients}")
        if math.fsum(c * c for c in self.coefficients) > 1.0:
            raise ValueError("a column of a banded factor is longer than 1")

    @classmethod
    def scaled(cls, row_B: np.ndarray) -> "Banded":
        """The factor with these coefficients whose columns have length 1, up to a few grid
        steps."""
        row_B = row_B / np.linalg.norm(row_B)
        return cls(tuple((np.trunc(row_B / GRID) * GRID).tolist()))

    @classmethod
    def chosen(cls, added: Workload, bands: int) -> "Banded":
        """The factor of so many bands that has the least error, as far as the search finds it;
        never more than the square root's, or than that of independent noise."""
        if bands == 1:
            return cls((1.0,))
        from scipy import optimize  # slow to import, only for this

        def log_error(below_B: np.ndarray) -> tuple[float, np.ndarray]:
            """The logarithm of ‖c‖² dᵀ H d where c_0 = 1 and the others are given, and its
            slope."""
            row_B = np.append(1.0, below_B)
            if (noise := added.log_noise(row_B)) is None:
                return 1e3, np.zeros(len(below_B))
            length = float(row_B @ row_B)
            return math.log(length) + noise[0], (2.0 * row_B / length + noise[1])[1:]

        start_B = square_root(bands)
        tried = optimize.minimize(log_error, start_B[1:], jac=True, method="L-BFGS-B")
        candidates = [cls.scaled(np.append(1.0, tried.x)), cls.scaled(start_B)]
        candidates.append(cls((1.0, *[0.0] * (bands - 1))))
        return min(candidates, key=added.error)

    @property
    def groups(self) -> int:
        """Return b."""
        return len(self.coefficients)

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return the coefficients."""
        return self.coefficients

    def sampler(self, users: int, cohort: int) -> CyclicSampler:
        """By a coin of each user in their turn."""
        return CyclicSampler(cohort / users, self.groups)

    def row_T(self, rounds: int) -> np.ndarray:
        """Return the coefficients, and zeros after them."""
        return np.pad(self.coefficients, (0, max(0, rounds - self.groups)))[:rounds]

    @property
    def weights(self) -> tuple[float, ...]:
        """Return c_1 … c_(b−1), for the noise of the rounds before, the last first."""
        return self.coefficients[1:]

    def remember(self, before: Sequence[np.ndarray], noise_D: np.ndarray) -> list[np.ndarray]:
        """The noise of the last b − 1 rounds, the last first."""
        return [noise_D, *before][: self.groups - 1]

    def event(
        self, round_: int, probability: float, noise_multiplier: float, *, begins: bool
    ) -> ParallelEvent:
        """One sampled sum of the group whose turn it is."""
        del begins
        event = BandedGaussian(self.groups, probability, noise_multiplier)
        return ParallelEvent((round_ - 1) % self.groups, event)


def square_root(bands: int) -> np.ndarray:
    """Return the first coefficients of the square root of the matrix of prefix sums, float64 (B,).

    As power series that matrix is 1/(1 − t), so its root is (1 − t)^(−1/2): c_0 = 1, c_k =
    c_(k−1) (2k − 1)/(2k). Hardly anything is better for prefix sums (Fichtenberger, Henzinger and
    Upadhyay 2023).
    """
    k = np.arange(1, bands)
    return np.concatenate(([1.0], np.cumprod((2 * k - 1) / (2 * k))))
