"""Averaged gradients of many users at once, without a copy per user.

The loss of a user is the mean over their chosen judgements of a function of the logit x·θ, so a
user's gradient is a weighted mean of their rows of x. Users are processed in chunks whose rows fit
a core's cache: rows are gathered once into a reused buffer, read for the logits and read again,
from cache, for the weighted sums. That makes ragged users as cheap as equal ones.

Chunks need nothing of each other, so each is worked on by one core; see ``preference.cores``. How
users are cut into chunks and in which order these are added up depends on the users alone, so the
same users give the same bits on any number of cores.

Which judgements take part when a user has more than G: a window of G consecutive ones (cyclic), at
a random place each round. Each judgement is equally likely, and a window is contiguous in memory.

Legend: R rows (judgements), S sampled users, B users in a chunk, K rows of sampled users,
D dimensions.
"""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from preference.cores import on_each_core
from preference.examples import PairExamples

_CHUNK_BYTES = 2 * 2**20  # a core's second-level cache; smaller chunks only cost more calls
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
) -> torch.Tensor:
    """The sum over chunks of ``reduce`` of the users' gradients, (D,) float64, on every core.

    ``reduce`` takes a chunk of gradients (B, D) to a vector (D,) and is called from several
    threads at once; with ``local`` it takes how far these steps descend, θ − θ_u, instead. Other
    arguments as in ``user_gradients``. The result is the same, bit for bit, on any number of cores.
    """
    work = _Work.of(examples, theta_D, rows_K, taken_S, residual)

    def part_of(part: int) -> torch.Tensor:
        sum_D = torch.zeros(examples.dimension, dtype=torch.float64)
        for chunk in range(work.chunks * part // parts, work.chunks * (part + 1) // parts):
            sum_D += reduce(work.gradients(chunk) if local is None else work.descents(chunk, local))
        return sum_D

    parts = min(_PARTS, work.chunks)
    total_D = torch.zeros(examples.dimension, dtype=torch.float64)
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
        cuts = _cuts(ends, max(1, _CHUNK_BYTES // (4 * examples.dimension)))
        return cls(
            examples,
            theta_D,
            residual,
            rows_K,
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
        x_KD = self._gather(chunk)
        return self._means(chunk, x_KD, x_KD @ self.theta_D)

    def descents(self, chunk: int, local: LocalSteps) -> torch.Tensor:
        """θ − θ_u after each user's own gradient steps from θ, (B, D)."""
        x_KD = self._gather(chunk)
        logits_K = x_KD @ self.theta_D
        # Kept as the way travelled: as the difference of two models it would be rounded like them.
        descent_BD = self._means(chunk, x_KD, logits_K).mul_(local.rate)
        bags_B = self._bags(chunk)
        taken_B = torch.diff(bags_B, append=bags_B.new_tensor([len(x_KD)]))
        user_K = torch.repeat_interleave(torch.arange(len(bags_B)), taken_B)
        for _ in range(local.steps - 1):
            moved_K = descent_BD[user_K].mul_(x_KD).sum(dim=1)
            descent_BD.add_(self._means(chunk, x_KD, logits_K - moved_K), alpha=local.rate)
        return descent_BD

    def _gather(self, chunk: int) -> torch.Tensor:
        """The rows of a chunk, (K, D), until this thread's next call."""
        first, last = self.row_cuts[chunk], self.row_cuts[chunk + 1]
        x_RD = self.examples.x_RD
        x_KD = _memory(x_RD).resize_(last - first, x_RD.shape[1])
        return torch.index_select(x_RD, 0, self.rows_K[first:last], out=x_KD)

    def _means(self, chunk: int, x_KD: torch.Tensor, logits_K: torch.Tensor) -> torch.Tensor:
        first, last = self.row_cuts[chunk], self.row_cuts[chunk + 1]
        slope_K = self.residual(logits_K, self.examples.y_R[self.rows_K[first:last]])
        slope_K *= self.weight_K[first:last]
        # Weighted sums of consecutive rows; what functional.embedding_bag calls.
        return torch.embedding_bag(
            x_KD, _places(last - first), self._bags(chunk), mode=0, per_sample_weights=slope_K
        )[0]

    def _bags(self, chunk: int) -> torch.Tensor:
        """Where each user's rows begin within a chunk, (B,)."""
        return self.before_S[self.cuts[chunk] : self.cuts[chunk + 1]] - self.row_cuts[chunk]


def _cuts(ends_S: np.ndarray, rows: int) -> list[int]:
    """Where chunks begin and end: at most about ``rows`` rows of whole users each, evenly."""
    total = int(ends_S[-1]) if len(ends_S) else 0
    chunks = -(-total // rows)
    inner = np.searchsorted(ends_S, [total * c // chunks for c in range(1, chunks)], side="right")
    return sorted({0, *inner.tolist(), len(ends_S)})


_thread = threading.local()


def _memory(x_RD: torch.Tensor) -> torch.Tensor:
    """Memory that this thread keeps for gathered rows: fresh pages would cost more than they."""
    if getattr(_thread, "dtype", None) != x_RD.dtype:
        _thread.dtype, _thread.memory = x_RD.dtype, torch.empty(0, dtype=x_RD.dtype)
    return _thread.memory


def _places(rows: int) -> torch.Tensor:
    """0 … rows − 1, from memory."""
    if getattr(_thread, "rows", -1) < rows:
        _thread.rows, _thread.places = rows, torch.arange(rows)
    return _thread.places[:rows]
