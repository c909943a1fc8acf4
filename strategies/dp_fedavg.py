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

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.contributions import bounded_sum, clip_of
from murmuration.strategies.noise.correlation import (
    OF_VECTORS,
    SAMPLING_RULES,
    applies,
    check_sampling,
)
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own import FedAvgSettings
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_of_clip,
)
from murmuration.strategies.uls import DEFAULT_CLIP, Uls, UlsPlan, built, sampled_users

if TYPE_CHECKING:
    from murmuration.preference.kinds.model import TrainingExamples

#: Features have unit scale, so the log loss curves by less than one along any direction:
#: steps of length one stay well inside what is stable (two), and a few of them use a user's
#: judgements better than one without fitting that user alone. So they do a reward's LoRA layers, in
#: θ's units; a policy's gradients are longer (docs/research/language-models.md).
DEFAULT_LOCAL = LocalSteps(4, 1.0)


def default_clip(local: LocalSteps) -> float:
    """The clip norm that bounds each local step as tightly as ULS bounds its one step."""
    return DEFAULT_CLIP * local.rate * local.steps


@dataclass(frozen=True, kw_only=True)
class FedAvgPlan(UlsPlan):
    """A ULS plan whose clip norm bounds how far a user's own steps may lead."""

    local: LocalSteps = DEFAULT_LOCAL

    @property
    def gradients(self) -> float:
        """Expected number of users' gradients computed in the whole run."""
        return super().gradients * self.local.steps

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: as for ULS, and the local steps."""
        return {
            **super().node_config,
            "local-steps": self.local.steps,
            "local-rate": self.local.rate,
        }


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped way down from θ, (D,).

    A pure function of its arguments (with a seeded ``source``). Raises KeyError or ValueError for
    parameters that are missing or wrong.
    """
    clip = clip_of(work)
    local = LocalSteps(int(work.number("local-steps")), work.number("local-rate"))
    return {"sum": bounded_sum(examples, work, keys_S, source, clip, local=local)}


class DpFedAvg(Uls):
    """The server half: that of ULS, with a ``FedAvgPlan``."""

    name = "dp-fedavg"
    plan: FedAvgPlan


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config, own = context.config, context.config.of(FedAvgSettings)
    local = LocalSteps(own.local_steps or DEFAULT_LOCAL.steps, own.local_rate or DEFAULT_LOCAL.rate)
    clip = UserClip(config.clip_norm or default_clip(local))
    return built(DpFedAvg, FedAvgPlan, context, ledger, clip=clip, local=local)


_RULES = (
    *SAMPLING_RULES,
    Rule(
        lambda config, strategy: (
            config.once_per_text and config.of(FedAvgSettings).local_steps != 1
        ),
        "--once-per-text: after a local step users are no longer at the same place, so texts have "
        "a gradient for each",
        ({"once_per_text": None}, {"local_steps": 1}),
    ),
)

DP_FEDAVG = Strategy(
    name="dp-fedavg",
    help="Each sampled user takes a few local steps; the change of the model is clipped.",
    build=build,
    node_halves={"dp-fedavg": NodeHalf(client_update, clip_norm, grid_of_clip)},
    settings=FedAvgSettings,
    theorems=OF_VECTORS,
    applies=applies,
    rules=_RULES,
    check=check_sampling,
    solve=sampled_users,
)
