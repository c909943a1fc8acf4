"""Averaged gradients of many users at once, without a copy per user.

The loss of a user is the mean over their chosen judgements of a function of the logit x·θ, so a
user's gradient is a weighted mean of their rows of x. Users are processed in chunks whose rows fit
the processor's cache: rows are gathered once into a reused buffer, read for the logits and read
again, from cache, for the weighted sums. That makes ragged users as cheap as equal ones.

Which judgements take part when a user has more than G: a window of G consecutive ones (cyclic), at
a random place each round. Each judgement is equally likely, and a window is contiguous in memory.

Legend: R rows (judgements), S sampled users, B users in a chunk, K rows of sampled users,
D dimensions.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from preference.examples import PairExamples

_CHUNK_BYTES = 2 * 2**20  # measured best of 0.5–8 MiB, for D from 384 to 10,000

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
    users = torch.from_numpy(np.ascontiguousarray(users_S, dtype=np.int64))
    first_S = start_U[users]
    count_S = start_U[users + 1] - first_S
    taken_S = count_S.clamp(max=group_size)
    within_K = torch.arange(int(taken_S.sum())) - torch.repeat_interleave(
        taken_S.cumsum(0) - taken_S, taken_S
    )
    if bool((count_S <= group_size).all()):
        return torch.repeat_interleave(first_S, taken_S) + within_K, taken_S
    offset_S = torch.from_numpy((words_S % count_S.numpy().astype(np.uint64)).astype(np.int64))
    place_K = torch.repeat_interleave(offset_S, taken_S) + within_K
    place_K %= torch.repeat_interleave(count_S, taken_S)
    return torch.repeat_interleave(first_S, taken_S) + place_K, taken_S


def user_gradients(
    examples: PairExamples,
    theta_D: torch.Tensor,
    rows_K: torch.Tensor,
    taken_S: torch.Tensor,
    residual: Residual = btl_residual,
) -> Iterator[torch.Tensor]:
    """Each sampled user's mean gradient at θ, chunk by chunk, each of shape (B, D) float32.

    ``rows_K`` and ``taken_S`` come from ``windows``; no user is split over two chunks. The yielded
    tensor is valid until the next one is asked for.
    """
    x_RD, dimension = examples.x_RD, examples.dimension
    ends_S = taken_S.cumsum(0).numpy()
    chunk_rows = max(1, _CHUNK_BYTES // (4 * dimension))
    largest = int(taken_S.max()) if len(taken_S) else 0
    buffer = torch.empty(max(chunk_rows, largest), dimension, dtype=x_RD.dtype)
    places = torch.arange(len(buffer))
    first, row = 0, 0
    while first < len(ends_S):
        # As many whole users as fit; always at least one.
        last = max(first + 1, int(np.searchsorted(ends_S, row + chunk_rows, side="right")))
        end = int(ends_S[last - 1])
        index_K, taken_B = rows_K[row:end], taken_S[first:last]
        x_KD = torch.index_select(x_RD, 0, index_K, out=buffer[: end - row])
        weight_K = residual(x_KD @ theta_D, examples.y_R[index_K])
        weight_K /= torch.repeat_interleave(taken_B, taken_B)
        yield torch.nn.functional.embedding_bag(
            places[: end - row],
            x_KD,
            taken_B.cumsum(0) - taken_B,
            mode="sum",
            per_sample_weights=weight_K,
        )
        first, row = last, end
