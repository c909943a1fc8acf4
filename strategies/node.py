"""What node halves share: which judgements count, and from users to one bounded sum.

What a user contributes is bounded twice over. In one round at most G of their judgements count, a
window at a random place each round, averaged over as many as there are: k_i = min(m_i, G) in the
terms of AUP-RLHF's Algorithm 4. And where K is given, at most K of them in the whole run: of a user
who gave thousands of judgements only these are ever touched.

Which ones these are is a function of the user's name alone (and of the seed, in a simulation): the
same in every round and after every restart, without a node having to remember anything. Any choice
that looks at nobody else's data keeps the guarantees, so it need not be secret or fresh.

Legend: U users of a node, S sampled users, N judgements of sampled users, B users in a chunk,
D dimensions.
"""

from typing import Protocol

import numpy as np
import torch

from preference.gradients import Examples, LocalSteps, sum_over_users, windows
from preference.models import PreferenceModel, preference_model
from privacy.clipping import UserClip
from privacy.randomness import Randomness
from strategies.messages import Work


class ClipSum(Protocol):
    """Bounds each user's vector and adds them up; see ``privacy.clipping``."""

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum over B users, (D,)."""
        ...


def retained(
    start_U: torch.Tensor, users_S: np.ndarray, keys_S: np.ndarray, most: int, source: Randomness
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a user keeps for the run, at most ``most``: judgements (N,) and counts (S,)."""
    fixed = source if source.seeded else Randomness(0)
    return windows(start_U, users_S, most, fixed.user_words("retain", 0, keys_S))


def sampled(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> tuple[torch.Tensor, torch.Tensor]:
    """What counts of the asked users in this round: judgements (N,) and counts (S,)."""
    words_S = source.user_words("window", int(work.number("round")), keys_S)
    group_size, most = int(work.number("group-size")), int(work.parameters.get("retain", 0))
    if not most:
        return windows(examples.start_U, work.users_S, group_size, words_S)
    kept_N, kept_S = retained(examples.start_U, work.users_S, keys_S, most, source)
    start_S = torch.cat([kept_S.new_zeros(1), kept_S.cumsum(0)])
    inner_N, taken_S = windows(start_S, np.arange(len(kept_S)), group_size, words_S)
    return kept_N[inner_N], taken_S


def clip_of(work: Work) -> UserClip:
    """The bound that is asked for; ValueError if it is none."""
    return UserClip(work.number("clip-norm"))


def model_of(examples: Examples, work: Work) -> PreferenceModel:
    """The preference model that is asked for, as it applies to these judgements."""
    return preference_model(str(work.parameters.get("model", "btl")), examples.kind, examples.width)


def batches_users(work: Work) -> bool:
    """Whether several users may share an operation, by a public setting of the run."""
    return bool(work.parameters.get("batch-users", False))


def bounded_sum(
    examples: Examples,
    work: Work,
    keys_S: np.ndarray,
    source: Randomness,
    bound: ClipSum,
    local: LocalSteps | None = None,
) -> np.ndarray:
    """The sum over the asked users of their bounded averaged gradients at θ, (D,) float64.

    With ``local``, of how far these steps of their own take them down from θ.
    """
    taken_N, taken_S = sampled(examples, work, keys_S, source)
    theta_D = work.tensor("theta")
    total_D = sum_over_users(
        examples,
        theta_D,
        taken_N,
        taken_S,
        bound.clip_sum,
        model_of(examples, work),
        local=local,
        batch_users=batches_users(work),
    )
    return total_D.numpy()
