"""The non-private twin of ULS: the same cohorts and averages, nothing clipped, no noise.

It shows what privacy costs. Formal guarantee: none; its ledger says epsilon = ∞.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.privacy.accounting.events import Event, Unprotected
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import NoClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import Status, Unit, select
from murmuration.strategies.base import SteppedStrategy
from murmuration.strategies.contributions import bounded_sum
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.spec import BuiltStrategy, NodeHalf, RunContext, Strategy, cohort_bytes
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE, check_size

if TYPE_CHECKING:
    from murmuration.preference.kinds.model import TrainingExamples

#: Step size of Adam, whose steps do not depend on the scale of unclipped gradients.
RATE = 0.1


@dataclass(frozen=True)
class NonPrivatePlan:
    """Sizes only; see ``CohortPlan``."""

    users: int
    cohort: int
    rounds: int
    group_size: int = DEFAULT_GROUP_SIZE

    def __post_init__(self) -> None:
        check_size(self.users, self.cohort, self.rounds, self.group_size)

    @property
    def sampler(self) -> PoissonSampler:
        """The sampler of a round's users."""
        return PoissonSampler(self.cohort / self.users)

    @property
    def charges(self) -> dict[Event, int]:
        """Empty: there is no guarantee."""
        return {}

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: the number of a user's judgements that count."""
        return {"group-size": self.group_size}


def client_update_exactly(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The twin's node half: ``sum``, over the asked users, of their averaged gradients, (D,)."""
    return {"sum": bounded_sum(examples, work, keys_S, source, NoClip())}


class NonPrivate(SteppedStrategy):
    """The twin's server half, with a ``NonPrivatePlan``; see ``CohortStrategy``."""

    name = "nonprivate"
    plan: NonPrivatePlan

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite."""
        return NoClip().is_valid(sums["sum"], users)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The exact sum over M, recorded as an unprotected release."""
        self.ledger.charge(Unprotected(), round_=round_, covers="exact gradient sum")
        return totals["sum"] / self.plan.cohort


def build_nonprivate(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    sizes = context.cohort_sizes
    plan = NonPrivatePlan(
        **{name: sizes[name] for name in ("users", "cohort", "rounds", "group_size")}
    )
    optimizer = context.optimizer("adam", 0.0, RATE)
    return BuiltStrategy(
        strategy=NonPrivate(plan, ledger, **context.arguments(optimizer)),
        charges={},
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=plan.group_size,
        noise=0.0,
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(context, up=8),
    )


NONPRIVATE = Strategy(
    name="nonprivate",
    help="No privacy: as uls, without clipping and noise. Only to compare with.",
    build=build_nonprivate,
    node_halves={"nonprivate": NodeHalf(client_update_exactly, length=None)},
    theorems=select(Unit.UNBOUNDED, status=Status.NONE),
)
