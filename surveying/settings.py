"""Settings of a survey."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from murmuration.preference.data.public_names import whole_path
from murmuration.strategies.settings.declaration import PROMISE, setting
from murmuration.strategies.settings.plan_options import KnownCrowd, PlanOptions


@dataclass(frozen=True)
class SurveySettings:
    """Settings of a survey."""

    topics: str = setting(
        "",
        "The public list of topics: a file with one a line (name: word, word), or a .json file "
        "with an array. [default: topics are not asked about]",
        pinned=partial(whole_path, "--topics", "topic"),
    )


@dataclass(frozen=True)
class FromSurvey:
    """Options of a plan that begins with a survey."""

    survey: str = setting(
        "",
        "Folder of a murmuration survey: --users is taken from it, and --group-size for els and "
        "group.",
        panel=PROMISE,
    )


def _crowd(given: Mapping[str, Any], heldout: float | None) -> KnownCrowd:
    from murmuration.surveying.planned import surveyed

    return surveyed(given["survey"], heldout)


PLAN_OPTIONS = PlanOptions(FromSurvey, crowd=_crowd)
