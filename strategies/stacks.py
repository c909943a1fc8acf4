"""The node half of filters that compare users: each user's averaged gradient, one row each.

What leaves a node here is not a sum: whoever filters must see every vector, so the server sees the
averaged gradients of all sampled users in the clear, and no secure aggregation is possible. That is
the price of both filtering variants of AUP, and one reason why neither is the default.

A user who has no judgements, or whose gradient is not finite, is marked absent instead of being
sent: one row of zeros, and a zero in ``present``. So is everybody of a node that does not answer,
or answers with anything else. Being absent is a function of that user's data alone, so it is one of
the things that a neighbouring data set may change, and the filters count only who is there.

Legend: S sampled users, D dimensions.
"""

from collections.abc import Mapping

import numpy as np
import torch

from preference.gradients import Examples, user_gradients
from privacy.randomness import Randomness
from strategies.messages import Work
from strategies.node import batches_users, model_of, sampled

#: The arrays of which a node sends one row a user.
STACKED = frozenset({"stack", "present"})


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """``stack`` (S, D): averaged gradients at θ; ``present`` (S,): 1, or 0 with a row of zeros.

    A pure function of its arguments (with a seeded ``source``). Raises KeyError or ValueError for
    parameters that are missing or wrong.
    """
    taken_N, taken_S = sampled(examples, work, keys_S, source)
    theta_D, model = work.tensor("theta"), model_of(examples, work)
    together = batches_users(work)
    found = user_gradients(examples, theta_D, taken_N, taken_S, model, together)
    # A language model's chunk is valid until the next is asked for.
    rows_BD = [chunk_BD.cpu().clone() for chunk_BD in found]
    stack_SD = torch.cat(rows_BD) if rows_BD else torch.zeros(0, examples.dimension)
    present_S = torch.isfinite(stack_SD).all(dim=1) & (taken_S > 0)
    stack_SD[~present_S] = 0.0
    return {"stack": stack_SD.numpy(), "present": present_S.to(torch.float32).numpy()}


def shapes(dimension: int) -> dict[str, tuple[int, ...]]:
    """Of one user's rows."""
    return {"stack": (dimension,), "present": ()}


def admits(sums: Mapping[str, np.ndarray]) -> bool:
    """Finite rows, and ``present`` nothing but zeros and ones."""
    return bool(np.isfinite(sums["stack"]).all() and np.isin(sums["present"], (0.0, 1.0)).all())


def those_present(totals: Mapping[str, np.ndarray]) -> np.ndarray:
    """The rows of the users who are there."""
    return totals["stack"][totals["present"] == 1.0]
