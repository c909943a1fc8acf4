"""The non-private twin of ULS: the same cohorts and averages, nothing clipped, no noise.

It shows what privacy costs. Formal guarantee: none; its ledger says epsilon = ∞.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.privacy.accounting.events import Unprotected
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import NoClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.strategies import uls
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.contributions import bounded_sum
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import Work
from murmuration.strategies.settings import Retained
from murmuration.strategies.spec import (
    ALL,
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    cohort_bytes,
)
from murmuration.strategies.uls import DEFAULT_GROUP_SIZE, check_size

if TYPE_CHECKING:
    from murmuration.preference.linear.gradients import Examples

#: Step size of Adam, whose steps do not depend on the scale of unclipped gradients.
RATE = 0.1


@dataclass(frozen=True)
class NonPrivatePlan:
    """Sizes only; see ``UlsPlan``."""

    users: int
    cohort: int
    rounds: int
    group_size: int = DEFAULT_GROUP_SIZE
    retain: int = 0

    def __post_init__(self) -> None:
        check_size(self.users, self.cohort, self.rounds, self.group_size)


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their averaged gradients, (D,)."""
    return {"sum": bounded_sum(examples, work, keys_S, source, NoClip())}


class NonPrivate(CohortStrategy):
    """The server half; takes the plan, a ledger, and the arguments of ``CohortStrategy``."""

    name = "nonprivate"

    def __init__(self, plan: NonPrivatePlan, ledger: Ledger, **arguments: Any) -> None:
        sampler = PoissonSampler(plan.cohort / plan.users)
        super().__init__(sampler=sampler, **arguments)
        self.plan, self.ledger = plan, ledger

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """How many judgements of a user count."""
        return {"group-size": self.plan.group_size, "retain": self.plan.retain}

    def admits(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite."""
        return NoClip().admits(sums["sum"], users)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The exact sum over M, recorded as an unprotected release."""
        self.ledger.charge(Unprotected(), round_=round_, covers="exact gradient sum")
        return totals["sum"] / self.plan.cohort


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config = context.config
    plan = NonPrivatePlan(
        context.users,
        config.cohort,
        config.rounds,
        config.group_size or uls.DEFAULT_GROUP_SIZE,
        config.of(Retained).retain,
    )
    optimizer = context.optimizer("adam", 0.0, RATE)
    return BuiltStrategy(
        strategy=NonPrivate(plan, ledger, **context.arguments(optimizer)),
        charges={},
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=plan.group_size,
        noise=0.0,
        guarantee="No privacy: exact gradients were released.",
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(context),
    )


NONPRIVATE = Strategy(
    name="nonprivate",
    help="No privacy: what uls would learn without clipping and noise. To compare with only.",
    build=build,
    node_halves={"nonprivate": NodeHalf(contribute, length=None)},
    settings=Retained,
    adjacencies=ALL,
    masks=lambda settings: "what is not clipped has no grid",
)
