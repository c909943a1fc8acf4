"""The public grid of settings that a search draws from."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.strategies.config import SETTINGS
from murmuration.strategies.settings.declaration import (
    MODEL,
    OF_STRATEGY,
    TRAINING,
    Scalar,
    about,
    option,
)

#: More settings than this are no grid that anybody has looked at.
MOST_POINTS = 1000
#: Settings of these panels leave alone who is protected, by how much, and what is measured.
_PANELS = (TRAINING, MODEL, OF_STRATEGY)
#: Of those, what names another model, or another kind of run; and whatever is pinned.
_FIXED = ("task", "base", "keep_last")

Grid = Mapping[str, Sequence[Scalar]]


def parsed(texts: Sequence[str]) -> dict[str, list[Scalar]]:
    """Return the grid that options name, each as ``NAME=V1,V2``.

    Raises:
        InputError: it is none, or of a setting that a search may not change.
    """
    grid: dict[str, list[Scalar]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        field = name.strip().removeprefix("--").replace("-", "_")
        if not equals:
            raise InputError(f"--grid {text}: write NAME=V1,V2, as in --grid clip_norm=0.05,0.1")
        if field in grid:
            raise InputError(f"--grid {text}: {option(field)} is in the grid already")
        where = f"--grid {field}"
        check_name(field, where)
        grid[field] = [value_of(field, value.strip(), where) for value in values.split(",")]
    return grid


def points(grid: Grid) -> list[dict[str, Scalar]]:
    """Return every combination of a grid's values, by setting.

    Raises:
        InputError: it is empty, has a value twice, a setting that a search may not change, or too
            many combinations.
    """
    named: dict[str, list[Scalar]] = {}
    for name, values in grid.items():
        field = name.replace("-", "_")
        check_name(field, f"--grid {field}")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputError(f"--grid {name}: the values must be a list; got {values!r}")
        if not values or len({repr(value) for value in values}) < len(values):
            raise InputError(f"--grid {name}: there must be values, and none of them twice")
        named[field] = list(values)
    count = 1
    for values in named.values():
        count *= len(values)
    if not 2 <= count <= MOST_POINTS:
        raise InputError(
            f"--grid has {count:,} combinations; there must be 2 to {MOST_POINTS:,} to choose from"
        )
    return [dict(zip(named, one, strict=True)) for one in itertools.product(*named.values())]


def check_name(field: str, where: str) -> None:
    """InputError, naming ``where`` it was written, for what is no setting, or decides the
    promise."""
    if field not in SETTINGS or about(SETTINGS[field]).deployed:
        raise InputError(f"{where}: there is no such setting")
    known = about(SETTINGS[field])
    if known.panel not in _PANELS or field in _FIXED or known.pinned:
        raise InputError(
            f"{where}: {option(field)} is the same for all, because it decides what is promised to "
            "whom, on what, or what is measured; leave it out there"
        )


def value_of(field: str, text: str, where: str) -> Any:
    """Return a setting's value from how it was written; InputError, naming where, if it is none."""
    kind = type(SETTINGS[field].default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise InputError(f"{where}: {text!r} is no {kind.__name__}") from None
