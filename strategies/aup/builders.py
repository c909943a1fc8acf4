"""AUP-RLHF from settings: centred, and as published.

With the published filter over the cohort ``--clip-norm`` is the radius τ. Nothing is clipped there.
"""

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import Mechanism, Participation, Status, Theorem, Unit, select
from murmuration.strategies import adaptive, uls
from murmuration.strategies.adaptive import (
    DEFAULT_START,
    built,
    quantile_plan,
)
from murmuration.strategies.aup import published, schedule
from murmuration.strategies.aup.centred import AupCentred
from murmuration.strategies.aup.published import AupPublished, PublishedPlan
from murmuration.strategies.aup.schedule import Phase
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan, ThresholdRule
from murmuration.strategies.contributions import client_update
from murmuration.strategies.planning import NOISE, SAMPLED, Planned, PlanQuery
from murmuration.strategies.settings.own import AupSettings
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_and_count,
)
from murmuration.strategies.steps.optimizers import PhasedSgd
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE

#: Step size without noise, on gradients that are not clipped: that of ULS at its default clip norm.
_CEILING = uls.RATE_CEILING / uls.DEFAULT_CLIP
#: L and B of Theorem 4: features are about one long, and so is a model that explains preferences
#: of ordinary strength, to within a factor of two.
_LIPSCHITZ, _NORM_BOUND = 1.0, 2.0


def build_published(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures; what it promises is not proven.

    Raises:
        ValueError: another optimizer than the paper's was asked for.
    """
    config, variant = context.config, context.config.of(AupSettings).variant
    if config.optimizer not in ("", "sgd"):
        raise ValueError(f"--variant {variant} takes plain gradient steps, not {config.optimizer}")
    plan = PublishedPlan.for_epsilon(
        config.epsilon,
        phases=_phases(context),
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        as_run=variant == "published-as-run",
        group_size=context.cohort_sizes["group_size"],
    )
    if not config.learning_rate and variant != "published-theorem-4":
        plan = plan.noise_limited()
    optimizer = PhasedSgd(plan.phases, np.zeros(context.dimension, dtype=np.float32))
    participations = sum(phase.rounds * phase.cohort for phase in plan.phases)
    return BuiltStrategy(
        strategy=AupPublished(plan, ledger, **context.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multipliers[-1],
        clip_norm=None,
        group_size=plan.group_size,
        noise=plan.noise,
        gradients=participations,
        bytes_per_user=participations / context.users * 2 * 4 * context.dimension,
    )


def _phases(context: RunContext) -> tuple[Phase, ...]:
    config, users = context.config, context.users
    own = config.of(AupSettings)
    if own.variant == "published-theorem-4":
        return schedule.theorem_4(
            users,
            config.group_size or DEFAULT_GROUP_SIZE,
            context.dimension,
            epsilon=config.epsilon,
            delta=config.delta,
            rounds=config.rounds,
            lipschitz=_LIPSCHITZ,
            norm_bound=_NORM_BOUND,
        )
    rate = config.learning_rate or _CEILING
    radius = config.clip_norm or published.DEFAULT_RADIUS
    return (_phase(own, users, config.cohort, config.rounds, rate=rate, radius=radius),)


def _phase(
    own: AupSettings, users: int, cohort: int, rounds: int, *, rate: float, radius: float
) -> Phase:
    """The only phase: of all users as run, of half of them to the letter."""
    if own.variant == "published-as-run":
        return Phase(users, cohort, rounds, rate, radius)
    (half,) = schedule.doubling(users, 1)
    return Phase(half, min(cohort, half), rounds, rate, radius)


def build_centred(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """AUP, centred, with either rule for the radius."""
    if context.config.of(AupSettings).variant == "centred":
        return built(context, ledger, AupCentred, quantile_plan(context), down=2)
    plan = ThresholdPlan.for_epsilon(
        context.config.epsilon,
        rule=ThresholdRule(context.config.clip_norm or DEFAULT_START),
        **context.cohort_sizes,
    )
    return built(context, ledger, AupThreshold, plan, down=2)


def solve(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """The noise multiplier of the gradients from epsilon, and what else is released with it.

    Raises:
        InputError: something is missing or given too much.
        ValueError: sizes that cannot be, or a cohort that is too small for the filter.
    """
    own = query.settings if isinstance(query.settings, AupSettings) else AupSettings()
    if own.is_published:
        return _solve_published(query, own, adjacency)
    if own.variant == "above-threshold":
        return _SOLVE_THRESHOLD(query, adjacency)
    return adaptive.ADAPTIVE.solve(query, adjacency)


_SOLVE_THRESHOLD = Planned(
    plan=ThresholdPlan,
    takes=SAMPLED,
    free=NOISE,
    tells=lambda plan, query: {"tests": plan.series, "test_epsilon": plan.test_epsilon},
)


def _solve_published(query: PlanQuery, own: AupSettings, adjacency: Adjacency) -> dict[str, float]:
    if own.variant == "published-theorem-4":
        raise InputError(
            f"--variant {own.variant}: its rounds depend on the number of weights, so it is "
            "planned when a run begins; plan --variant published"
        )
    numbers, _ = _SOLVE_THRESHOLD.numbers(query)
    if query.hold_out:
        raise InputError(
            f"--heldout saves --variant {own.variant} nothing: its noise is the paper's"
        )
    sizes = query.users or 0, query.cohort or 0, query.rounds or 0
    phase = _phase(own, *sizes, rate=1.0, radius=published.DEFAULT_RADIUS)
    terms = {name: numbers[name] for name in ("epsilon", "delta")}
    plan = PublishedPlan.for_epsilon(phases=(phase,), adjacency=adjacency, **terms)
    return {**numbers, "noise_multiplier": plan.noise_multipliers[-1]}


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The form that is asked for."""
    is_published = context.config.of(AupSettings).is_published
    return (build_published if is_published else build_centred)(context, ledger)


def _applies(own: AupSettings, theorem: Theorem) -> bool:
    """The quantile's count is a part of the sum; a sparse vector test asks for exact counts."""
    if own.is_published:
        return theorem.unit is Unit.NEIGHBOURHOODS
    if own.variant == "centred":
        return theorem.unit is Unit.VECTOR_AND_BIT
    return theorem.unit is Unit.VECTOR and theorem.mechanism is not Mechanism.SHARES


_RULES = (
    Rule(
        lambda config, strategy: config.start and config.of(AupSettings).is_published,
        "--start: the steps of --variant {variant}, as published, begin at zero, in a ball about "
        "it",
        ({"variant": None}, {"start": None}),
    ),
    Rule(
        lambda config, strategy: config.secure_aggregation and config.of(AupSettings).is_published,
        "--secure-aggregation: the filter of --variant {variant} looks at single users' vectors",
        ({"variant": None},),
    ),
)

AUP = Strategy(
    name="aup",
    help="AUP-RLHF: users far from the others count less; centred, or as published.",
    build=build,
    node_halves={
        "aup-centred": NodeHalf(adaptive.client_update, clip_norm, grid_and_count),
        "aup-published": NodeHalf(client_update, length=None),
    },
    settings=AupSettings,
    theorems=(
        *select(Unit.VECTOR_AND_BIT),
        *select(Unit.VECTOR, Participation.POISSON),
        *select(Unit.NEIGHBOURHOODS, status=Status.CLAIMED),
    ),
    applies=_applies,
    rules=_RULES,
    solve=solve,
)
