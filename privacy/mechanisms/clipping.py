"""The bound on what one user can contribute, and everything that follows from it.

A user's vector is scaled into the ball of radius ``norm``; one that is not finite becomes zero
*before* it can reach a sum. The object that clips is the object that knows the sensitivity, so
noise cannot be calibrated for a bound other than the one that was used.

Norms are computed in float64. In float32 the norm of a long vector comes out too small (by 1e-5 at
10,000 dimensions, 1e-3 at a million), and squares overflow and underflow.

Sums are exact, whatever noise comes after. A rounded sum depends on who is in it and in which
order, so one user would move it by more than their own vector, by up to 1e-4 clip norms with a
million users in float64, and the bound would hold on paper only. So each clipped vector is
rounded, toward zero and by itself, onto the grid of ``privacy.mechanisms.grid`` for its clip norm,
and what is added up are whole numbers.

Legend: B users in a chunk, D dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.numba_jit import kernel
from murmuration.privacy.mechanisms.stretches import COLUMNS

if TYPE_CHECKING:
    import torch

# Rounding, also to float32 afterwards, must not carry a scaled vector out of the ball.
ROUNDING = 1.0 - 2.0**-20


@dataclass(frozen=True)
class UserClip:
    """Scales each user's vector into the ℓ2 ball of radius ``norm`` (McMahan et al. 2018).

    It is then rounded toward zero onto the grid of ``step``.

    Formal guarantee: for any input, finite or not, each user's term in ``clip_sum`` is a function
    of that user's vector alone and has ℓ2 norm at most ``norm``, and the sum is exact, in any
    order, for as many users as ``grid.check_room`` admits; so as computed, to the last bit, it
    moves by at most ``sensitivity(adjacency)`` between neighbours.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")
        _ = self.step  # refuses a norm that has no grid

    @property
    def step(self) -> float:
        """That of the grid on which sums are."""
        return grid.step_for(self.norm)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far, in ℓ2, the sum of clipped vectors can move between neighbouring data sets."""
        return self.norm * adjacency.vectors_changed

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum of users' clipped vectors, float64, (D,); a user who is not finite is zero.

        Vectors that are on another device are clipped there; the sum is in this machine's memory.
        """
        import torch

        if grads_BD.device.type != "cpu":
            steps_D, _ = steps_there(grads_BD, self.norm * ROUNDING, self.step)
            return steps_D.cpu() * self.step
        steps_D = np.zeros(grads_BD.shape[1])
        _add_clipped(grads_BD.numpy(), self.norm * ROUNDING, self.step, steps_D)
        return torch.from_numpy(steps_D * self.step)

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``users`` clipped vectors: finite and short enough."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * users * (1.0 + 1e-5)


def steps_there(
    grads_BD: torch.Tensor, norm: float, step: float, centre_D: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """``_add_clipped`` by tensor operations: Σ of the rows in whole steps, (D,), and their lengths,
    (B,), float64.

    Of the rows less ``centre_D`` (float64, on their device), if there is one. In blocks, because
    float64 copies are long. What is not finite counts as zero.
    """
    import torch

    def apart(block: int) -> torch.Tensor:
        block_BD = blocks[block].double()
        return block_BD if centre_D is None else block_BD - centres[block]

    blocks = grads_BD.split(COLUMNS, dim=1)
    centres = () if centre_D is None else centre_D.split(COLUMNS)
    numbers = range(len(blocks))
    square_B = torch.stack([apart(block).square().sum(1) for block in numbers]).sum(0)
    length_B = square_B.sqrt()
    finite_B = torch.isfinite(length_B)
    factor_B1 = (norm / length_B.clamp(min=norm) / step)[:, None]
    found = []
    for block in numbers:
        steps_BD = torch.trunc(factor_B1 * apart(block))
        found.append(torch.where(finite_B[:, None], steps_BD, 0.0).sum(0))
    return torch.cat(found), length_B


# Compiled, because a vector that has just been computed is still in the cache: one pass for its
# length, one to add it.
@kernel()
def _add_clipped(grads_BD: np.ndarray, norm: float, step: float, steps_D: np.ndarray) -> None:
    """Add each row, scaled to at most ``norm``, in whole steps; leave out what is not finite."""
    for b in range(len(grads_BD)):
        grad_D = grads_BD[b]
        length = math.sqrt(square(grad_D))
        if math.isfinite(length):
            factor = norm / max(norm, length) / step  # by a power of two: nothing is rounded
            for d in range(len(grad_D)):
                steps_D[d] += np.trunc(factor * grad_D[d])


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
        import torch

        finite_B = torch.isfinite(grads_BD).all(dim=1)
        return grads_BD[finite_B].sum(dim=0, dtype=torch.float64).cpu()

    def admits(self, sum_D: np.ndarray, users: int) -> bool:
        """Whether ``sum_D`` is finite."""
        return bool(np.isfinite(sum_D).all())


# The bound on what one example can contribute, for gradients that are a number times a row.
#
# The gradient of a linear head at one judgement is r·x with r the loss's derivative by the logit,
# so its length is |r|·‖x‖: clipping scales a number. Lengths are computed in float64 and sums are
# exact, for the reasons given in ``privacy.mechanisms.clipping``.
#
# Legend: K examples, D dimensions.


@dataclass(frozen=True)
class ExampleClip:
    """Scales each example's gradient into the ℓ2 ball of radius ``norm`` (Abadi et al. 2016).

    It is then rounded toward zero onto the grid of ``step``, like a ``UserClip``'s.

    Formal guarantee: for any input, finite or not, each example's term in ``clip_sum`` is a
    function of that example alone and has ℓ2 norm at most ``norm``, and the sum is exact; a user
    with G examples in it moves it by at most G·norm.
    """

    norm: float

    def __post_init__(self) -> None:
        _ = self.as_user  # validates the norm

    @property
    def as_user(self) -> UserClip:
        """The same bound, on examples whose gradients have been formed."""
        return UserClip(self.norm)

    @property
    def step(self) -> float:
        """That of the grid on which sums are."""
        return self.as_user.step

    def clip_sum(
        self, x_KD: torch.Tensor, weight_K: torch.Tensor, length_K: torch.Tensor
    ) -> torch.Tensor:
        """Σ clip(weight·x), float64, (D,); ``length_K`` are the norms of the rows, in float64.

        An example that is not finite counts as zero.
        """
        import torch

        steps_D = np.zeros(x_KD.shape[1])
        bound = self.norm * ROUNDING
        _add_clipped_examples(
            x_KD.numpy(), weight_K.numpy(), length_K.numpy(), bound, self.step, steps_D
        )
        return torch.from_numpy(steps_D * self.step)

    def admits(self, sum_D: np.ndarray, examples: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``examples`` clipped gradients."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * examples * (1.0 + 1e-5)


@kernel()
def _add_clipped_examples(
    x_KD: np.ndarray,
    weight_K: np.ndarray,
    length_K: np.ndarray,
    norm: float,
    step: float,
    steps_D: np.ndarray,
) -> None:
    """Add each weighted row, scaled to at most ``norm``, in whole steps; leave out what is not
    finite."""
    for k in range(len(weight_K)):
        weight = np.float64(weight_K[k])
        length = abs(weight) * length_K[k]
        if math.isfinite(length):
            factor = weight * (norm / max(norm, length)) / step
            for d in range(len(steps_D)):
                steps_D[d] += np.trunc(factor * x_KD[k, d])
