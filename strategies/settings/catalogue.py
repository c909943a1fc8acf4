"""The settings of each strategy, and all settings of a simulation."""

from collections.abc import Mapping
from dataclasses import Field
from importlib.metadata import entry_points
from typing import Any

from murmuration.privacy.plugins import brought
from murmuration.strategies.settings.declaration import (
    ENTRY_POINTS,
    OF_STRATEGY,
    PANELS,
    about,
    by_setting,
    declared,
)
from murmuration.strategies.settings.own import (
    AupSettings,
    ElsSettings,
    FedAvgSettings,
    LocalLabelSettings,
    NoSettings,
    Sampled,
    Solved,
)
from murmuration.strategies.settings.run import Settings

#: The settings of each strategy of ours, by its name, in the order in which they are offered.
OF_STRATEGIES: dict[str, type] = {
    "uls": Sampled,
    "dp-fedavg": FedAvgSettings,
    "els": ElsSettings,
    "group": ElsSettings,
    "adaptive": NoSettings,
    "aup": AupSettings,
    "label-moment": Solved,
    "objective-perturbation": Solved,
    "local-label": LocalLabelSettings,
    "nonprivate": NoSettings,
    **{name: point.load() for name, point in brought("murmuration.settings").items()},
}


def of_strategies() -> Mapping[str, type]:
    """The settings of each strategy by its name, of this package and of others.

    Strategies are imported only if another package adds one.
    """
    if not entry_points(group=ENTRY_POINTS):
        return OF_STRATEGIES
    from murmuration.strategies import registry

    return {name: strategy.settings for name, strategy in registry.strategies().items()}


#: What single strategies declare: by name the field, and which strategies have it.
OWN = by_setting(of_strategies())
#: Every setting, by its name.
DECLARED = {field.name: field for field in declared(Settings)} | {
    name: field for name, (field, _) in OWN.items()
}


def panel_of(field: "Field[Any]") -> str:
    """The panel of help that lists a setting."""
    _, names = OWN.get(field.name, (field, ()))
    return f"{OF_STRATEGY} {', '.join(names)}" if names else about(field).panel


def of_simulations() -> "list[Field[Any]]":
    """The settings of a simulation, ordered by their panels."""
    offered = [field for field in DECLARED.values() if not about(field).deployed]
    order = {panel: place for place, panel in enumerate(PANELS)}
    return sorted(offered, key=lambda field: order.get(panel_of(field), len(PANELS)))


#: The settings of a run on which a plan depends, in the order in which help lists them.
_PLANNED = (
    "strategy", "epsilon", "rounds", "cohort", "users", "delta", "group_size",
    "sampling_probability", "sampling", "variant",
    "adjacency", "heldout", "heldout_epsilon", "features", "items", "user_passes",
    "base", "task", "train", "lora_rank", "lora_layers", "max_tokens", "batch_tokens", "dtype",
    "checkpointing", "once_per_text",
)  # fmt: skip


def planned_fields() -> "list[Field[Any]]":
    """The settings of a run on which a plan depends."""
    return [DECLARED[name] for name in _PLANNED]
