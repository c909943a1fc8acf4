"""Single cells of a row: texts, numbers and lists, however they are written, and what was found
where one is neither."""

import math
import re
from collections.abc import Mapping, Sequence, Sized
from numbers import Real

import numpy as np

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.files.columnar_child import NOT_OF_JSON
from murmuration.preference.data.files.written import written_value


def text_cell(value: object, column: str) -> str:
    """A cell's text, as it is; BadRow if it is empty or none."""
    if not isinstance(value, str):
        raise BadRow(f"{column!r} must be text, found {found_kind(value)}")
    if not value.strip():
        raise BadRow(f"{column!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # Bytes that are not UTF-8 were decoded to halves from U+DC80 on (PEP 383).
        byte = "\udc80" <= value[error.start] <= "\udcff"
        utf_8 = "a byte that is not UTF-8: save the file as UTF-8"
        why = utf_8 if byte else "half of a surrogate pair"
        raise BadRow(f"{column!r} is not valid Unicode ({why})") from None
    return value


def number_cell(value: object) -> float:
    """A number, also one written as text; NaN for anything else, and for true and false."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, Real)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def is_empty(value: object) -> bool:
    """True if a cell is empty: None, or only blanks, as CSV writes it."""
    return value is None or (isinstance(value, str) and not value.strip())


def flag_cell(value: object, column: str) -> bool:
    """True or false, also as 1 and 0 and as text; false where a cell is empty. BadRow for anything
    else."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Real) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    if is_empty(value):
        return False
    raise BadRow(f"{column!r} must be true or false, found {found_kind(value)}")


def label_text(value: object) -> str:
    """A label in one spelling: numbers by their value, words in lower case; empty for anything
    else.
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    number = number_cell(value)
    if math.isfinite(number):
        return f"{number:.12g}"
    return (
        " ".join(re.split(r"[\s_-]+", value.strip().casefold()))[:40]
        if isinstance(value, str)
        else ""
    )


def is_number(label: str) -> bool:
    """True if a label, as spelled by ``label_text``, is a number."""
    return math.isfinite(number_cell(label))


def list_cell(value: object) -> list[object] | None:
    """A list, also one that a text writes down (`data.files.written`); None if it is none."""
    if isinstance(value, str):
        value = written_value(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def found_kind(value: object) -> str:
    """A description of a cell for error messages: a number as it is; of anything else, which may be
    a user's words, only its type and length.
    """
    if value is None:
        return "nothing"
    kind = type(value).__name__
    if isinstance(value, Mapping) and [*value] == [NOT_OF_JSON]:
        kind = str(value[NOT_OF_JSON])
        return kind if kind.isidentifier() and len(kind) < 40 else "a value of another type"
    if isinstance(value, Sized):
        return f"{kind} of length {len(value)}"
    return f"{kind} {shortened(repr(value), 40)}" if isinstance(value, Real) else kind


def shortened(text: str, most: int = 400) -> str:
    """A text of at most ``most`` characters: a reason for an error is kept, but may quote a huge
    cell.
    """
    return text if len(text) <= most else text[: most - 1] + "…"
