"""How often rewards of users' own are right about the half of judgements that they do not know.

Legend: U users, M judgements of one user or half, D dimensions.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from murmuration.preference.linear.examples import PairExamples

#: From one half of a user's judgements, as differences (M, D) and labels (M,), to a reward (D,).
Own = Callable[[np.ndarray, np.ndarray], np.ndarray]


def right_by_halves(pairs: PairExamples, half_J: np.ndarray, own: Own) -> np.ndarray:
    """Return of which share of what is predicted each user's own reward is right, (U,) float64.

    Each half is predicted by the reward that the other gives, ties of rewards count half, and
    tied judgements are left out. NaN of users without two halves. A user's share is a function of
    that user's judgements alone.

    Args:
        pairs: judgements of pairs.
        half_J: of `preference.linear.tastes.halves`.
        own: makes a user's reward.
    """
    x_RD, y_R, starts = (part.numpy() for part in (pairs.x_RD, pairs.y_R, pairs.start_U))
    share_U = np.full(len(starts) - 1, np.nan)
    for user, (first, end) in enumerate(pairwise(starts.tolist())):
        half_M, right = half_J[first:end], []
        for known, other in ((0, 1), (1, 0)):
            known_M, other_M = (first + np.flatnonzero(half_M == half) for half in (known, other))
            other_M = other_M[y_R[other_M] != 0.5]
            if len(known_M) and len(other_M):
                logits_M = x_RD[other_M] @ own(x_RD[known_M], y_R[known_M])
                right.append(0.5 + 0.5 * np.sign(logits_M) * np.sign(y_R[other_M] - 0.5))
        if right:
            share_U[user] = np.concatenate(right).mean()
    return share_U
