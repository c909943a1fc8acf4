"""What is held alike when answers are compared: how long they are, and how they are laid out.

Each covariate is a number that both answers of a vote have, not negative, as lengths and counts
are. Two columns hold it, named by the sides: `length_chosen` and `length_rejected`, or `length_a`
and `length_b` beside `response_a` and `response_b`. What is used is by how much one answer has
more, (x − y)/(x + y): within [−1, 1] whatever a row says, so that no row can be anything special.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import BadRow

#: By what columns of answers end, the first of two sides and the second.
SIDES = (("chosen", "rejected"), ("a", "b"), ("0", "1"), ("1", "2"))


def covariate_columns(names: Sequence[str]) -> frozenset[str]:
    """Return all columns that these may be read from."""
    return frozenset(f"{name}_{side}" for name in names for both in SIDES for side in both)


def covariates_of(
    row: Mapping[str, object], names: Sequence[str], sides: tuple[str, str]
) -> tuple[float, ...]:
    """Return by how much the first of two answers has more of each.

    Args:
        row: of which they are.
        names: of the covariates.
        sides: what columns of the first and of the second answer end with.

    Raises:
        BadRow: a column is not there, or holds no such number.
    """
    return tuple(_more(*(_number(row, f"{name}_{side}") for side in sides)) for name in names)


def _number(row: Mapping[str, object], column: str) -> float:
    if column not in row:
        raise BadRow(f"no column {column!r}, from which --covariates are read")
    number = number_cell(row[column])
    if not (math.isfinite(number) and number >= 0.0):
        raise BadRow(f"{column!r} must be a number that is not negative")
    return number


def _more(first: float, second: float) -> float:
    total = first / 2 + second / 2  # halved first: the sum of two large numbers may be infinite
    return (first / 2 - second / 2) / total if total else 0.0


#: What can be counted in a text in Markdown.
STYLES: Mapping[str, Callable[[str], int]] = {
    "length": len,
    "headers": lambda text: len(re.findall(r"^#{1,6} ", text, re.MULTILINE)),
    "lists": lambda text: len(re.findall(r"^\s*(?:[-*+]|\d+[.)]) ", text, re.MULTILINE)),
    "bold": lambda text: len(re.findall(r"\*\*[^*\n]+\*\*", text)),
}
