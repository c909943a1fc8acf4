"""Strategies whose clip norm adapts, from settings: ``adaptive``, and ``aup`` centred."""

from preference.judgements import InputError
from privacy.adjacency import Adjacency
from privacy.ledger import Ledger
from server.setting import Built, Setting, cohort_bytes, promise
from strategies import uls
from strategies.adaptive import DEFAULT_QUANTILE, DEFAULT_START, Adaptive, AdaptivePlan
from strategies.aup_centred import AupCentred
from strategies.aup_threshold import AupThreshold, ThresholdPlan
from strategies.optimizer import ServerOptimizer
from strategies.radius import QuantileRule, least_unit

#: Steps are limited by noise, and by what is of use: see ``strategies.radius``.
_NO_CEILING = 1e9


def build_adaptive(setting: Setting, ledger: Ledger) -> Built:
    """ULS with adaptive clipping."""
    plan = _quantile_plan(setting)
    account = (
        "A user's gradient is clipped to a norm that follows quantile "
        f"{plan.rule.quantile:g} of all users' norms, from {plan.start:g} on. Who was not clipped "
        f"is counted with noise of standard deviation {plan.count_noise:.4g}, in the same charge "
        "as the gradients."
    )
    return _built(setting, ledger, Adaptive, plan, account, down=1)


def build_centred(setting: Setting, ledger: Ledger) -> Built:
    """AUP, centred."""
    if setting.config.adaptation == "quantile":
        plan = _quantile_plan(setting)
        account = (
            "A user's distance from a released centre is bounded by a radius that follows quantile "
            f"{plan.rule.quantile:g} of these distances, from {plan.start:g} on; who is within is "
            f"counted with noise of standard deviation {plan.count_noise:.4g}, in the same charge."
        )
        return _built(setting, ledger, AupCentred, plan, account, down=2)
    if setting.config.quantile:
        raise InputError("--quantile is for --adaptation quantile, not above-threshold")
    plan = ThresholdPlan.for_epsilon(
        setting.config.epsilon,
        start=setting.config.clip or DEFAULT_START,
        discrete=setting.noise.on(setting.dimension),
        **_sizes(setting),
    )
    account = (
        f"A user's distance from a released centre is bounded by a radius that shrinks from "
        f"{plan.start:g} on while a sparse vector test finds most users within: {plan.series} "
        f"series of tests at epsilon = {plan.test_epsilon:g} each, charged in full."
    )
    return _built(setting, ledger, AupThreshold, plan, account, down=2)


def _quantile_plan(setting: Setting) -> AdaptivePlan:
    config = setting.config
    rule = QuantileRule(config.clip or DEFAULT_START, config.quantile or DEFAULT_QUANTILE)
    discrete = setting.noise.on(setting.dimension + 1)  # of sum and count
    return AdaptivePlan.for_epsilon(config.epsilon, rule=rule, discrete=discrete, **_sizes(setting))


def _sizes(setting: Setting) -> dict[str, object]:
    config = setting.config
    return {
        "users": setting.users,
        "cohort": config.cohort,
        "rounds": config.rounds,
        "delta": config.delta,
        "adjacency": Adjacency(config.adjacency),
        "group_size": config.group_size or uls.DEFAULT_GROUP_SIZE,
        "retain": config.retain,
        "hold_out": setting.hold_out,
    }


def _built(
    setting: Setting,
    ledger: Ledger,
    strategy: type[Adaptive],
    plan: AdaptivePlan | ThresholdPlan,
    account: str,
    *,
    down: int,
) -> Built:
    optimizer = setting.optimizer("sgd", plan.noise, _NO_CEILING)
    return Built(
        strategy=strategy(
            plan,  # type: ignore[arg-type]
            ledger,
            _least_unit(setting, optimizer),
            **setting.arguments(optimizer),
        ),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.start,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(setting.config),
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting, down=down),
        account=account,
    )


def _least_unit(setting: Setting, optimizer: ServerOptimizer) -> float:
    """Only a step size that was chosen for the user is limited in two ways."""
    given = setting.config.learning_rate > 0
    return 0.0 if given else least_unit(optimizer.settings, setting.dimension)
