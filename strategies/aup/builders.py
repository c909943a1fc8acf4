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
from murmuration.strategies.optimizers import PhasedSgd
from murmuration.strategies.planning import NOISE, SAMPLED, Planned, PlanQuery
from murmuration.strategies.settings.own import AupSettings
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_and_count,
)
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
    config = context.config
    if config.optimizer not in ("", "sgd"):
        raise ValueError(f"--variant published takes plain gradient steps, not {config.optimizer}")
    plan = PublishedPlan.for_epsilon(
        config.epsilon,
        phases=_phases(context),
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        as_run=_as_run(config),
        **{name: context.cohort_sizes[name] for name in ("group_size", "retain")},
    )
    if not config.learning_rate and config.of(AupSettings).schedule == "constant":
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
    if config.of(AupSettings).schedule == "theorem-4":
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
    if _as_run(config):
        return (Phase(users, config.cohort, config.rounds, rate, radius),)
    return schedule.constant_schedule(
        users,
        config.of(AupSettings).phases or 1,
        cohort=config.cohort,
        rounds=config.rounds,
        rate=rate,
        radius=radius,
    )


def _as_run(config: Settings) -> bool:
    return config.of(AupSettings).reading == "as-run"


def build_centred(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """AUP, centred."""
    if context.config.of(AupSettings).adaptation == "quantile":
        plan = quantile_plan(context)
        return built(context, ledger, AupCentred, plan, down=2)
    plan = ThresholdPlan.for_epsilon(
        context.config.epsilon,
        rule=ThresholdRule(context.config.clip_norm or DEFAULT_START),
        discrete=context.noise.on(context.dimension),
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
    if own.variant == "published":
        return _solve_published(query, adjacency)
    if own.adaptation == "above-threshold":
        return _SOLVE_THRESHOLD(query, adjacency)
    return adaptive.ADAPTIVE.solve(query, adjacency)


_SOLVE_THRESHOLD = Planned(
    ThresholdPlan,
    takes=SAMPLED,
    free=NOISE,
    tells=lambda plan, query: {"tests": plan.series, "test_epsilon": plan.test_epsilon},
)


def _solve_published(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    numbers, _ = _SOLVE_THRESHOLD.numbers(query)
    if query.hold_out:
        raise InputError("--heldout saves --variant published nothing: its noise is the paper's")
    phases = schedule.constant_schedule(
        query.users or 0,
        1,
        cohort=query.cohort or 0,
        rounds=query.rounds or 0,
        rate=1.0,
        radius=published.DEFAULT_RADIUS,
    )
    terms = {name: numbers[name] for name in ("epsilon", "delta")}
    plan = PublishedPlan.for_epsilon(phases=phases, adjacency=adjacency, **terms)
    return {**numbers, "noise_multiplier": plan.noise_multipliers[-1]}


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The form that is asked for."""
    published_ = context.config.of(AupSettings).variant == "published"
    return (build_published if published_ else build_centred)(context, ledger)


def _applies(own: AupSettings, theorem: Theorem) -> bool:
    """The quantile's count is a part of the sum; a sparse vector test asks for exact counts."""
    if own.variant == "published":
        return theorem.unit is Unit.NEIGHBOURHOODS
    if own.adaptation == "quantile":
        return theorem.unit is Unit.VECTOR_AND_BIT
    return theorem.unit is Unit.VECTOR and theorem.mechanism is not Mechanism.SHARES


def _check(settings: Settings) -> None:
    own = settings.of(AupSettings)
    if own.reading == "as-run":
        if own.variant != "published":
            raise InputError(f"--reading is for --variant published, not {own.variant}")
        if own.phases > 1 or own.schedule != "constant":
            raise InputError("--reading as-run has one phase: leave out --phases and --schedule")


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
    check=_check,
    solve=solve,
)
