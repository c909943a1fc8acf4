"""What node halves share: from sampled users to one bounded sum.

Legend: S sampled users, D dimensions, B users in a chunk.
"""

from typing import Protocol

import numpy as np
import torch

from preference.examples import PairExamples
from preference.gradients import sum_over_users, windows
from privacy.randomness import Randomness
from strategies.messages import Work


class ClipSum(Protocol):
    """Bounds each user's vector and adds them up; see ``privacy.clipping``."""

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum over B users, (D,)."""
        ...


def bounded_sum(
    examples: PairExamples, work: Work, keys_S: np.ndarray, source: Randomness, bound: ClipSum
) -> np.ndarray:
    """The sum over the asked users of their bounded averaged gradients at θ, (D,) float32."""
    words_S = source.user_words("window", int(work.number("round")), keys_S)
    group_size = int(work.number("group-size"))
    rows_K, taken_S = windows(examples.start_U, work.users_S, group_size, words_S)
    theta_D = work.tensor("theta")
    # Added up in float64, so that how users are grouped does not show in the result.
    total_D = sum_over_users(examples, theta_D, rows_K, taken_S, bound.clip_sum)
    return total_D.numpy().astype(np.float32)
