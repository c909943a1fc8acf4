"""A strategy of another package, with noise of its own: that of each round is correlated with the
rounds before (a banded matrix mechanism).

All users take part in every round. With S_t the exact clipped sum of round t, what is released is
Y_t = c_0 S_t + c_1 S_{t-1} plus fresh Gaussian noise; the model steps by the solution of these
equations, so noise that one step adds the next takes back in part.

Formal guarantee: c_0 + c_1 = 1, and both are positive. So a user, whose part of every S_t is within
the clip norm, moves Y_t by no more than it, given all that was released before: each round is one
``GaussianSum`` without sampling, and rounds compose adaptively.

Legend: D dimensions.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import Mechanism, Participation, Unit, select
from murmuration.strategies import spec, uls
from murmuration.strategies.base import PRIVATE, SteppedStrategy
from murmuration.strategies.planning import Planned
from murmuration.strategies.sums import SumStrategy
from murmuration.strategies.uls import UlsPlan

#: c_0 and c_1.
NOW, BEFORE = 0.75, 0.25


class TwoBandPlan(UlsPlan):
    """The plan of ``uls``, of weighted sums of two rounds.

    Everybody is in every round, or rounds would not compose.
    """

    coins = property(lambda plan: PoissonSampler(1.0))

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient, after many rounds."""
        return super().noise / math.sqrt(NOW**2 - BEFORE**2)


class TwoBand(SumStrategy, SteppedStrategy):
    """The server half, with a ``TwoBandPlan``."""

    name = "two-band"
    plan: TwoBandPlan

    def __init__(self, plan: TwoBandPlan, ledger: Ledger, **arguments: Any) -> None:
        super().__init__(plan, ledger, **arguments)
        # Of the last round: the exact sum, which stays in the run's private folder, and its
        # solution from what was released.
        self.exact_D = self.solved_D = np.zeros(len(self.optimizer.theta))

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The solution of the released equations; charged to the ledger first."""
        weighted_D = NOW * totals["sum"] + BEFORE * self.exact_D
        noisy_D = self.release(round_, {"sum": weighted_D})
        self.solved_D = (noisy_D - BEFORE * self.solved_D) / NOW
        self.exact_D = totals["sum"]
        return self.solved_D / self.plan.divisor

    def state(self) -> dict[str, np.ndarray]:
        """Also the last round, which the next one's noise depends on."""
        return {**super().state(), PRIVATE + "exact": self.exact_D, "solved": self.solved_D}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self.exact_D, self.solved_D = state[PRIVATE + "exact"], state["solved"]


def build(context: spec.RunContext, ledger: Ledger) -> spec.BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    clip = UserClip(context.config.clip_norm or 0.1)
    plan = TwoBandPlan.for_epsilon(context.config.epsilon, clip=clip, **context.cohort_sizes)
    return context.built(TwoBand, plan, ledger, ceiling=10.0 / clip.norm)


TWO_BAND = spec.Strategy(
    name="two-band",
    help="Everybody in every round, with noise that the next round takes back in part.",
    build=build,
    node_halves={"two-band": spec.NodeHalf(uls.client_update, length=spec.clip_norm)},
    theorems=select(Unit.VECTOR, Participation.POISSON, Mechanism.GAUSSIAN),
    everybody=True,
    solve=Planned(plan=TwoBandPlan, fields=lambda q, _: {"clip": UserClip(1.0), "cohort": q.users}),
)
