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

from privacy import grid
from privacy.adjacency import Adjacency
from privacy.kernel import kernel

# Rounding, also to float32 afterwards, must not carry a scaled vector out of the ball.
ROUNDING = 1.0 - 2.0**-20
_COLUMNS = 2**18  # of a float64 copy of users' vectors


@dataclass(frozen=True)
class UserClip:
    """Scales each user's vector into the ℓ2 ball of radius ``norm`` (McMahan et al. 2018).

    With a ``step``, the one of ``privacy.grid`` for this norm, it is then rounded toward zero onto
    the grid; 0 leaves it as it is.

    Formal guarantee: for any input, finite or not, each user's term in ``clip_sum`` has ℓ2 norm at
    most ``norm``; so the sum moves by at most ``sensitivity(adjacency)`` between neighbours.
    """

    norm: float
    step: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")
        if self.step:
            grid.check_step(self.step, self.norm)

    @classmethod
    def on_grid(cls, norm: float) -> "UserClip":
        """The clip of this norm with rounding."""
        return cls(norm, grid.step_for(norm))

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far, in ℓ2, the sum of clipped vectors can move between neighbouring data sets."""
        return self.norm * adjacency.vectors_changed

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum of users' clipped vectors, float64, (D,); a user who is not finite is zero.

        Vectors that are on another device are clipped there; the sum is in this machine's memory.
        """
        if grads_BD.device.type != "cpu" and not self.step:
            return _sum_there(grads_BD, self.norm * ROUNDING).cpu()
        grads_BD = grads_BD.cpu()
        sum_D = np.zeros(grads_BD.shape[1])
        _add_clipped(grads_BD.numpy(), self.norm * ROUNDING, self.step, sum_D)
        return torch.from_numpy(sum_D)

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``users`` clipped vectors: finite and short enough."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * users * (1.0 + 1e-5)


def _sum_there(grads_BD: torch.Tensor, norm: float) -> torch.Tensor:
    """Σ of the rows, each scaled to at most ``norm``, by tensor operations, (D,) float64.

    The same factors from the same float64 lengths as in ``_add_clipped``; in blocks, because their
    float64 copies are long. What is not finite counts as zero.
    """
    blocks = grads_BD.split(_COLUMNS, dim=1)
    square_B = torch.stack([block.double().square().sum(1) for block in blocks]).sum(0)
    length_B = square_B.sqrt()
    finite_B = torch.isfinite(length_B)
    factor_B = torch.where(finite_B, norm / length_B.clamp(min=norm), 0.0)
    return torch.cat(
        [factor_B @ torch.where(finite_B[:, None], block, 0.0).double() for block in blocks]
    )


# Compiled, because a vector that has just been computed is still in the cache: one pass for its
# length, one to add it.
@kernel()
def _add_clipped(grads_BD: np.ndarray, norm: float, step: float, sum_D: np.ndarray) -> None:
    """Add each row, scaled to at most ``norm``, to ``sum_D``; leave out what is not finite."""
    for b in range(len(grads_BD)):
        grad_D = grads_BD[b]
        length = math.sqrt(square(grad_D))
        if math.isfinite(length):
            factor = norm / max(norm, length)
            if step > 0.0:
                for d in range(len(grad_D)):
                    sum_D[d] += np.trunc(factor * grad_D[d] / step) * step
            else:
                for d in range(len(grad_D)):
                    sum_D[d] += factor * grad_D[d]


@kernel(fastmath={"reassoc", "contract"})
def square(grad_D: np.ndarray) -> float:
    """The squared length; the terms may be added in any order."""
    square = 0.0
    for d in range(len(grad_D)):
        square += np.float64(grad_D[d]) * np.float64(grad_D[d])
    return square


@dataclass(frozen=True)
class NoClip:
    """Leaves vectors as they are: for the non-private twin only. It has no sensitivity at all."""

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Unbounded under every relation, so that no noise can be calibrated to it."""
        return math.inf

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The plain sum over users, float64, (D,); non-finite users count as zero."""
        finite_B = torch.isfinite(grads_BD).all(dim=1)
        return grads_BD[finite_B].sum(dim=0, dtype=torch.float64).cpu()

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` is finite."""
        return bool(np.isfinite(sum_D).all())
