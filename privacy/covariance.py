"""The covariance of private features, released once.

Where everything of a user is protected, an error in the semi-norm of the features' covariance, or a
confidence set, needs that covariance released too. Source: Chowdhury et al. 2024, App. E, by "the
standard Gaussian mechanism" with a shift that keeps it positive semi-definite (Shariff & Sheffet
2018); Dwork et al. 2014 ("Analyze Gauss") for the symmetric noise.

Released is Σ_u A_u + E, where A_u is the mean of x xᵀ over user u's judgements with ‖x‖ ≤ length,
and E is symmetric: diagonal N(0, s²), off the diagonal N(0, s²/2). That is isotropic noise in the
coordinates (diagonal, √2 · upper triangle), in which Frobenius norms are ℓ2 norms. Sensitivity: A_u
is positive semi-definite with trace at most length², so ‖A_u‖ ≤ length², and two of them are at
most √2·length² apart, since their inner product is not negative. A swap therefore costs √2, not 2.

A shift by λ makes the result positive semi-definite with probability at least 1 − α: E/s is a
standard Gaussian in those coordinates, its least eigenvalue is a function of it with slope 1 and
has a mean of at least −√(2D), so λ = s·(√(2D) + √(2 ln 1/α)). What is left below zero is cut off.

Legend: R rows, U users, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np

from privacy.adjacency import Adjacency, Unsupported
from privacy.events import PoissonGaussian
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from privacy.release import fingerprint

_COVERS = "covariance"
# A row is scaled to just inside the bound, so that rounding cannot carry it out.
_INSIDE = 1.0 - 1e-12


@dataclass(frozen=True)
class CovarianceRelease:
    """The Gaussian mechanism on sums of users' mean x xᵀ.

    Formal guarantee: the event ``self.event`` under ``adjacency``. Under ``replace-labels``
    features are public: there is nothing to release.

    Attributes:
        length: bound on ‖x‖, enforced by shortening rows.
        noise_multiplier: s over the sensitivity where a user comes or goes, length². Where one is
            replaced the accountant supplies its factor of two to ``event``, whose noise
            multiplier is larger by √2 since the sensitivity is √2 and not 2 times as large.
    """

    length: float
    noise_multiplier: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        if self.adjacency is Adjacency.REPLACE_LABELS:
            raise Unsupported(
                "under replace-labels features are public: compute their covariance exactly"
            )
        if not (math.isfinite(self.length) and self.length > 0):
            raise ValueError(f"the bound on rows must be a positive number, got {self.length}")
        _ = self.event  # validates the noise multiplier

    @property
    def std(self) -> float:
        """s: standard deviation of the noise on the diagonal of the *sum*."""
        return self.noise_multiplier * self.length**2

    @property
    def event(self) -> PoissonGaussian:
        """What the release costs."""
        swapped = self.adjacency.vectors_changed == 2
        return PoissonGaussian(1.0, self.noise_multiplier * (math.sqrt(2.0) if swapped else 1.0))

    def summed(self, x_RD: np.ndarray, start_U: np.ndarray) -> np.ndarray:
        """Σ_u of the mean of x xᵀ over user u's rows, each shortened to ``length``, (D, D).

        A row that is not finite counts as zero. Users are R rows cut at ``start_U`` (U + 1).
        """
        x_RD = np.asarray(x_RD, dtype=np.float64)
        x_RD = np.where(np.isfinite(x_RD).all(axis=1, keepdims=True), x_RD, 0.0)
        with np.errstate(over="ignore"):
            lengths_R1 = np.linalg.norm(x_RD, axis=1, keepdims=True)
        x_RD = np.where(np.isfinite(lengths_R1), x_RD, 0.0)
        x_RD = x_RD * np.minimum(1.0, self.length * _INSIDE / np.maximum(lengths_R1, 1e-300))
        counts_U = np.diff(start_U)
        weight_R = 1.0 / np.repeat(np.maximum(counts_U, 1), counts_U)
        return (x_RD * weight_R[:, None]).T @ x_RD

    def release(
        self, sum_DD: np.ndarray, *, ledger: Ledger, source: Randomness, round_: int = 0
    ) -> np.ndarray:
        """``sum_DD`` with symmetric noise; charged to ``ledger`` before it exists.

        Raises:
            ValueError: the sum is not a finite symmetric matrix, or the ledger is for another
                adjacency.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, not {self.adjacency}")
        sum_DD = np.asarray(sum_DD, dtype=np.float64)
        square = sum_DD.ndim == 2 and sum_DD.shape[0] == sum_DD.shape[1]
        if not square or not np.isfinite(sum_DD).all():
            raise ValueError("a covariance that is not a finite square matrix may not be released")
        if not np.allclose(sum_DD, sum_DD.T):
            raise ValueError("a covariance must be symmetric")
        replay = fingerprint(sum_DD, self.std, round_, _COVERS, source)
        charge = ledger.charge(self.event, round_=round_, covers=_COVERS, replay=replay)
        noise = source.stream(f"noise {_COVERS}", round_, charge.attempt)
        return sum_DD + self.std * symmetric_noise(len(sum_DD), noise)

    def positive(self, noisy_DD: np.ndarray, alpha: float = 0.05) -> tuple[np.ndarray, float]:
        """A released covariance, shifted and cut to be positive semi-definite, and the shift λ.

        Post-processing. With probability at least 1 − ``alpha`` nothing had to be cut, and the
        result is at least the exact sum. Raises ValueError if alpha is not in (0, 1).
        """
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        dimension = len(noisy_DD)
        root = math.sqrt(2.0 * dimension) + math.sqrt(2.0 * math.log(1.0 / alpha))
        shift = self.std * root
        values_D, axes_DD = np.linalg.eigh(noisy_DD + shift * np.eye(dimension))
        return (axes_DD * np.maximum(values_D, 0.0)) @ axes_DD.T, shift


def symmetric_noise(dimension: int, generator: np.random.Generator) -> np.ndarray:
    """A symmetric matrix, diagonal N(0, 1), off the diagonal N(0, ½); (D, D)."""
    drawn_DD = generator.standard_normal((dimension, dimension))
    upper_DD = np.triu(drawn_DD, 1) / math.sqrt(2.0)
    return upper_DD + upper_DD.T + np.diag(np.diag(drawn_DD))
