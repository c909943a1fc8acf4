"""Options of a plan that rooms bring; light to import, as what is declared of settings is."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Any

from murmuration.privacy.plugins import brought
from murmuration.strategies.settings.declaration import declared
from murmuration.strategies.settings.own import AupSettings, Sampled


@dataclass(frozen=True)
class KnownCrowd:
    """What is known of a crowd, by something that was released about it.

    Attributes:
        users: to train on.
        judgements: about how many the median user has.
        sentence: what was taken from what.
    """

    users: int
    judgements: int
    sentence: str


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan that a room brings (of the group ``murmuration.plan_options``).

    Attributes:
        settings: a frozen dataclass that declares them.
        strategy: whose ``solve`` looks at them; "": a plan with any.
        crowd: from those that are given, and the share of users to be held out, to what is known of
            the crowd, which a plan then takes where it is not told otherwise.
    """

    settings: type
    strategy: str = ""
    crowd: Callable[[Mapping[str, Any], float | None], KnownCrowd] | None = None


def plan_options() -> dict[str, PlanOptions]:
    """Return the options of a plan that rooms bring."""
    return {name: point.load() for name, point in brought("murmuration.plan_options").items()}


def plan_fields() -> list[Field[Any]]:
    """Return what all of them declare."""
    return [field for each in plan_options().values() for field in declared(each.settings)]


def own_fields() -> list[Field[Any]]:
    """Return the settings of single strategies that a plan depends on."""
    fields = {each.name: each for own in (Sampled, AupSettings) for each in declared(own)}
    names = ("sampling", "noise_correlation", "bands", "variant", "adaptation")
    return [fields[name] for name in names]
