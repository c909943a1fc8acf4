"""The square root of the matrix of prefix sums: how noise is shared among releases of a growing
sum.

Release w is the sum of what came in periods 1 … w: A x, with A the lower triangle of ones. With
A = R R the mechanism adds noise to R x and multiplies by R: A x + R z, z independent. As power
series A is 1/(1 − t), so R is (1 − t)^(−1/2): lower-triangular and Toeplitz, with the coefficients
r_0 = 1, r_k = r_(k−1) (2k − 1)/(2k) (Fichtenberger, Henzinger and Upadhyay 2023, who show that
hardly anything is better). Release w has γ_w γ_W times the noise of a single release, with
γ_w² = r_0² + … + r_(w−1)², which grows like ln(w)/π: 2.3 times at the last of 52.

Legend: W releases.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class SquareRoot:
    """R, for so many ``releases``.

    Raises:
        ValueError: there is not at least one release.
    """

    releases: int

    def __post_init__(self) -> None:
        if self.releases < 1:
            raise ValueError(f"there must be at least one release, got {self.releases}")

    @cached_property
    def coefficients_W(self) -> np.ndarray:
        """Return r_0 … r_(W−1), float64 (W,): what stands on the diagonal and below it."""
        k = np.arange(1, self.releases)
        return np.concatenate(([1.0], np.cumprod((2 * k - 1) / (2 * k))))

    @cached_property
    def matrix_WW(self) -> np.ndarray:
        """Return R, float64 (W, W)."""
        place = np.arange(self.releases)
        behind_WW = place[:, None] - place
        return np.where(behind_WW >= 0, self.coefficients_W[np.abs(behind_WW)], 0.0)

    @cached_property
    def gram_WW(self) -> np.ndarray:
        """Return RᵀR, float64 (W, W): what a user's vectors are to be multiplied by for the squared
        length of R x."""
        return self.matrix_WW.T @ self.matrix_WW

    def row_norm(self, release: int) -> float:
        """Return γ_w, the length of row w of R: by how much the noise of a release (from 1) exceeds
        that of a coordinate of z."""
        return float(np.linalg.norm(self.coefficients_W[:release]))

    @property
    def column_norm(self) -> float:
        """Return γ_W, the length of the longest column of R, which is the first."""
        return self.row_norm(self.releases)
