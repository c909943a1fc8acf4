"""Options of a plan that rooms bring; light to import, as what is declared of settings is."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Any

from murmuration.privacy.plugins import brought
from murmuration.strategies.settings.declaration import declared


@dataclass(frozen=True)
class KnownCrowd:
    """Public figures about the users, from an earlier release.

    Attributes:
        users: to train on.
        judgements: the number of the median user, approximately.
        sentence: a description of the source.
    """

    users: int
    judgements: int
    sentence: str


@dataclass(frozen=True)
class PlanOptions:
    """Options of a plan that a package adds (of the group ``murmuration.plan_options``).

    Attributes:
        settings: a frozen dataclass that declares them.
        strategy: the one whose ``solve`` reads them; "": any.
        crowd: from the given options and the share of users to be held out to figures about the
            users, which are a plan's defaults.
    """

    settings: type
    strategy: str = ""
    crowd: Callable[[Mapping[str, Any], float | None], KnownCrowd] | None = None


def plan_options() -> dict[str, PlanOptions]:
    """The options of a plan that packages add."""
    return {name: point.load() for name, point in brought("murmuration.plan_options").items()}


def plan_fields() -> list[Field[Any]]:
    """The fields of all these options."""
    return [field for each in plan_options().values() for field in declared(each.settings)]
