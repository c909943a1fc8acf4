"""Factors by which the noise of rounds is correlated, and what they are chosen for.

With C lower-triangular and Toeplitz (c_0 on the diagonal, c_k on the k-th below it) round t gets
the noise w_t = (C⁻¹ z)_t, z independent. What is computed from the releases by a matrix A (an
optimizer's iterates, say) then has noise A C⁻¹ z instead of A z. With d the coefficients of C⁻¹
its square is dᵀ H d, where H adds up the products of A's columns along diagonals, so a step of a
search for C costs T² operations.

Legend: T rounds, D dimensions, K coefficients that are not zero, R rows of A.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.event import Event
from murmuration.privacy.mechanisms.sampling import CyclicSampler
from murmuration.privacy.theorems import Mechanism, Participation

#: Coefficients are whole multiples of this, toward zero: the same numbers wherever they are chosen,
#: and no larger than they may be, not even by rounding.
GRID = 2.0**-20


class ToeplitzFactor(ABC):
    """C, such that what one user adds to all rounds' C x together has at most length 1.

    That holds of a user whose rounds are a whole multiple of ``groups`` apart, in as many rounds as
    the factor is for. Noise is streamed: round t's is (z_t − Σ weights · what is remembered) / c_0.
    """

    #: Who takes part in a round of such noise.
    participation: ClassVar[Participation]
    mechanism: ClassVar[Mechanism]

    @property
    @abstractmethod
    def groups(self) -> int:
        """The number of groups of users that take turns."""

    @abstractmethod
    def sampler(self, users: int, cohort: int) -> CyclicSampler:
        """The sampler of users who take turns, of whom ``cohort`` are in a round on average.

        Raises ValueError for a cohort that the groups cannot have.
        """

    @property
    @abstractmethod
    def parameters(self) -> tuple[float, ...]:
        """The public numbers that define it."""

    @abstractmethod
    def row_T(self, rounds: int) -> np.ndarray:
        """c_0 … c_(T−1), float64 (T,)."""

    @property
    @abstractmethod
    def weights(self) -> tuple[float, ...]:
        """The coefficients of the remembered vectors in the noise of a round."""

    @abstractmethod
    def remember(self, before: Sequence[np.ndarray], noise_D: np.ndarray) -> list[np.ndarray]:
        """The remembered vectors after a round, from those before it and its noise."""

    @abstractmethod
    def event(
        self, round_: int, probability: float, noise_multiplier: float, *, begins: bool
    ) -> Event:
        """The event of a release; ``begins``: it shares no noise with an earlier one."""

    def inverse_T(self, rounds: int) -> np.ndarray:
        """The coefficients of C⁻¹, float64 (T,): how much of z_(t−k) is in the noise of round t."""
        return filtered(self.row_T(rounds), np.eye(1, rounds)[0])

    def row_norm(self, rounds: int) -> float:
        """Return the length of C⁻¹'s longest row, which is the last: by how much the noise of a
        round exceeds that of a coordinate of z."""
        return float(np.linalg.norm(self.inverse_T(rounds)))


@dataclass(frozen=True)
class Workload:
    """A, of which factors need ``gram_TT`` alone: H, float64 (T, T)."""

    gram_TT: np.ndarray

    @classmethod
    def of_matrix(cls, matrix_RT: np.ndarray) -> "Workload":
        """The workload of a matrix: row r says how much each round's release counts in it."""
        gram_TT = matrix_RT.T @ matrix_RT
        for t in range(len(gram_TT) - 2, -1, -1):
            gram_TT[t, :-1] += gram_TT[t + 1, 1:]
        return cls(gram_TT)

    @property
    def rounds(self) -> int:
        """Return T."""
        return len(self.gram_TT)

    def error(self, factor: ToeplitzFactor) -> float:
        """‖A C⁻¹‖_F / ‖A‖_F: root mean square noise over that of A z."""
        inverse_T = factor.inverse_T(self.rounds)
        return math.sqrt(float(inverse_T @ self.gram_TT @ inverse_T) / self.gram_TT[0, 0])

    def log_noise(self, row_K: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The logarithm of dᵀ H d, of a factor of these coefficients, and its slope in each of
        them; None where C⁻¹ grows without bound."""
        rounds = self.rounds
        with np.errstate(all="ignore"):
            inverse_T = filtered(row_K, np.eye(1, rounds)[0])
            pull_T = self.gram_TT @ inverse_T
            square = float(inverse_T @ pull_T)
            if not 0.0 < square < 1e200:
                return None
            twice_T = filtered(row_K, inverse_T)
        slope_K = [
            -2.0 * float(pull_T[k:] @ twice_T[: rounds - k]) / square for k in range(len(row_K))
        ]
        return math.log(square), np.array(slope_K)


def filtered(row_K: np.ndarray, signal_T: np.ndarray) -> np.ndarray:
    """C⁻¹ times a vector."""
    from scipy import signal  # slow to import

    return np.asarray(signal.lfilter([1.0], row_K, signal_T))
