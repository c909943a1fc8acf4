"""From settings to a strategy: the plan is made here, once, from public numbers."""

from collections.abc import Callable

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.strategies import nonprivate, uls
from murmuration.strategies.adaptive import build_adaptive
from murmuration.strategies.aup.builders import build_centred, build_corrected, build_published
from murmuration.strategies.dp_fedavg import build_fedavg
from murmuration.strategies.els import build_els, build_group
from murmuration.strategies.label_moment import build_label_moment, build_objective
from murmuration.strategies.local_label import build_local_label
from murmuration.strategies.nonprivate import NonPrivate, NonPrivatePlan
from murmuration.strategies.spec import Built, Setting, cohort_bytes, promise
from murmuration.strategies.uls import Uls, UlsPlan


def build(setting: Setting, ledger: Ledger) -> Built:
    """The strategy that the settings ask for; ValueError or BudgetExceeded if it cannot be."""
    built = _BUILDERS[setting.config.strategy](setting, ledger)
    built.strategy.check()
    return built


def _uls(setting: Setting, ledger: Ledger) -> Built:
    config = setting.config
    plan = UlsPlan.for_epsilon(
        config.epsilon,
        users=setting.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(config.clip or uls.DEFAULT_CLIP),
        discrete=setting.noise.on(setting.dimension),
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
        retain=config.retain,
        normalized=config.normalized,
        hold_out=setting.hold_out,
    )
    ceiling = uls.RATE_CEILING / plan.clip.norm * plan.divisor / plan.cohort
    optimizer = setting.optimizer("sgd", plan.noise, ceiling)
    return Built(
        strategy=Uls(plan, ledger, **setting.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(config),
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting),
    )


def _nonprivate(setting: Setting, ledger: Ledger) -> Built:
    config = setting.config
    plan = NonPrivatePlan(
        setting.users,
        config.cohort,
        config.rounds,
        config.group_size or uls.DEFAULT_GROUP_SIZE,
        config.retain,
    )
    optimizer = setting.optimizer("adam", 0.0, nonprivate.RATE)
    return Built(
        strategy=NonPrivate(plan, ledger, **setting.arguments(optimizer)),
        charges={},
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=plan.group_size,
        noise=0.0,
        guarantee="No privacy: exact gradients were released.",
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting),
    )


_VARIANTS: dict[str, Callable[[Setting, Ledger], Built]] = {
    "centred": build_centred,
    "corrected": build_corrected,
    "published": build_published,
}


def _aup(setting: Setting, ledger: Ledger) -> Built:
    return _VARIANTS[setting.config.variant](setting, ledger)


_BUILDERS: dict[str, Callable[[Setting, Ledger], Built]] = {
    "uls": _uls,
    "dp-fedavg": build_fedavg,
    "els": build_els,
    "group": build_group,
    "adaptive": build_adaptive,
    "aup": _aup,
    "label-moment": build_label_moment,
    "objective-perturbation": build_objective,
    "local-label": build_local_label,
    "nonprivate": _nonprivate,
}
