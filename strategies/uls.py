"""ULS / DP-FedSGD: average each sampled user's gradient, clip it, add noise to the sum.

Source: Charles et al. 2024, Algorithm 2 (DP-SGD-ULS); McMahan et al. 2018. The noise is added to
the *sum* and the sum divided by the nominal cohort M, a constant fixed before any data is seen.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, for the whole
sequence of models: T compositions of the Poisson-subsampled Gaussian with probability M/N. Where
noise is correlated over b rounds, b groups of users take turns, and the guarantee is that of ⌈T/b⌉
compositions with probability b·M/N, under add-remove and zero-out (``privacy.continual.banded``).
If all users of a group take part it is that of one Gaussian release
(``privacy.continual.buffered``). Trusted: the server (it sees clipped sums before noise, and the
users of each round) and the nodes' clipping.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.correlated_sum import CorrelatedSum
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    CyclicSampler,
    Sampler,
)
from murmuration.strategies.base import SteppedStrategy
from murmuration.strategies.contributions import bounded_sum, clip_of
from murmuration.strategies.noise.correlation import (
    OF_VECTORS,
    SAMPLING_RULES,
    Correlation,
    Factor,
    about_noise,
    applies,
    check_groups,
    check_sampling,
    correlation,
    correlations_of,
    noise_over_turns,
    turns,
)
from murmuration.strategies.planning import NOISE, SAMPLED, SIX, Planned, PlanQuery
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    cohort_bytes,
    grid_of_clip,
)
from murmuration.strategies.sums import (
    CohortPlan,
    Discrete,
    SumStrategy,
    check_vectors_fit,
    noise_for_users,
)

if TYPE_CHECKING:
    from murmuration.preference.kinds.model import TrainingExamples

#: Default clip norm. Features have unit scale by construction, so a user's averaged gradient at the
#: start is a few tenths long; clipping well below that makes users count about equally, and leaves
#: the noise, which is proportional to the clip norm, small beside them.
DEFAULT_CLIP = 0.1
#: Step size, in units of the clip norm, at which training converges in about 200 rounds.
RATE_CEILING = 10.0


@dataclass(frozen=True, kw_only=True)
class UlsPlan(CohortPlan):
    """Sampled users' vectors are clipped; their noisy sum is divided by a constant.

    ``factor``: how noise is correlated over the rounds, in which groups of users take turns.
    """

    clip: UserClip
    discrete: Discrete = None
    factor: Factor | None = None

    def __post_init__(self) -> None:
        if self.factor:
            check_groups(self.factor, self.users, self.cohort)
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @classmethod
    def calibrate_noise(cls, epsilon: float, plan: Mapping[str, Any]) -> float:
        """The noise multiplier at which a plan with these other fields costs ``epsilon``."""
        if not (factor := plan.get("factor")):
            return noise_for_users(epsilon, plan)
        return noise_over_turns(
            epsilon,
            factor,
            probability=plan["cohort"] / plan["users"],
            rounds=plan["rounds"],
            delta=plan["delta"],
            adjacency=plan["adjacency"],
            hold_out=plan.get("hold_out"),
        )

    @property
    def sampler(self) -> Sampler:
        """The sampler of a round's users."""
        return turns(self.factor, self.coins.probability) if self.factor else self.coins

    @property
    def of_rounds(self) -> dict[Event, int]:
        """The events of the rounds: one per round, or one of the first round that pays for all."""
        return self.mechanism.charges(self.rounds)

    @cached_property
    def mechanism(self) -> GaussianSum | CorrelatedSum:
        """The mechanism that each round runs and charges."""
        sampler, terms = self.sampler, (self.clip, self.noise_multiplier, self.adjacency)
        if isinstance(sampler, CyclicSampler) and self.factor and self.discrete is None:
            return CorrelatedSum(sampler, *terms, self.factor)
        return GaussianSum(sampler, *terms, self.discrete)

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient; if noise is correlated, in
        the last round, which has most."""
        longer = self.factor.row_norm(self.rounds) if self.factor else 1.0
        return self.mechanism.std / self.cohort * longer

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: the clip norm, and the number of a user's judgements that
        count.
        """
        return {"clip-norm": self.clip.norm, **super().node_config}


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped averaged gradients, (D,).

    A pure function of its arguments (with a seeded ``source``). ``keys_S`` name the users for
    their random draws. Raises KeyError or ValueError for parameters that are missing or wrong.
    """
    return {"sum": bounded_sum(examples, work, keys_S, source, clip_of(work))}


class Uls(SumStrategy, SteppedStrategy):
    """The server half, with a ``UlsPlan``; see ``SumStrategy``."""

    name = "uls"
    plan: UlsPlan

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over a fixed denominator; charged to the ledger first."""
        return self.release(round_, totals) / self.plan.cohort


def _correlated(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    return {**_one_vector(query, adjacency), "factor": correlations_of(query, adjacency)[0].factor}


def _one_vector(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    return {"clip": UserClip(1.0)}


_INDEPENDENT = Planned(UlsPlan, takes=SAMPLED, free=SIX, fields=_one_vector)
_CORRELATED_PLAN = Planned(
    UlsPlan, takes=SAMPLED, free=NOISE, fields=_correlated, tells=about_noise
)


def sampled_users(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    """The ``solve`` of strategies whose rounds are one sum of sampled users' clipped vectors: any
    of the six numbers with independent noise, the noise multiplier with correlated noise.
    """
    correlated = query.sampled.noise_correlation != "none"
    return (_CORRELATED_PLAN if correlated else _INDEPENDENT)(query, adjacency)


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config, correlated = context.config, correlation(context)
    plan = UlsPlan.for_epsilon(
        config.epsilon,
        clip=UserClip(config.clip_norm or DEFAULT_CLIP),
        discrete=context.noise.on(context.dimension),
        factor=correlated and correlated.factor,
        **context.cohort_sizes,
    )
    return built(Uls, plan, context, ledger, correlated)


def built(
    strategy: type[Uls],
    plan: UlsPlan,
    context: RunContext,
    ledger: Ledger,
    correlated: Correlation | None,
) -> BuiltStrategy:
    """A strategy of such a plan."""
    moving = plan.noise
    if correlated is not None:  # independent noise that moves θ as far
        moving = plan.mechanism.std / plan.cohort * correlated.spread
    optimizer = context.optimizer("sgd", moving, RATE_CEILING / plan.clip.norm)
    return BuiltStrategy.of(
        strategy(plan, ledger, **context.arguments(optimizer)),
        plan,
        context,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        bytes_per_user=cohort_bytes(context),
    )


ULS = Strategy(
    name="uls",
    help="Average each sampled user's gradient, clip it, add noise to the sum (DP-FedSGD).",
    build=build,
    node_halves={"uls": NodeHalf(client_update, clip_norm, grid_of_clip)},
    settings=Sampled,
    theorems=OF_VECTORS,
    applies=applies,
    rules=SAMPLING_RULES,
    check=check_sampling,
    solve=sampled_users,
)
