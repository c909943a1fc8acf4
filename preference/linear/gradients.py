"""Averaged gradients of many users at once, without a copy per user.

The loss of a user is the mean over their chosen judgements of a function of the logits x·θ of the
judgement's rows, so a user's gradient is a weighted sum of rows of x. Users are processed in
chunks; nothing but the gradients of a chunk is ever stored, and ragged users are as cheap as equal
ones. The preference models that ship are compiled (``preference.linear.numba_gradients``); any
other is computed by tensor operations, user by user (``preference.linear.torch_gradients``).

A user's vector is a function of that user's judgements, θ and public constants, to the last bit:
not of other users, of their number, or of how they are cut into chunks. Else one user would move
the others' clipped vectors, which no sensitivity counts.

Chunks need nothing of each other, so each is worked on by one core; see
``privacy.mechanisms.parallel``. A chunk holds a bounded number of users, and no user has more than
the G judgements taken, so one with many more takes no more memory or time.

Which judgements take part when a user has more than G: a window of G consecutive ones (cyclic), at
a random place each round. Each judgement is equally likely, and a window is contiguous in memory.

Legend: R rows (W of each judgement), S sampled users, N judgements of sampled users, B users in a
chunk, D dimensions.
"""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np
import torch

from murmuration.preference.linear import numba_gradients
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.linear.torch_gradients import Rows, local_updates_alone
from murmuration.preference.models import PreferenceModel
from murmuration.privacy.mechanisms.parallel import on_each_core

# Bytes of rows in a chunk: enough that handing it to another core costs nothing in comparison.
CHUNK_BYTES, _LARGE_CHUNK_BYTES = 4 * 2**20, 16 * 2**20
_CHUNKS = 4  # as many as a sum is cut into, between these sizes
_PARTS = 32  # of a sum: enough for the cores of one machine, and few enough to keep


def windows(
    start_U: torch.Tensor, users_S: np.ndarray, group_size: int, words_S: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Select the judgements of each sampled user: at most ``group_size``, in a cyclic window.

    Args:
        start_U: offsets of all users' judgements, length U + 1.
        users_S: indices of the sampled users.
        group_size: G, the most judgements of one user in one round.
        words_S: a uniform 64-bit word for each sampled user; it places the window.

    Returns:
        The judgements, user after user (N,), and the number of each user's (S,).
    """
    # NumPy: on vectors this short it is several times as fast as torch.
    start = start_U.numpy()
    first_S = start[users_S]
    count_S = start[users_S + 1] - first_S
    taken_S = np.minimum(count_S, group_size)
    before_S = np.cumsum(taken_S) - taken_S
    within_N = np.arange(taken_S.sum())
    many_S = count_S > group_size
    if not many_S.any():
        taken_N = within_N + np.repeat(first_S - before_S, taken_S)
    else:
        offset_S = (words_S % count_S.clip(min=1).astype(np.uint64)).astype(np.int64)
        offset_S *= many_S  # whose judgements are all taken, in their order, whoever else has more
        place_N = within_N + np.repeat(offset_S - before_S, taken_S)
        count_N = np.repeat(count_S, taken_S)
        place_N -= count_N * (place_N >= count_N)
        taken_N = place_N + np.repeat(first_S, taken_S)
    return torch.from_numpy(taken_N), torch.from_numpy(taken_S)


def user_gradients(
    examples: Rows,
    theta_D: torch.Tensor,
    taken_N: torch.Tensor,
    taken_S: torch.Tensor,
    model: PreferenceModel,
) -> Iterator[torch.Tensor]:
    """Each sampled user's mean gradient at θ, chunk by chunk, each of shape (B, D) float32.

    ``taken_N`` and ``taken_S`` come from ``windows``; no user is split over two chunks.
    """
    work = _Work.of(examples, theta_D, taken_N, taken_S, model)
    for chunk in range(work.chunks):
        yield work.local_updates(chunk, _ONE_STEP)


def sum_over_users(
    examples: Rows,
    theta_D: torch.Tensor,
    taken_N: torch.Tensor,
    taken_S: torch.Tensor,
    reduce: Callable[[torch.Tensor], torch.Tensor],
    *,
    model: PreferenceModel,
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
    work = _Work.of(examples, theta_D, taken_N, taken_S, model)
    parts = min(_PARTS, work.chunks)

    def part_of(part: int) -> torch.Tensor:
        sum_D = torch.zeros(width, dtype=torch.float64)
        for chunk in range(work.chunks * part // parts, work.chunks * (part + 1) // parts):
            sum_D += reduce(work.local_updates(chunk, local or _ONE_STEP))
        return sum_D

    if parts == 1:
        return part_of(0)
    total_D = torch.zeros(width, dtype=torch.float64)
    for part_D in on_each_core(part_of, parts):
        total_D += part_D
    return total_D


_ONE_STEP = LocalSteps(1, 1.0)  # what it descends is the gradient


@dataclass(frozen=True, eq=False)
class _Work:
    """The sampled users, cut into chunks: chunk c is users ``cuts[c]`` to ``cuts[c + 1]``."""

    examples: Rows
    theta_D: torch.Tensor
    model: PreferenceModel
    _: KW_ONLY
    taken_N: torch.Tensor
    ends_S: np.ndarray
    cuts: list[int]

    @classmethod
    def of(
        cls,
        examples: Rows,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
    ) -> "_Work":
        # Compiled code does not look again, and would read beyond the end of a shorter model.
        if theta_D.shape != (examples.dimension,):
            raise ValueError(
                f"a model of shape {tuple(theta_D.shape)} for {examples.dimension} features"
            )
        ends_S = np.cumsum(taken_S.numpy())
        # Whoever has no judgement takes room for a gradient, too.
        rows_S = np.cumsum(np.maximum(taken_S.numpy(), 1))
        cuts = _cuts(rows_S, 4 * examples.dimension * examples.width)
        return cls(examples, theta_D, model, taken_N=taken_N, ends_S=ends_S, cuts=cuts)

    @property
    def chunks(self) -> int:
        """Their number."""
        return len(self.cuts) - 1

    def local_updates(self, chunk: int, local: LocalSteps) -> torch.Tensor:
        """θ − θ_u after each user's own gradient steps from θ, (B, D)."""
        users = slice(self.cuts[chunk], self.cuts[chunk + 1])
        first = int(self.ends_S[users.start - 1]) if users.start else 0
        ends_B = self.ends_S[users] - first
        taken_N = self.taken_N[first : first + int(ends_B[-1])]
        examples = self.examples
        if self.model.code is None:
            return local_updates_alone(
                examples, taken_N, ends_B, self.theta_D, model=self.model, local=local
            )
        out_BD = torch.empty(len(ends_B), examples.dimension)
        numba_gradients.local_updates(
            examples.x_RD.numpy(),
            examples.y_R.numpy(),
            examples.width,
            taken_N.numpy(),
            ends_B,
            self.theta_D.numpy(),
            self.model.code,
            local.steps,
            local.rate,
            out_BD.numpy(),
        )
        return out_BD


def _cuts(ends_S: np.ndarray, bytes_each: int) -> list[int]:
    """The bounds of chunks: whole users, with about equally many judgements in each."""
    total = int(ends_S[-1]) if len(ends_S) else 0
    size = min(max(CHUNK_BYTES, total * bytes_each // _CHUNKS), _LARGE_CHUNK_BYTES)
    chunks = -(-total // max(1, size // bytes_each))
    inner = np.searchsorted(ends_S, [total * c // chunks for c in range(1, chunks)], side="right")
    return sorted({0, *inner.tolist(), len(ends_S)})
