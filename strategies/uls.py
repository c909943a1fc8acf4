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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.correlated_sum import CorrelatedNoise, CorrelatedSum
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import Sampler
from murmuration.strategies.contributions import bounded_sum, clip_of
from murmuration.strategies.noise.correlation import (
    OF_VECTORS,
    SAMPLING_RULES,
    Factor,
    about_noise,
    applies,
    check_sampling,
    correlation,
    correlations_of,
)
from murmuration.strategies.planning import NOISE, SAMPLED, SIX, Planned, PlanQuery
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_of_clip,
)
from murmuration.strategies.sums import AveragedSum, CohortPlan, check_vectors_fit

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
    factor: Factor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @property
    def sampler(self) -> Sampler:
        """The sampler of a round's users."""
        return self.correlated.sampler if self.correlated else super().sampler

    @cached_property
    def correlated(self) -> CorrelatedSum | None:
        """The mechanism of all rounds, if they share noise."""
        if not self.factor:
            return None
        turns = self.factor.sampler(self.users, self.cohort)
        parts = turns, self.clip, self.noise_multiplier, self.adjacency
        return CorrelatedSum(*parts, factor=self.factor, discrete=self.discrete)

    @cached_property
    def mechanism(self) -> Any:
        """The mechanism that each round runs and charges; if rounds share noise, by ``memory``."""
        return self.correlated or super().mechanism

    def memory(self) -> CorrelatedNoise | None:
        """The noise that rounds share, of a run that begins; None: they share none."""
        return CorrelatedNoise(self.correlated) if self.correlated else None

    @property
    def of_rounds(self) -> dict[Event, int]:
        """The events of the rounds: one per round, or one of the first round that pays for all."""
        return self.correlated.charges(self.rounds) if self.correlated else super().of_rounds

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient; if noise is correlated, in
        the last round, which has most."""
        return super().noise * (self.factor.row_norm(self.rounds) if self.factor else 1.0)


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped averaged gradients, (D,).

    A pure function of its arguments (with a seeded ``source``). ``keys_S`` name the users for
    their random draws. Raises KeyError or ValueError for parameters that are missing or wrong.
    """
    return {"sum": bounded_sum(examples, work, keys_S, source, clip_of(work))}


class Uls(AveragedSum):
    """The server half, with a ``UlsPlan``; see ``SumStrategy``."""

    name = "uls"
    plan: UlsPlan


_PLANNED = Planned(
    plan=UlsPlan, takes=SAMPLED, free=SIX, fields=lambda query, adjacency: {"clip": UserClip(1.0)}
)


def _correlated(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    return {"clip": UserClip(1.0), "factor": correlations_of(query, adjacency)[0].factor}


def sampled_users(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    """The ``solve`` of strategies whose rounds are one sum of sampled users' clipped vectors: any
    of the six numbers with independent noise, the noise multiplier with correlated noise.
    """
    if not query.sampled.correlated:
        return _PLANNED(query, adjacency)
    correlated = replace(_PLANNED, free=NOISE, fields=_correlated, tells=about_noise)
    return correlated(query, adjacency)


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    clip = UserClip(context.config.clip_norm or DEFAULT_CLIP)
    return built(Uls, UlsPlan, context, ledger, clip=clip)


def built(
    strategy: type[Uls],
    kind: type[UlsPlan],
    context: RunContext,
    ledger: Ledger,
    *,
    clip: UserClip,
    **fields: Any,
) -> BuiltStrategy:
    """A strategy of such a plan."""
    correlated = correlation(context)
    plan = kind.for_epsilon(
        context.config.epsilon,
        clip=clip,
        factor=correlated and correlated.factor,
        **context.cohort_sizes,
        **fields,
    )
    # Correlated noise moves θ as far as independent noise of so much would.
    moving = plan.mechanism.std / plan.cohort * (correlated.spread if correlated else 1.0)
    ceiling = RATE_CEILING / clip.norm
    return context.built(strategy, plan, ledger, ceiling=ceiling, moving=moving)


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
