"""AUP with a filter over the cohort, corrected and as published, from settings.

For both, ``--clip`` is the radius: ρ of the corrected filter, τ of the published one. Nothing is
clipped.
"""

import numpy as np

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import uls
from murmuration.strategies.adaptive import (
    DEFAULT_START,
    built,
    plan_sizes,
    quantile_plan,
)
from murmuration.strategies.aup import corrected, published, schedule
from murmuration.strategies.aup.centred import AupCentred
from murmuration.strategies.aup.corrected import AupCorrected, CorrectedPlan
from murmuration.strategies.aup.published import AupPublished, PublishedPlan
from murmuration.strategies.aup.schedule import Phase
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan
from murmuration.strategies.optimizers import PhasedSgd
from murmuration.strategies.spec import Built, Setting, cohort_bytes, promise

#: Step size without noise, on gradients that are not clipped: that of ULS at its default clip norm.
_CEILING = uls.RATE_CEILING / uls.DEFAULT_CLIP
#: L and B of Theorem 4: features are about one long, and so is a model that explains preferences
#: of ordinary strength, to within a factor of two.
_LIPSCHITZ, _NORM_BOUND = 1.0, 2.0


def build_corrected(setting: Setting, ledger: Ledger) -> Built:
    """The plan, the strategy and the report's figures."""
    config = setting.config
    plan = CorrectedPlan.for_epsilon(
        config.epsilon,
        users=setting.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        radius=config.clip or corrected.DEFAULT_RADIUS,
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
        retain=config.retain,
        hold_out=setting.hold_out,
    )
    optimizer = setting.optimizer("sgd", plan.noise, _CEILING)
    mechanism = plan.mechanism
    return Built(
        strategy=AupCorrected(plan, ledger, **setting.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=None,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(config),
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting, up=4),
        account=(
            "In each round every user took part with probability "
            f"{mechanism.sampler.probability:.3g}, by a coin of their own. Whoever did sent the "
            f"average gradient over at most {plan.group_size:,} of their judgements to the server, "
            "which is trusted with it. Users weighed by how large a majority of the others was "
            f"within {plan.radius:g} of them. Where the total weight, with Gaussian noise of "
            f"{mechanism.test_std:.3g}, was at least {mechanism.bar:.4g}, the weighted mean was "
            f"released with Gaussian noise of {plan.noise:.3g} per coordinate; otherwise nothing, "
            "at the same cost. One user moves a mean of that weight by less than "
            f"{plan.noise / plan.noise_multiplier:.3g}, and the total weight by less than 2. The "
            f"test fails to notice a lighter cohort with probability {mechanism.failure:.2g} a "
            "round, which is part of delta."
        ),
    )


def build_published(setting: Setting, ledger: Ledger) -> Built:
    """The plan, the strategy and the report's figures; what it promises is not proven.

    Raises:
        ValueError: another optimizer than the paper's was asked for.
    """
    config = setting.config
    if config.optimizer not in ("", "sgd"):
        raise ValueError(f"--variant published takes plain gradient steps, not {config.optimizer}")
    plan = PublishedPlan.for_epsilon(
        config.epsilon,
        phases=_phases(setting),
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
        retain=config.retain,
    )
    if not config.learning_rate and config.schedule == "constant":
        plan = plan.noise_limited()
    optimizer = PhasedSgd(plan.phases, np.zeros(setting.dimension, dtype=np.float32))
    asked = sum(phase.rounds * phase.cohort for phase in plan.phases)
    return Built(
        strategy=AupPublished(plan, ledger, **setting.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multipliers[-1],
        clip_norm=None,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=(
            f"As published; not proven: the paper claims user-level ({config.epsilon:g}, "
            f"{config.delta:g})-differential privacy, and its proof does not hold."
        ),
        gradients=asked,
        bytes_per_user=asked / setting.users * 2 * 4 * setting.dimension,
        account=_account(plan),
        proven=False,
    )


def _phases(setting: Setting) -> tuple[Phase, ...]:
    config, users = setting.config, setting.users
    if config.schedule == "theorem-4":
        return schedule.theorem_4(
            users,
            config.group_size or uls.DEFAULT_GROUP_SIZE,
            setting.dimension,
            epsilon=config.epsilon,
            delta=config.delta,
            rounds=config.rounds,
            lipschitz=_LIPSCHITZ,
            norm_bound=_NORM_BOUND,
        )
    return schedule.constant_schedule(
        users,
        config.phases or 1,
        cohort=config.cohort,
        rounds=config.rounds,
        rate=config.learning_rate or _CEILING,
        radius=config.clip or published.DEFAULT_RADIUS,
    )


def _account(plan: PublishedPlan) -> str:
    lines = "; ".join(
        f"{phase.rounds} rounds over {phase.users:,} users, {phase.cohort:,} expected in each, "
        f"τ = {phase.radius:.3g}, noise {plan.std(number):.3g}, step {phase.rate:.3g}"
        for number, phase in enumerate(plan.phases, start=1)
    )
    return (
        "What epsilon stands for here is the paper's claim: half of it for the concentration test "
        f"of each phase, half for its filtered means. Phases, on disjoint users: {lines}. Users "
        "who are in no phase were not used. What a phase had planned was charged even if its test "
        "ended it."
    )


def build_centred(setting: Setting, ledger: Ledger) -> Built:
    """AUP, centred."""
    if setting.config.adaptation == "quantile":
        plan = quantile_plan(setting)
        account = (
            "A user's distance from a released centre is bounded by a radius that follows quantile "
            f"{plan.rule.quantile:g} of these distances, from {plan.start:g} on; who is within is "
            f"counted with noise of standard deviation {plan.count_noise:.4g}, in the same charge."
        )
        return built(setting, ledger, AupCentred, plan, account, down=2)
    if setting.config.quantile:
        raise InputError("--quantile is for --adaptation quantile, not above-threshold")
    plan = ThresholdPlan.for_epsilon(
        setting.config.epsilon,
        start=setting.config.clip or DEFAULT_START,
        discrete=setting.noise.on(setting.dimension),
        **plan_sizes(setting),
    )
    account = (
        f"A user's distance from a released centre is bounded by a radius that shrinks from "
        f"{plan.start:g} on while a sparse vector test finds most users within: {plan.series} "
        f"series of tests at epsilon = {plan.test_epsilon:g} each, charged in full."
    )
    return built(setting, ledger, AupThreshold, plan, account, down=2)
