"""One row of judgements: what it must hold, and why it is refused.

Three kinds of rows, told apart by their columns: pairs (`chosen`, `rejected`, perhaps `tie`), the
best of several (`responses`, `best`) and rankings (`responses`, `ranking`). A cell of text that
should be a list, as in CSV, is read as JSON.
"""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

import numpy as np

Kind = Literal["pairs", "top-1", "ranking"]

REQUIRED = ("user_id", "prompt", "chosen", "rejected")
FIELDS = (*REQUIRED, "tie", "responses", "best", "ranking", "flip_probability")

#: Every judgement of a node takes as much memory as one over the most responses.
MOST_RESPONSES = 64


class InputError(ValueError):
    """Input that a user can correct: one line that names the file, row or option and says what to
    do."""


class BadRow(ValueError):
    """Why one row cannot be used; whoever knows the row's place adds it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One judgement.

    Attributes:
        user_id: as text.
        prompt: what was asked.
        responses: in order of preference; among the best of several, the tied ones first and the
            others as given.
        y: one over the number of responses that are best: 1, or less for a tie.
        kind: what kind of row it is.
        flip_probability: of the label, or None if the row says nothing of it.
    """

    user_id: str
    prompt: str
    responses: tuple[str, ...]
    y: float
    kind: Kind
    flip_probability: float | None


def parse_row(row: Mapping[str, object] | BadRow, names: Mapping[str, str]) -> Row:
    """A row's judgement.

    `names` maps the fields of `REQUIRED`, and others that were asked for, to the row's own keys.
    What was asked for must be there; other fields have their own names and may be absent. Numbers
    become ids by their value: 7 and 7.0 are the user `7`. The same text twice among the best is a
    tie however it is marked: nobody can prefer a text to itself, and real collections hold such
    rows.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself.
    """
    if isinstance(row, BadRow):
        raise row
    try:
        return _judgement(row, names)
    except BadRow:
        raise
    except Exception as error:  # a cell may hold anything
        raise BadRow(f"a cell that cannot be read ({type(error).__name__})") from None


def _judgement(row: Mapping[str, object], names: Mapping[str, str]) -> Row:
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    listed = "responses" in names or ("responses" in row and names["chosen"] not in row)
    needed = {**names, "responses": names.get("responses", "responses")} if listed else names
    unused = ("chosen", "rejected") if listed else ()
    check_columns(row, {f: column for f, column in needed.items() if f not in unused})
    cells = {field: row.get(names.get(field, field)) for field in FIELDS}
    columns = {field: names.get(field, field) for field in FIELDS}
    prompt = text_cell(cells["prompt"], columns["prompt"])
    kind, responses, y = (_listed if listed else _pair)(cells, columns)
    user_id = user_cell(cells["user_id"], columns["user_id"])
    flip = _flip(cells["flip_probability"], columns["flip_probability"], kind, len(responses))
    return Row(user_id, prompt, responses, y, kind, flip)


def readable_user(row: object, names: Mapping[str, str]) -> str | None:
    """Whom a row is of, whatever else is wrong with it; None if it names nobody."""
    if not isinstance(row, Mapping):
        return None
    try:
        return user_cell(row.get(names["user_id"]), names["user_id"])
    except Exception:  # a cell may hold anything
        return None


def check_columns(row: Mapping[str, object], needed: Mapping[str, str]) -> None:
    """BadRow, with the columns that there are, unless a row has those of all ``needed`` fields."""
    missing = [field for field, column in needed.items() if column not in row]
    if missing:
        wanted = ", ".join(repr(needed[field]) for field in missing)
        found = _shortened(", ".join(str(column) for column in row)) or "none"
        example = ",".join(f"{field}=NAME" for field in missing)
        raise BadRow(
            f"no column {wanted}; the columns are: {found}. Name yours with --columns {example}"
        )


_Judged = tuple[Kind, tuple[str, ...], float]


def _pair(cells: Mapping[str, object], columns: Mapping[str, str]) -> _Judged:
    chosen, rejected = (text_cell(cells[side], columns[side]) for side in ("chosen", "rejected"))
    tie = _tie(cells["tie"], columns["tie"]) or chosen == rejected
    return "pairs", (chosen, rejected), 0.5 if tie else 1.0


def _listed(cells: Mapping[str, object], columns: Mapping[str, str]) -> _Judged:
    """A row with `responses`, and either `best` or `ranking`."""
    found = _list(cells["responses"])
    if found is None or not 2 <= len(found) <= MOST_RESPONSES:
        raise BadRow(
            f"{columns['responses']!r} must be a list of 2 to {MOST_RESPONSES} texts, "
            f"found {_kind(cells['responses'])}"
        )
    responses = [text_cell(response, columns["responses"]) for response in found]
    best, ranking = (
        None if isinstance(cell, str) and not cell.strip() else cell
        for cell in (cells["best"], cells["ranking"])
    )
    if (best is None) == (ranking is None):
        said = "both" if best is not None else "neither"
        raise BadRow(
            f"a row with {columns['responses']!r} needs {columns['best']!r} or "
            f"{columns['ranking']!r}; found {said}. Name yours with --columns best=NAME"
        )
    if _tie(cells["tie"], columns["tie"]):
        raise BadRow(f"{columns['tie']!r} is for pairs: list all that tie in {columns['best']!r}")
    if ranking is not None:
        order = _order(ranking, columns["ranking"], len(responses))
        return "ranking", tuple(responses[place] for place in order), 1.0
    tied = _best(best, columns["best"], len(responses))
    tied_texts = {responses[place] for place in tied}
    first = [response for response in responses if response in tied_texts]
    others = [response for response in responses if response not in tied_texts]
    return "top-1", (*first, *others), 1.0 / len(first)


def _best(value: object, column: str, responses: int) -> list[int]:
    """The places that are best, from one number or a list of them."""
    listed = _list(value)
    places = [_whole(place) for place in ([value] if listed is None else listed)]
    known = [place for place in places if place is not None and 0 <= place < responses]
    if not places or len(set(known)) < len(places):
        raise BadRow(
            f"{column!r} must be the place of a response, counted from 0 to {responses - 1}, or a "
            f"list of those that tie; found {_kind(value)}"
        )
    return known


def _order(value: object, column: str, responses: int) -> list[int]:
    """Which response comes first, second, …, from the rank of each."""
    ranks = [_whole(rank) for rank in _list(value) or ()]
    if sorted(rank for rank in ranks if rank is not None) != [*range(1, responses + 1)] or (
        len(ranks) != responses
    ):
        raise BadRow(
            f"{column!r} must give each of the {responses} responses a place of its own, 1 for the "
            f"best to {responses}; found {_kind(value)}"
        )
    return [ranks.index(place) for place in range(1, responses + 1)]


def _flip(value: object, column: str, kind: Kind, responses: int) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = float(value) if isinstance(value, (str, Real)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    most = 1.0 - 1.0 / responses
    if isinstance(value, (bool, np.bool_)) or not 0.0 <= number < most:
        raise BadRow(
            f"{column!r} must be at least 0 and below {most:.3g}, which is pure chance among "
            f"{responses} responses; found {_kind(value)}"
        )
    if kind == "ranking":
        raise BadRow(f"{column!r} is about one label, not about a ranking")
    return number


def _list(value: object) -> list[object] | None:
    """A list, also one written as JSON; None if it is no list."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def _whole(value: object) -> int | None:
    """A whole number, also as text; None if it is none."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() else None


def user_cell(value: object, column: str) -> str:
    """A user's id as text; BadRow if it is none.

    Spellings that cannot be told apart by looking are one user: an accent that is a character of
    its own (NFC), blanks and other invisible characters around.
    """
    if isinstance(value, Integral) and not isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, (bool, np.bool_)):
        number = float(value)
        if not math.isfinite(number):
            raise BadRow(f"{column!r} is {number}, which is no user id")
        return str(int(number)) if number.is_integer() else repr(number)
    name = unicodedata.normalize("NFC", text_cell(value, column))
    seen = [place for place, letter in enumerate(name) if _visible(letter)]
    if not seen:
        raise BadRow(f"{column!r} is empty: nothing in it can be seen")
    return name[seen[0] : seen[-1] + 1]


def _visible(letter: str) -> bool:
    """Whether a character is more than a blank, a mark of order or direction, or a control."""
    return not letter.isspace() and unicodedata.category(letter) not in ("Cf", "Cc")


def text_cell(value: object, column: str) -> str:
    """A cell's text, as it is; BadRow if it is empty or none."""
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
    return f"{type(value).__name__} {_shortened(repr(value), 40)}"


def _shortened(text: str, most: int = 400) -> str:
    """A text of at most so many characters: a reason is kept, and what it quotes may be huge."""
    return text if len(text) <= most else text[: most - 1] + "…"
