"""The public grid of settings that a search draws from."""

import itertools
from collections.abc import Mapping, Sequence

from murmuration.preference.data.errors import InputError
from murmuration.strategies.settings.declaration import Scalar, option
from murmuration.strategies.settings.varied import check_name, value_of

#: More settings than this are no grid that anybody has looked at.
MOST_POINTS = 1000

Grid = Mapping[str, Sequence[Scalar]]


def parsed(texts: Sequence[str]) -> dict[str, list[Scalar]]:
    """Parse the grid that options name, each as ``NAME=V1,V2``.

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
    """Every combination of a grid's values, by setting.

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
