"""The bound on what one user can contribute, and everything that follows from it.

A user's vector is scaled into the ball of radius ``norm``; one that is not finite becomes zero
*before* it can reach a sum. The object that clips is the object that knows the sensitivity, so
noise cannot be calibrated for a bound other than the one that was used.

Norms and sums are computed in float64. In float32 the norm of a long vector comes out too small (by
1e-5 at 10,000 dimensions, 1e-3 at a million), squares overflow and underflow, and the sum of many
users drifts: the bound would hold on paper only.

Legend: B users in a chunk, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from privacy.adjacency import Adjacency

# Rounding, also to float32 afterwards, must not carry a scaled vector out of the ball.
ROUNDING = 1.0 - 2.0**-20
# Elements that are converted to float64 at a time: few enough to stay in the processor's cache.
_BLOCK = 2**17


@dataclass(frozen=True)
class UserClip:
    """Scales each user's vector into the ℓ2 ball of radius ``norm`` (McMahan et al. 2018).

    Formal guarantee: for any input, finite or not, each user's term in ``clip_sum`` has ℓ2 norm at
    most ``norm``; so the sum moves by at most ``sensitivity(adjacency)`` between neighbours.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far, in ℓ2, the sum of clipped vectors can move between neighbouring data sets."""
        return self.norm * adjacency.vectors_changed

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum of users' clipped vectors, float64, (D,); a user who is not finite is zero."""
        block = max(1, _BLOCK // max(1, grads_BD.shape[1]))
        sum_D = self._clip_block(grads_BD[:block])
        for first in range(block, len(grads_BD), block):
            sum_D += self._clip_block(grads_BD[first : first + block])
        return sum_D

    def _clip_block(self, grads_BD: torch.Tensor) -> torch.Tensor:
        grads_BD = grads_BD.to(torch.float64)
        norms_B = torch.linalg.vector_norm(grads_BD, dim=1)
        if not math.isfinite(float(norms_B.sum())):  # a finite sum has finite terms: they are ≥ 0
            finite_B = torch.isfinite(norms_B)
            grads_BD, norms_B = grads_BD[finite_B], norms_B[finite_B]
        # A zero vector gives norm / 0 = inf, which the clamp turns into a factor of one.
        factors_B = (self.norm * ROUNDING / norms_B).clamp_(max=1.0)
        return factors_B @ grads_BD

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``users`` clipped vectors: finite and short enough."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * users * (1.0 + 1e-5)


@dataclass(frozen=True)
class NoClip:
    """Leaves vectors as they are: for the non-private twin only. It has no sensitivity at all."""

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Unbounded under every relation, so that no noise can be calibrated to it."""
        return math.inf

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The plain sum over users, float64, (D,); non-finite users count as zero."""
        finite_B = torch.isfinite(grads_BD).all(dim=1)
        return grads_BD[finite_B].sum(dim=0, dtype=torch.float64)

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` is finite."""
        return bool(np.isfinite(sum_D).all())
