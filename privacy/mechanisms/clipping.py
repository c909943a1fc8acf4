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
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.numba_jit import kernel
from murmuration.privacy.mechanisms.parallel import on_each_core
from murmuration.privacy.theorems import Unit

if TYPE_CHECKING:
    import torch

# Rounding, also to float32 afterwards, must not carry a scaled vector out of the ball.
ROUNDING = 1.0 - 2.0**-20
# Squares are added up within blocks, and those in order: the same length, to the last bit, however
# many cores compute them, and whether or not blocks that are zero are looked at.
BLOCK = 2**12


@dataclass(frozen=True)
class UserClip:
    """Scales each user's vector into the ℓ2 ball of radius ``norm`` (McMahan et al. 2018).

    It is then rounded toward zero onto the grid of ``step``.

    Formal guarantee: for any input, finite or not, each user's term in ``clip_sum`` is a function
    of that user's vector alone and has ℓ2 norm at most ``norm``, and the sum is exact, in any
    order, for as many users as ``grid.check_room`` admits; so as computed, to the last bit, it
    moves by at most ``sensitivity(adjacency)`` between neighbours.
    """

    unit: ClassVar[Unit] = Unit.VECTOR
    norm: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")
        _ = self.step  # refuses a norm that has no grid

    @property
    def step(self) -> float:
        """The step of the grid of sums."""
        return grid.step_for(self.norm)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The ℓ2 sensitivity of the sum of clipped vectors."""
        return self.norm * adjacency.vectors_changed

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum of users' clipped vectors, float64, (D,); a user who is not finite is zero.

        Vectors that are on another device are clipped there; the sum is in this machine's memory.
        """
        import torch

        if grads_BD.device.type != "cpu":
            sum_D = grads_BD.new_zeros(grads_BD.shape[1], dtype=torch.float64)
            add_there(sum_D, grads_BD, self.norm * ROUNDING, self.step)
            return sum_D.cpu()
        steps_D = np.zeros(grads_BD.shape[1])
        _add_clipped(grads_BD.numpy(), self.norm * ROUNDING, self.step, steps_D)
        return torch.from_numpy(steps_D * self.step)

    def add_to(
        self,
        sum_D: torch.Tensor,
        grads_BD: torch.Tensor,
        stretches_P2: np.ndarray,
    ) -> None:
        """``sum_D += clip_sum(grads_BD)``, the same bits, where rows are long and mostly zero.

        Args:
            sum_D: float64, a sum of clipped vectors, on the rows' device.
            grads_BD: as of ``clip_sum``.
            stretches_P2: begin and end of stretches of the rows, in any order; outside them the
                rows are zero, and nothing there is looked at.
        """
        if grads_BD.device.type != "cpu":
            add_there(sum_D, grads_BD, self.norm * ROUNDING, self.step)
            return
        blocks_P = _blocks(stretches_P2, len(sum_D))
        for grad_D in grads_BD.numpy():
            self._add_row(sum_D.numpy(), grad_D, blocks_P)

    def _add_row(
        self,
        sum_D: np.ndarray,
        grad_D: np.ndarray,
        blocks_P: np.ndarray,
    ) -> None:
        square_P = np.empty(len(blocks_P))
        parts = [slice(low, low + _BLOCKS) for low in range(0, len(blocks_P), _BLOCKS)]

        def measure(piece: int) -> None:
            _squares(grad_D, blocks_P[parts[piece]], square_P[parts[piece]])

        def add(piece: int) -> None:
            _add_blocks(grad_D, factor, self.step, blocks_P[parts[piece]], sum_D)

        on_each_core(measure, len(parts))
        factor = shortening(math.sqrt(_in_order(square_P)), self.norm * ROUNDING, self.step)
        if factor:
            on_each_core(add, len(parts))

    def is_valid(self, sum_D: np.ndarray, users: int) -> bool:
        """True if ``sum_D`` can be a sum of ``users`` clipped vectors: finite and short enough."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * users * (1.0 + 1e-5)


def add_there(
    sum_D: torch.Tensor,
    grads_BD: torch.Tensor,
    norm: float,
    step: float,
    centre_D: torch.Tensor | None = None,
) -> torch.Tensor:
    """Add to ``sum_D`` as ``_add_clipped`` does, by tensor operations on the rows' device; the
    rows' lengths, (B,) float64.

    Of the rows less ``centre_D`` (float64, on their device), if there is one. Row by row, so that
    no row's length depends on the others, and in pieces, because float64 copies are long.
    """
    import torch

    pieces = [slice(low, low + _PIECE) for low in range(0, len(sum_D), _PIECE)]

    def apart(row: int, piece: slice) -> torch.Tensor:
        row_D = grads_BD[row, piece].double()
        return row_D if centre_D is None else row_D.sub_(centre_D[piece])

    lengths = torch.linalg.vector_norm
    of_rows = [
        lengths(torch.stack([lengths(apart(row, piece)) for piece in pieces]))
        for row in range(len(grads_BD))
    ]
    length_B = torch.stack(of_rows).cpu()
    for row, length in enumerate(length_B.tolist()):
        if factor := shortening(length, norm, step):
            for piece in pieces:
                sum_D[piece].add_(apart(row, piece).mul_(factor).trunc_(), alpha=step)
    return length_B


_PIECE = 2**24  # numbers of a row on another device that are float64 at a time
_BLOCKS = 64  # a piece of work for one core


def _blocks(stretches_P2: np.ndarray, dimension: int) -> np.ndarray:
    """The blocks of a vector that these stretches touch, ascending."""
    change = np.zeros(dimension // BLOCK + 2, dtype=np.int64)
    begin_P, end_P = stretches_P2[stretches_P2[:, 0] < stretches_P2[:, 1]].T
    np.add.at(change, begin_P // BLOCK, 1)
    np.add.at(change, (end_P - 1) // BLOCK + 1, -1)
    return np.flatnonzero(np.cumsum(change))


# Compiled, because a vector that has just been computed is still in the cache: one pass for its
# length, one to add it.
@kernel()
def _add_clipped(grads_BD: np.ndarray, norm: float, step: float, steps_D: np.ndarray) -> None:
    """Add each row, scaled to at most ``norm``, in whole steps; leave out what is not finite."""
    for b in range(len(grads_BD)):
        grad_D = grads_BD[b]
        total = 0.0
        for start in range(0, len(grad_D), BLOCK):
            total += square(grad_D[start : start + BLOCK])
        factor = shortening(math.sqrt(total), norm, step)
        if factor != 0.0:
            for d in range(len(grad_D)):
                steps_D[d] += np.trunc(factor * grad_D[d])


@kernel()
def shortening(length: float, norm: float, step: float) -> float:
    """The factor that shortens a vector to ``norm``, in steps; 0 if its length is not finite."""
    # By a power of two: nothing is rounded.
    return norm / max(norm, length) / step if math.isfinite(length) else 0.0


@kernel()
def _squares(grad_D: np.ndarray, blocks_P: np.ndarray, square_P: np.ndarray) -> None:
    """The squared length of some blocks."""
    for p in range(len(blocks_P)):
        start = blocks_P[p] * BLOCK
        square_P[p] = square(grad_D[start : start + BLOCK])


@kernel()
def _in_order(square_P: np.ndarray) -> float:
    """The sum in a fixed order."""
    total = 0.0
    for p in range(len(square_P)):
        total += square_P[p]
    return total


@kernel()
def _add_blocks(
    grad_D: np.ndarray, factor: float, step: float, blocks_P: np.ndarray, sum_D: np.ndarray
) -> None:
    """Add some blocks, each number in whole steps."""
    for p in range(len(blocks_P)):
        start = blocks_P[p] * BLOCK
        for d in range(start, min(start + BLOCK, len(grad_D))):
            sum_D[d] += np.trunc(factor * grad_D[d]) * step


@kernel(fastmath={"reassoc", "contract"})
def square(grad_D: np.ndarray) -> float:
    """The squared length; the terms may be added in any order."""
    square = 0.0
    for d in range(len(grad_D)):
        square += np.float64(grad_D[d]) * np.float64(grad_D[d])
    return square


@dataclass(frozen=True)
class LabelClip(UserClip):
    """The same, of vectors whose prompts, responses and counts are shown to the server."""

    unit: ClassVar[Unit] = Unit.LABELS


@dataclass(frozen=True)
class NoClip:
    """Leaves vectors as they are: for the non-private twin only. It has no sensitivity at all."""

    unit: ClassVar[Unit] = Unit.UNBOUNDED

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Unbounded under every relation, so that no noise can be calibrated to it."""
        return math.inf

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The plain sum over users, float64, (D,); non-finite users count as zero."""
        import torch

        finite_B = torch.isfinite(grads_BD).all(dim=1)
        return grads_BD[finite_B].sum(dim=0, dtype=torch.float64).cpu()

    def is_valid(self, sum_D: np.ndarray, users: int) -> bool:
        """True if ``sum_D`` is finite."""
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

    unit: ClassVar[Unit] = Unit.EXAMPLES
    norm: float

    def __post_init__(self) -> None:
        _ = self.as_user  # validates the norm

    @property
    def as_user(self) -> UserClip:
        """The same bound, on examples whose gradients have been formed."""
        return UserClip(self.norm)

    @property
    def step(self) -> float:
        """The step of the grid of sums."""
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

    def is_valid(self, sum_D: np.ndarray, examples: int) -> bool:
        """True if ``sum_D`` can be a sum of ``examples`` clipped gradients."""
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
