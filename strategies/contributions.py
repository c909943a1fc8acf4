"""Common parts of node halves: the selection of judgements, and the sum of users' bounded vectors.

In one round at most G of a user's judgements count, a window at a random place each round, averaged
over as many as there are: k_i = min(m_i, G) in the terms of AUP-RLHF's Algorithm 4. Any choice that
does not use other users' data keeps the guarantees, so it need not be secret or fresh.

Legend: U users of a node, S sampled users, N judgements of sampled users, B users in a chunk,
D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.protocol.messages import TrainRequest

if TYPE_CHECKING:
    import torch

    from murmuration.preference.kinds.model import TrainingExamples
    from murmuration.preference.linear.local_steps import LocalSteps
    from murmuration.preference.models import PreferenceModel


class ClipSum(Protocol):
    """Bounds each user's vector and adds them up; see ``privacy.mechanisms.clipping``."""

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum over B users, (D,)."""
        ...


def sampled(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> tuple[torch.Tensor, torch.Tensor]:
    """The judgements of the sampled users that count in this round: judgements (N,) and counts
    (S,).
    """
    from murmuration.preference.linear.gradients import windows

    words_S = source.user_words("window", int(work.number("round")), keys_S)
    return windows(examples.start_U, work.users_S, int(work.number("group-size")), words_S)


def clip_of(work: TrainRequest) -> UserClip:
    """The bound that is asked for; ValueError if it is none."""
    return UserClip(work.number("clip-norm"))


def model_of(examples: TrainingExamples, work: TrainRequest) -> PreferenceModel:
    """The preference model that is asked for, as it applies to these judgements."""
    from murmuration.preference.models import preference_model

    return preference_model(str(work.parameters.get("model", "btl")), examples.kind, examples.width)


def shares_passes(work: TrainRequest) -> bool:
    """True if several users may share an operation, by a public setting of the run."""
    return bool(work.parameters.get("shared-passes", False))


def bounded_sum(
    examples: TrainingExamples,
    work: TrainRequest,
    keys_S: np.ndarray,
    source: Randomness,
    bound: ClipSum,
    *,
    local: LocalSteps | None = None,
) -> np.ndarray:
    """The sum over the asked users of their bounded averaged gradients at θ, (D,) float64.

    With ``local``, of how far these steps of their own take them down from θ.
    """
    taken_N, taken_S = sampled(examples, work, keys_S, source)
    theta_D = work.tensor("theta")
    total_D = examples.sum_over_users(
        theta_D,
        taken_N,
        taken_S,
        bound.clip_sum,
        model_of(examples, work),
        local=local,
        shared_passes=shares_passes(work),
        # Another kind of bound may be derived from this one, and is known by `clip_sum` alone.
        add=bound.add_to if type(bound) is UserClip else None,
    )
    return total_D.numpy()


# The node half of filters that compare users: each user's averaged gradient, one row each.
#
# What leaves a node here is not a sum: whoever filters must see every vector, so the server sees
# the averaged gradients of all sampled users in the clear, and no secure aggregation is possible.
# That is the price of both filtering variants of AUP, and one reason why neither is the default.
#
# A user who has no judgements, or whose gradient is not finite, is marked absent instead of being
# sent: one row of zeros, and a zero in ``present``. So is everybody of a node that does not answer,
# or answers with anything else. Being absent is a function of that user's data alone, so it is one
# of the things that a neighbouring data set may change, and the filters count only who is there.
#
# Legend: S sampled users, D dimensions.

#: The arrays of which a node sends one row a user.
STACKED = frozenset({"stack", "present"})


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """``stack`` (S, D): averaged gradients at θ; ``present`` (S,): 1, or 0 with a row of zeros.

    A pure function of its arguments (with a seeded ``source``). Raises KeyError or ValueError for
    parameters that are missing or wrong.
    """
    import torch

    taken_N, taken_S = sampled(examples, work, keys_S, source)
    theta_D, model = work.tensor("theta"), model_of(examples, work)
    together = shares_passes(work)
    result = examples.user_gradients(theta_D, taken_N, taken_S, model, shared_passes=together)
    # A language model's chunk is valid until the next is asked for.
    rows_BD = [chunk_BD.cpu().clone() for chunk_BD in result]
    stack_SD = torch.cat(rows_BD) if rows_BD else torch.zeros(0, examples.dimension)
    present_S = torch.isfinite(stack_SD).all(dim=1) & (taken_S > 0)
    stack_SD[~present_S] = 0.0
    return {"stack": stack_SD.numpy(), "present": present_S.to(torch.float32).numpy()}


def shapes(dimension: int) -> dict[str, tuple[int, ...]]:
    """The shapes of one user's rows."""
    return {"stack": (dimension,), "present": ()}


def is_valid(sums: Mapping[str, np.ndarray]) -> bool:
    """Finite rows, and ``present`` nothing but zeros and ones."""
    return bool(np.isfinite(sums["stack"]).all() and np.isin(sums["present"], (0.0, 1.0)).all())


def those_present(totals: Mapping[str, np.ndarray]) -> np.ndarray:
    """The rows of the users who are there."""
    return totals["stack"][totals["present"] == 1.0]
