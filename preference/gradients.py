"""Averaged gradients of many users at once, without a copy per user.

The loss of a user is the mean over their chosen judgements of a function of the logit x·θ, so a
user's gradient is a weighted mean of their rows of x. Users are processed in chunks: rows are read
where they lie for the logits, and again for the weighted sums. Nothing is copied, and ragged users
are as cheap as equal ones.

Chunks need nothing of each other, so each is worked on by one core; see ``preference.cores``. How
users are cut into chunks and in which order these are added up depends on the users alone, so the
same users give the same bits on any number of cores.

Which judgements take part when a user has more than G: a window of G consecutive ones (cyclic), at
a random place each round. Each judgement is equally likely, and a window is contiguous in memory.

Legend: R rows (judgements), S sampled users, B users in a chunk, K rows of sampled users,
D dimensions.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from preference.cores import on_each_core
from preference.examples import PairExamples

# Bytes of rows in a chunk. Half of the least would fit a core's second-level cache, but threads
# that make many short calls wait for the interpreter's lock, and a few long ones do not.
_CHUNK_BYTES, _LARGE_CHUNK_BYTES = 4 * 2**20, 16 * 2**20
_CHUNKS = 4  # as many as a sum is cut into, between these sizes
_PARTS = 32  # of a sum: enough for the cores of one machine, and few enough to keep

#: Derivative of the loss by the logit, from logits and labels: the model of a preference.
Residual = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def btl_residual(logits_K: torch.Tensor, y_K: torch.Tensor) -> torch.Tensor:
    """σ(logit) − y: the derivative of the Bradley–Terry–Luce log loss. A tie has y = ½."""
    return torch.sigmoid(logits_K).sub_(y_K)


@dataclass(frozen=True)
class LocalSteps:
    """So many gradient steps of length ``rate`` on a user's own judgements."""

    steps: int
    rate: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--local-steps must be at least 1, got {self.steps}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"--local-rate must be positive, got {self.rate}")


def windows(
    start_U: torch.Tensor, users_S: np.ndarray, group_size: int, words_S: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows each sampled user contributes: at most ``group_size`` in a cyclic window.

    Args:
        start_U: row offsets of all users, length U + 1.
        users_S: indices of the sampled users.
        group_size: G, the most judgements of one user in one round.
        words_S: a uniform 64-bit word for each sampled user; it places the window.

    Returns:
        The row of each of K rows, user after user (K,), and how many belong to each user (S,).
    """
    # NumPy: on vectors this short it is several times as fast as torch.
    start = start_U.numpy()
    first_S = start[users_S]
    count_S = start[users_S + 1] - first_S
    taken_S = np.minimum(count_S, group_size)
    before_S = np.cumsum(taken_S) - taken_S
    within_K = np.arange(taken_S.sum())
    if (count_S <= group_size).all():
        rows_K = within_K + np.repeat(first_S - before_S, taken_S)
    else:
        offset_S = (words_S % count_S.clip(min=1).astype(np.uint64)).astype(np.int64)
        place_K = within_K + np.repeat(offset_S - before_S, taken_S)
        count_K = np.repeat(count_S, taken_S)
        place_K -= count_K * (place_K >= count_K)
        rows_K = place_K + np.repeat(first_S, taken_S)
    return torch.from_numpy(rows_K), torch.from_numpy(taken_S)


def user_gradients(
    examples: PairExamples,
    theta_D: torch.Tensor,
    rows_K: torch.Tensor,
    taken_S: torch.Tensor,
    residual: Residual = btl_residual,
) -> Iterator[torch.Tensor]:
    """Each sampled user's mean gradient at θ, chunk by chunk, each of shape (B, D) float32.

    ``rows_K`` and ``taken_S`` come from ``windows``; no user is split over two chunks.
    """
    work = _Work.of(examples, theta_D, rows_K, taken_S, residual)
    for chunk in range(work.chunks):
        yield work.gradients(chunk)


def sum_over_users(
    examples: PairExamples,
    theta_D: torch.Tensor,
    rows_K: torch.Tensor,
    taken_S: torch.Tensor,
    reduce: Callable[[torch.Tensor], torch.Tensor],
    residual: Residual = btl_residual,
    local: LocalSteps | None = None,
    width: int | None = None,
) -> torch.Tensor:
    """The sum over chunks of ``reduce`` of the users' gradients, (D,) float64, on every core.

    ``reduce`` takes a chunk of gradients (B, D) to a vector (D,) and is called from several
    threads at once; with ``local`` it takes how far these steps descend, θ − θ_u, instead. Its
    vectors may have another ``width`` than D. Other arguments as in ``user_gradients``. The result
    is the same, bit for bit, on any number of cores.
    """
    width = examples.dimension if width is None else width
    work = _Work.of(examples, theta_D, rows_K, taken_S, residual)

    def part_of(part: int) -> torch.Tensor:
        sum_D = torch.zeros(width, dtype=torch.float64)
        for chunk in range(work.chunks * part // parts, work.chunks * (part + 1) // parts):
            sum_D += reduce(work.gradients(chunk) if local is None else work.descents(chunk, local))
        return sum_D

    parts = min(_PARTS, work.chunks)
    total_D = torch.zeros(width, dtype=torch.float64)
    for part_D in on_each_core(part_of, parts):
        total_D += part_D
    return total_D


@dataclass(frozen=True, eq=False)
class _Work:
    """The sampled users, cut into chunks.

    Chunk c is users ``cuts[c]`` to ``cuts[c + 1]`` and rows ``row_cuts[c]`` to ``row_cuts[c + 1]``.
    """

    examples: PairExamples
    theta_D: torch.Tensor
    residual: Residual
    rows_K: torch.Tensor
    y_K: torch.Tensor
    weight_K: torch.Tensor  # one over the user's number of rows
    before_S: torch.Tensor  # rows of earlier users
    cuts: list[int]
    row_cuts: list[int]

    @classmethod
    def of(
        cls,
        examples: PairExamples,
        theta_D: torch.Tensor,
        rows_K: torch.Tensor,
        taken_S: torch.Tensor,
        residual: Residual,
    ) -> "_Work":
        taken = taken_S.numpy()
        ends = np.cumsum(taken)
        weight_K = np.repeat(np.float32(1) / np.maximum(taken, 1, dtype=np.float32), taken)
        cuts = _cuts(ends, 4 * examples.dimension)
        return cls(
            examples,
            theta_D,
            residual,
            rows_K,
            torch.from_numpy(examples.y_R.numpy()[rows_K.numpy()]),
            torch.from_numpy(weight_K),
            torch.from_numpy(ends - taken),
            cuts,
            [0, *(int(ends[cut - 1]) for cut in cuts[1:])],
        )

    @property
    def chunks(self) -> int:
        """How many."""
        return len(self.cuts) - 1

    def gradients(self, chunk: int) -> torch.Tensor:
        """Mean gradients of the users of one chunk, (B, D)."""
        # Every call into torch costs some microseconds, as much as a thousand rows' arithmetic.
        rows = slice(self.row_cuts[chunk], self.row_cuts[chunk + 1])
        bags_B = self._bags(chunk)
        logits_K = self._dots(rows, self.theta_D[None], bags_B[:1])
        return self._means(rows, logits_K, bags_B)

    def descents(self, chunk: int, local: LocalSteps) -> torch.Tensor:
        """θ − θ_u after each user's own gradient steps from θ, (B, D)."""
        rows = slice(self.row_cuts[chunk], self.row_cuts[chunk + 1])
        bags_B = self._bags(chunk)
        logits_K = self._dots(rows, self.theta_D[None], bags_B[:1])
        # Kept as the way travelled: as the difference of two models it would be rounded like them.
        descent_BD = self._means(rows, logits_K, bags_B).mul_(local.rate)
        for _ in range(local.steps - 1):
            moved_K = self._dots(rows, descent_BD, bags_B)
            descent_BD.add_(self._means(rows, logits_K - moved_K, bags_B), alpha=local.rate)
        return descent_BD

    def _dots(self, rows: slice, vectors_BD: torch.Tensor, bags_B: torch.Tensor) -> torch.Tensor:
        """Inner products (K,) of rows with vectors, one vector for all rows from a bag's start on.

        Computed as the derivative of weighted sums by their weights, which is the one operation in
        torch that does not copy the rows first.
        """
        return torch.ops.aten._embedding_bag_per_sample_weights_backward(
            vectors_BD, self.examples.x_RD, self.rows_K[rows], bags_B, bags_B[:0], mode=0
        )

    def _means(self, rows: slice, logits_K: torch.Tensor, bags_B: torch.Tensor) -> torch.Tensor:
        """Mean of each user's rows times residuals, (B, D)."""
        slope_K = self.residual(logits_K, self.y_K[rows]).mul_(self.weight_K[rows])
        # What functional.embedding_bag calls.
        return torch.embedding_bag(
            self.examples.x_RD, self.rows_K[rows], bags_B, mode=0, per_sample_weights=slope_K
        )[0]

    def _bags(self, chunk: int) -> torch.Tensor:
        """Where each user's rows begin within a chunk, (B,)."""
        return self.before_S[self.cuts[chunk] : self.cuts[chunk + 1]] - self.row_cuts[chunk]


def _cuts(ends_S: np.ndarray, row_bytes: int) -> list[int]:
    """Where chunks begin and end: whole users, about equally many rows in each."""
    total = int(ends_S[-1]) if len(ends_S) else 0
    size = min(max(_CHUNK_BYTES, total * row_bytes // _CHUNKS), _LARGE_CHUNK_BYTES)
    chunks = -(-total // max(1, size // row_bytes))
    inner = np.searchsorted(ends_S, [total * c // chunks for c in range(1, chunks)], side="right")
    return sorted({0, *inner.tolist(), len(ends_S)})
