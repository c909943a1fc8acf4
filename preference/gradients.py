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

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from preference.cores import on_each_core
from preference.examples import PairExamples

_CHUNK_BYTES = 2**20  # half of a core's second-level cache, which other things use too
_PARTS = 32  # of a sum: enough for the cores of one machine, and few enough to keep

#: Derivative of the loss by the logit, from logits and labels: the model of a preference.
Residual = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def btl_residual(logits_K: torch.Tensor, y_K: torch.Tensor) -> torch.Tensor:
    """σ(logit) − y: the derivative of the Bradley–Terry–Luce log loss. A tie has y = ½."""
    return torch.sigmoid(logits_K).sub_(y_K)


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
    for chunk in range(len(work)):
        yield work.gradients(chunk)


def sum_over_users(
    examples: PairExamples,
    theta_D: torch.Tensor,
    rows_K: torch.Tensor,
    taken_S: torch.Tensor,
    reduce: Callable[[torch.Tensor], torch.Tensor],
    residual: Residual = btl_residual,
) -> torch.Tensor:
    """The sum over chunks of ``reduce`` of the users' gradients, (D,) float64, on every core.

    ``reduce`` takes a chunk of gradients (B, D) to a vector (D,) and is called from several
    threads at once; other arguments as in ``user_gradients``. The result is the same, bit for bit,
    on any number of cores.
    """
    work = _Work.of(examples, theta_D, rows_K, taken_S, residual)

    def part_of(part: int) -> torch.Tensor:
        sum_D = torch.zeros(examples.dimension, dtype=torch.float64)
        for chunk in range(len(work) * part // parts, len(work) * (part + 1) // parts):
            sum_D += reduce(work.gradients(chunk))
        return sum_D

    parts = min(_PARTS, len(work))
    total_D = torch.zeros(examples.dimension, dtype=torch.float64)
    for part_D in on_each_core(part_of, parts):
        total_D += part_D
    return total_D


@dataclass(frozen=True, eq=False)
class _Work:
    """The users of a call, cut into chunks; everything small is computed for all of them at once.

    ``index``, ``y``, ``scale`` (of K rows) and ``bags`` (offsets of S users) are split by chunk.
    """

    x_RD: torch.Tensor
    theta_D: torch.Tensor
    residual: Residual
    index: tuple[torch.Tensor, ...]
    y: tuple[torch.Tensor, ...]
    scale: tuple[torch.Tensor, ...]
    bags: tuple[torch.Tensor, ...]

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
        cuts = _cuts(ends, max(1, _CHUNK_BYTES // (4 * examples.dimension)))
        users = np.diff(cuts)
        row_cuts = np.concatenate([[0], ends])[cuts]
        sizes = np.diff(row_cuts).tolist()
        bags_S = ends - taken - np.repeat(row_cuts[:-1], users)
        scale_K = np.repeat(1.0 / taken.clip(min=1), taken).astype(np.float32)
        return cls(
            examples.x_RD,
            theta_D,
            residual,
            rows_K.split(sizes),
            torch.from_numpy(examples.y_R.numpy()[rows_K.numpy()]).split(sizes),
            torch.from_numpy(scale_K).split(sizes),
            torch.from_numpy(bags_S).split(users.tolist()),
        )

    def __len__(self) -> int:
        return len(self.bags)

    def gradients(self, chunk: int) -> torch.Tensor:
        """Mean gradients of the users of one chunk, (B, D)."""
        index_K = self.index[chunk]
        buffer_KD, places_K = _buffers(len(index_K), self.x_RD)
        x_KD = torch.index_select(self.x_RD, 0, index_K, out=buffer_KD)
        weight_K = self.residual(x_KD @ self.theta_D, self.y[chunk]).mul_(self.scale[chunk])
        return torch.nn.functional.embedding_bag(
            places_K, x_KD, self.bags[chunk], mode="sum", per_sample_weights=weight_K
        )


def _cuts(ends_S: np.ndarray, rows: int) -> np.ndarray:
    """Where chunks of about ``rows`` rows begin and end: whole users, at least one in each."""
    cuts, row = [0], 0
    while cuts[-1] < len(ends_S):
        fitting = int(np.searchsorted(ends_S, row + rows, side="right"))
        cuts.append(max(cuts[-1] + 1, fitting))
        row = int(ends_S[cuts[-1] - 1])
    return np.array(cuts)


_thread = threading.local()


def _buffers(rows: int, x_RD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """This thread's memory for gathered rows, and 0 … rows − 1; fresh pages cost more than rows."""
    size = rows * x_RD.shape[1]
    if getattr(_thread, "size", -1) < size or _thread.memory.dtype != x_RD.dtype:
        _thread.size, _thread.memory = size, torch.empty(size, dtype=x_RD.dtype)
    if getattr(_thread, "rows", -1) < rows:
        _thread.rows, _thread.places = rows, torch.arange(rows)
    return _thread.memory[:size].view(rows, x_RD.shape[1]), _thread.places[:rows]
