"""DP-FedAvg: each sampled user takes a few gradient steps of their own; the way is clipped.

Source: McMahan et al. 2018 (DP-FedAvg); Charles et al. 2024, App. A.2. A user starts at the model
θ, takes ``local.steps`` full-batch steps of length ``local.rate`` on at most G of their judgements,
and contributes θ − θ_u, clipped to C. The noisy mean of these takes the place of the gradient in
the server's optimizer. One local step is ULS with the clip norm C / rate, step for step.

Formal guarantee: that of ULS (what is clipped, sampled and noised is one vector a user), whatever
users do on their own: (epsilon, delta) at the level of users under the plan's adjacency, which may
be any of the four. Trusted: the server and the nodes' clipping.

Legend: S sampled users, D dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from preference.gradients import Examples, LocalSteps
from privacy.randomness import Randomness
from strategies import messages
from strategies.messages import Work
from strategies.node import bounded_sum, clip_of
from strategies.uls import DEFAULT_CLIP, Uls, UlsPlan

#: Features have unit scale, so the log loss curves by less than one along any direction:
#: steps of length one stay well inside what is stable (two), and a few of them use a user's
#: judgements better than one without fitting that user alone.
DEFAULT_LOCAL = LocalSteps(4, 1.0)


def default_clip(local: LocalSteps) -> float:
    """As tight a bound on each local step as ULS puts on its one."""
    return DEFAULT_CLIP * local.rate * local.steps


@dataclass(frozen=True)
class FedAvgPlan(UlsPlan):
    """A ULS plan whose clip norm bounds how far a user's own steps may lead."""

    local: LocalSteps = DEFAULT_LOCAL


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped way down from θ, (D,).

    A pure function of its arguments (with a seeded ``source``). Raises KeyError or ValueError for
    parameters that are missing or wrong.
    """
    clip = clip_of(work)
    local = LocalSteps(int(work.number("local-steps")), work.number("local-rate"))
    return {"sum": bounded_sum(examples, work, keys_S, source, clip, local)}


class DpFedAvg(Uls):
    """The server half: that of ULS, with a ``FedAvgPlan``."""

    name = "dp-fedavg"
    plan: FedAvgPlan

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """Those of ULS, and the local steps."""
        local = self.plan.local
        return {**super().parameters(), "local-steps": local.steps, "local-rate": local.rate}
