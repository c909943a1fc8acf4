"""Noise that later rounds take back in part: a banded factor, chosen for what a model adds up.

With C lower-triangular, Toeplitz and of b bands (c_0 … c_(b−1) on the diagonal and below it), round
t gets the noise (C⁻¹ z)_t, z independent: w_t = (z_t − c_1 w_(t−1) − … − c_(b−1) w_(t−b+1)) / c_0.
Only the last b − 1 of these vectors need to be known. What is computed from the releases by a
matrix A (an optimizer's iterates, say) then has noise A C⁻¹ z instead of A z.

C is scaled so that no column is longer than 1; what that is good for is in
``privacy.continual.banded_sum``. It is chosen by minimising ‖A C⁻¹‖_F over its coefficients
(Choquette-Choo et al. 2023, (Amplified) Banded Matrix Factorization; McKenna 2024 for Toeplitz
factors), from the square root of the matrix of prefix sums on (``square_root``). With d the
coefficients of C⁻¹ that is dᵀ H d, where H adds up the products of A's columns along diagonals, so
a step of the search costs T² operations.

Legend: T rounds, B bands, R rows of A.
"""

import math
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.continual.square_root import SquareRoot

#: Coefficients are whole multiples of this, toward zero: the same numbers wherever they are chosen,
#: and columns that are no longer than 1, not even by rounding.
_GRID = 2.0**-20


@dataclass(frozen=True)
class Banded:
    """C, by its ``coefficients`` c_0 … c_(b−1).

    Raises:
        ValueError: the first is not positive, one is not finite, or a column is longer than 1.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        finite = all(math.isfinite(c) for c in self.coefficients)
        if not (self.coefficients and finite and self.coefficients[0] > 0.0):
            raise ValueError(f"a banded factor begins with a positive number: {self.coefficients}")
        if math.fsum(c * c for c in self.coefficients) > 1.0:
            raise ValueError("a column of a banded factor is longer than 1")

    @classmethod
    def scaled(cls, row_B: np.ndarray) -> "Banded":
        """The factor of such coefficients whose columns have length 1, but for a few grid steps."""
        row_B = row_B / np.linalg.norm(row_B)
        return cls(tuple((np.trunc(row_B / _GRID) * _GRID).tolist()))

    @property
    def bands(self) -> int:
        """Return b."""
        return len(self.coefficients)

    def inverse_T(self, rounds: int) -> np.ndarray:
        """The coefficients of C⁻¹, float64 (T,): how much of z_(t−k) is in the noise of round t."""
        return _inverse_T(np.array(self.coefficients), rounds)

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

    def error(self, factor: Banded) -> float:
        """‖A C⁻¹‖_F / ‖A‖_F: root mean square noise over that of A z."""
        inverse_T = factor.inverse_T(len(self.gram_TT))
        return math.sqrt(float(inverse_T @ self.gram_TT @ inverse_T) / self.gram_TT[0, 0])

    def factor(self, bands: int) -> Banded:
        """The factor of so many bands that has the least error, as far as the search finds it;
        never more than the square root's, or than that of independent noise."""
        if bands == 1:
            return Banded((1.0,))
        from scipy import optimize  # dear to import, for this alone

        start_B = SquareRoot(bands).coefficients_W
        tried = optimize.minimize(self._log_error, start_B[1:], jac=True, method="L-BFGS-B")
        candidates = [Banded.scaled(np.append(1.0, tried.x)), Banded.scaled(start_B)]
        candidates.append(Banded((1.0, *[0.0] * (bands - 1))))
        return min(candidates, key=self.error)

    def _log_error(self, below_B: np.ndarray) -> tuple[float, np.ndarray]:
        """The logarithm of ‖c‖² dᵀ H d where c_0 = 1 and the others are given, and its slope."""
        row_B, rounds = np.append(1.0, below_B), len(self.gram_TT)
        with np.errstate(all="ignore"):
            inverse_T = _inverse_T(row_B, rounds)
            pull_T = self.gram_TT @ inverse_T
            square = float(inverse_T @ pull_T)
            if not 0.0 < square < 1e200:  # C⁻¹ grows without bound
                return 1e3, np.zeros(len(below_B))
            twice_T = _filtered(row_B, inverse_T)
        length = float(row_B @ row_B)
        slope_B = [
            2.0 * row_B[k] / length - 2.0 * float(pull_T[k:] @ twice_T[: rounds - k]) / square
            for k in range(1, len(row_B))
        ]
        return math.log(length * square), np.array(slope_B)


def _inverse_T(row_B: np.ndarray, rounds: int) -> np.ndarray:
    return _filtered(row_B, np.eye(1, rounds)[0])


def _filtered(row_B: np.ndarray, signal_T: np.ndarray) -> np.ndarray:
    """C⁻¹ times a vector."""
    from scipy import signal  # dear to import

    return np.asarray(signal.lfilter([1.0], row_B, signal_T))
