"""One row of judgements: what it must hold, and why it is refused."""

import math
from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

FIELDS = ("user_id", "prompt", "chosen", "rejected", "tie")
REQUIRED = FIELDS[:4]


class BadRow(ValueError):
    """Why one row cannot be used; whoever knows the row's place adds it."""


def parse_row(
    row: Mapping[str, object] | BadRow, names: Mapping[str, str]
) -> tuple[str, str, str, str, bool]:
    """user_id, prompt, chosen, rejected, tie of a row.

    `names` maps fields to the row's own keys; `tie` may be absent from the row unless `names` asks
    for it. Numbers become ids by their value: 7 and 7.0 are the user `7`. The same text twice is a
    tie however it is marked: nobody can prefer a text to itself, and real collections hold such
    rows.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself.
    """
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    missing = [field for field, column in names.items() if column not in row]
    if missing:
        wanted = ", ".join(repr(names[field]) for field in missing)
        found = ", ".join(str(column) for column in row) or "none"
        example = ",".join(f"{field}=NAME" for field in missing)
        raise BadRow(
            f"no column {wanted}; the columns are: {found}. Name yours with --columns {example}"
        )
    prompt, chosen, rejected = (
        _text(row[names[field]], names[field]) for field in ("prompt", "chosen", "rejected")
    )
    tie_column = names.get("tie", "tie")
    tie = _tie(row.get(tie_column), tie_column)
    return (
        _user_id(row[names["user_id"]], names["user_id"]),
        prompt,
        chosen,
        rejected,
        tie or chosen == rejected,
    )


def _user_id(value: object, column: str) -> str:
    if isinstance(value, Integral) and not isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, (bool, np.bool_)):
        number = float(value)
        if not math.isfinite(number):
            raise BadRow(f"{column!r} is {number}, which is no user id")
        return str(int(number)) if number.is_integer() else repr(number)
    return _text(value, column).strip()


def _text(value: object, column: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{column!r} must be text, found {_kind(value)}")
    if not value.strip():
        raise BadRow(f"{column!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRow(f"{column!r} is not valid Unicode (half of a surrogate pair)") from None
    return value


def _tie(value: object, column: str) -> bool:
    if value is None:
        return False
    known = {"true": True, "1": True, "false": False, "0": False, "": False}
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Real) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise BadRow(f"{column!r} must be true or false, found {_kind(value)}")


def _kind(value: object) -> str:
    """What was found, without quoting a whole text."""
    if value is None:
        return "nothing"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:39] + '…'}"
