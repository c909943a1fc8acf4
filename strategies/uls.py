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

Its non-private twin shows what that costs: the same cohorts and averages, nothing clipped, no
noise. Formal guarantee of the twin: none; its ledger says epsilon = ∞.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event, Unprotected
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.continual.correlated_sum import CorrelatedSum
from murmuration.privacy.disclosure import Public, Shown
from murmuration.privacy.mechanisms.clipping import NoClip, UserClip
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    CyclicSampler,
    PoissonSampler,
    Sampler,
    whole_groups,
)
from murmuration.privacy.theorems import Mechanism, Participation, Status, Theorem, Unit, select
from murmuration.strategies.base import PRIVATE, SteppedStrategy
from murmuration.strategies.contributions import bounded_sum, clip_of
from murmuration.strategies.correlation import (
    BANDS,
    Correlation,
    buffered,
    check_bands,
    check_correlated,
    correlations,
)
from murmuration.strategies.optimizers import OptimizerSettings
from murmuration.strategies.planning import NOISE, SAMPLED, SIX, Planned, PlanQuery
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own import Sampled, UlsSettings
from murmuration.strategies.settings.run import Settings
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
    DEFAULT_GROUP_SIZE,
    CohortPlan,
    Discrete,
    SumStrategy,
    check_size,
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
    factor: Banded | BufferedToeplitz | None = None

    def __post_init__(self) -> None:
        if isinstance(self.factor, BufferedToeplitz):
            turns = whole_groups(self.users, self.cohort)
            if turns != self.factor.separation:
                raise ValueError(f"{turns} groups, and noise for {self.factor.separation}")
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @classmethod
    def calibrate_noise(cls, epsilon: float, plan: Mapping[str, Any]) -> float:
        """The noise multiplier at which a plan with these other fields costs ``epsilon``."""
        factor = plan.get("factor")
        if isinstance(factor, BufferedToeplitz):
            # Whose turn it is shows who is held out, so that saves nothing.
            once = {"cohort": plan["users"], "rounds": 1, "hold_out": None}
            return noise_for_users(epsilon, {**plan, **once})
        if factor:  # of the group whose turn comes most often
            coins = CyclicSampler(plan["cohort"] / plan["users"], factor.bands).of_group
            return accountant.noise_multiplier_for(
                epsilon,
                delta=plan["delta"],
                probability=coins.probability,
                rounds=-(-plan["rounds"] // factor.bands),
                adjacency=plan["adjacency"],
                hold_out=plan.get("hold_out"),
            )
        return noise_for_users(epsilon, plan)

    @property
    def sampler(self) -> Sampler:
        """The sampler of a round's users."""
        if isinstance(self.factor, BufferedToeplitz):  # everybody of the group whose turn it is
            return CyclicSampler(1.0 / self.factor.separation, self.factor.separation)
        if self.factor:
            return CyclicSampler(self.coins.probability, self.factor.bands)
        return self.coins

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
    draws_again = True

    def figures(self) -> Mapping[str, Shown[float]]:
        """The length of a round's noise, if it is not the same in all of them."""
        if self.memory is None or not self.memory.rounds:
            return super().figures()
        longer = self.memory.factor.row_norm(self.memory.rounds)
        std = self.plan.mechanism.std / self.plan.cohort * longer
        return {"noise_norm": Public(std * math.sqrt(len(self.optimizer.theta)))}

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Also how noise is correlated."""
        if self.memory is None:
            return super().outcome()
        parameters = Public(list(self.memory.factor.parameters))
        return {**super().outcome(), "noise_coefficients": parameters}

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over a fixed denominator; charged to the ledger first."""
        return self.release(round_, totals) / self.plan.cohort

    def state(self) -> dict[str, np.ndarray]:
        """The state that a resumed run needs; the noise that later rounds share is secret."""
        secret: dict[str, np.ndarray] = {}
        if self.memory and self.rounds_done < self.plan.rounds:
            secret = self.memory.state()
        return {**super().state(), **{PRIVATE + name: array for name, array in secret.items()}}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        if self.memory is not None:
            self.memory.restore(
                {name.removeprefix(PRIVATE): array for name, array in state.items()}
            )


def correlation(context: RunContext) -> Correlation | None:
    """The correlated noise that the settings ask for, if any: banded, with the given number of
    bands or that of the least error, or buffered.
    """
    config, sizes = context.config, context.cohort_sizes
    own, users, cohort = config.of(Sampled), sizes["users"], sizes["cohort"]
    if own.noise_correlation == "none":
        return None
    steps = OptimizerSettings("sgd", 1.0, config.rounds, config.momentum)
    terms: dict[str, Any] = {name: sizes[name] for name in ("delta", "adjacency", "hold_out")}
    if own.noise_correlation == "blt":
        return buffered(steps, config.epsilon, users=users, cohort=cohort, **terms)
    check_correlated(
        own.noise_correlation,
        rounds=sizes["rounds"],
        bands=own.bands,
        cohort=cohort,
        users=users,
    )
    _, *others = correlations(
        steps,
        config.epsilon,
        bands=(own.bands,) if own.bands else BANDS,
        probability=cohort / users,
        **terms,
    )
    return min(others, key=lambda one: one.error)


# ``murmuration plan``.


def _of_query(query: PlanQuery, adjacency: Adjacency) -> list[Correlation]:
    """Correlated noise for a query with the default optimizer, the best first, and independent
    noise last.
    """
    numbers, own = query.numbers, query.sampled
    sizes = {name: numbers[name] for name in ("users", "cohort")}
    rounds, epsilon = numbers["rounds"], numbers["epsilon"]
    check_correlated(own.noise_correlation, rounds=rounds, bands=own.bands or None, **sizes)
    steps = OptimizerSettings("sgd", 1.0, rounds)
    terms = {"delta": query.delta, "adjacency": adjacency, "hold_out": query.hold_out}
    if own.noise_correlation == "blt":
        return [buffered(steps, epsilon, **sizes, **terms)]
    bands = (own.bands,) if own.bands else BANDS
    share = sizes["cohort"] / sizes["users"]
    alone, *others = correlations(steps, epsilon, bands=bands, probability=share, **terms)
    return [*sorted(others, key=lambda one: one.error), alone]


def _correlated(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    return {**_one_vector(query, adjacency), "factor": _of_query(query, adjacency)[0].factor}


def _one_vector(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    return {"clip": UserClip(1.0)}


def _about_noise(plan: UlsPlan, query: PlanQuery) -> dict[str, float]:
    """The error of correlated noise relative to independent noise: for each number of bands that
    was compared; for buffers with the same turns, and with Poisson sampling.
    """
    best, *others = _of_query(query, plan.adjacency)
    if isinstance(best.factor, BufferedToeplitz):
        turns = best.factor.participations
        return {
            "rounds_apart": best.factor.groups,
            "rounds_of_a_user": turns,
            "error_over_same_turns": best.spread / math.sqrt(turns),
            "error_over_poisson": best.error,
        }
    errors = {one.factor.groups: one.error for one in (best, *others[:-1])}
    return {
        "noise_multiplier_if_independent": others[-1].noise_multiplier,
        "bands": best.factor.groups,
        **{f"error_with_{bands}_bands": errors[bands] for bands in sorted(errors)},
    }


_INDEPENDENT = Planned(UlsPlan, takes=SAMPLED, free=SIX, fields=_one_vector)
_CORRELATED_PLAN = Planned(
    UlsPlan, takes=SAMPLED, free=NOISE, fields=_correlated, tells=_about_noise
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


def check_sampling(config: Settings) -> None:
    """InputError, naming the option, for users who cannot be sampled as it is set."""
    own, adjacency = config.of(Sampled), Adjacency(config.adjacency)
    check_bands(own.noise_correlation, own.bands or None)
    if own.sampling == "poisson" and own.noise_correlation == "none":
        return
    named = f"--sampling {own.sampling} with --noise-correlation {own.noise_correlation}"
    if not config.users and adjacency == Adjacency.ADD_REMOVE:
        raise InputError(
            f"{named} goes by how many users there are, which add-remove keeps private: state a "
            "round, public number with --users, use --adjacency zero-out, or leave both out"
        )
    if own.everybody:
        return
    if config.optimizer not in ("", "sgd"):
        raise InputError(
            f"{named} is made for what --optimizer sgd adds up, not {config.optimizer}: leave "
            "--optimizer out, or use --noise-correlation none"
        )
    check_correlated(
        own.noise_correlation,
        rounds=config.rounds,
        bands=own.bands,
        cohort=config.cohort,
        users=config.users,
    )


#: What is proven of one clipped vector of each user.
OF_VECTORS = select(Unit.VECTOR)
_TAKE_PART = {
    "poisson": {Participation.POISSON, Participation.TURNS_BY_COIN},
    "cyclic": {Participation.TURNS},
    "all": {Participation.POISSON},
}
_CORRELATED = {"banded": Mechanism.BANDED, "blt": Mechanism.BUFFERED}


def applies(own: object, theorem: Theorem) -> bool:
    """True for a theorem about this sampling and this noise."""
    own = own if isinstance(own, Sampled) else Sampled()
    shared = theorem.mechanism if theorem.mechanism in _CORRELATED.values() else None
    same = shared is _CORRELATED.get(own.noise_correlation)
    return same and theorem.participation in _TAKE_PART[own.sampling]


ULS = Strategy(
    name="uls",
    help="Average each sampled user's gradient, clip it, add noise to the sum (DP-FedSGD).",
    build=build,
    node_halves={"uls": NodeHalf(client_update, clip_norm, grid_of_clip)},
    settings=UlsSettings,
    theorems=OF_VECTORS,
    applies=applies,
    check=check_sampling,
    solve=sampled_users,
)


# The non-private twin.

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
