"""Single cells of a row: text, numbers, lists; and why one cannot be used."""

import json
import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from murmuration.preference.data.errors import BadRow as BadRow


def text_cell(value: object, column: str) -> str:
    """A cell's text, as it is; BadRow if it is empty or none."""
    if not isinstance(value, str):
        raise BadRow(f"{column!r} must be text, found {found_kind(value)}")
    if not value.strip():
        raise BadRow(f"{column!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRow(f"{column!r} is not valid Unicode (half of a surrogate pair)") from None
    return value


def number_cell(value: object) -> float:
    """A number, also one written as text; NaN for anything else, and for true and false."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, Real)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def flag_cell(value: object, column: str) -> bool:
    """True or false, also as 1 and 0 and as text; BadRow for anything else."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Real) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise BadRow(f"{column!r} must be true or false, found {found_kind(value)}")


def list_cell(value: object) -> list[object] | None:
    """A list, also one written as JSON; None if it is no list."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def found_kind(value: object) -> str:
    """Return what was found, without quoting a whole text."""
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {shortened(repr(value), 40)}"


def shortened(text: str, most: int = 400) -> str:
    """A text of at most so many characters: a reason is kept, and what it quotes may be huge."""
    return text if len(text) <= most else text[: most - 1] + "…"
