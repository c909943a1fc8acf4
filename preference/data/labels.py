"""The meaning of a label for the responses that it is about, by itself and by the declared schema.

Words have fixed meanings (`true`, `thumbs up`, `left`). Numbers have none: in ratings from 1 to 5 a
1 is the worst, in thumbs of 1 and 0 the best. Their scale is declared (`--scale 1..5`).
"""

import math
import re
from collections.abc import Sequence
from numbers import Integral

import numpy as np

from murmuration.preference.data.cells import (
    found_kind,
    is_empty,
    is_number,
    label_text,
    list_cell,
    number_cell,
)
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.schema import Schema

_LIKED = "true,up,thumbs up,👍,like,liked,good,positive,yes,agree"
_DISLIKED = "false,down,thumbs down,👎,dislike,disliked,bad,negative,no,disagree"
_NEITHER = "neutral,unsure,neither,pass"
#: What words stand for: 1 for a response that was liked, 0 for one that was not, 0.5 for neither.
THUMBS = {
    word: y
    for words, y in ((_LIKED, 1.0), (_DISLIKED, 0.0), (_NEITHER, 0.5))
    for word in words.split(",")
}
#: What says that neither of two responses won, as ``label_text`` writes it.
TIES = frozenset(("tie", "tie (bothbad)", "both", "bothbad", "both bad", "neither"))
#: Words for the first and the second of two responses, by where they stand.
_PLACES = ("left", "right", "first", "second")
_SIDES = {"left": 0, "first": 0, "a": 0, "right": 1, "second": 1, "b": 1}


def thumb(value: object, column: str, schema: Schema) -> float:
    """The value of a single response's label: 1 for liked, 0 for disliked, 0.5 for neither.

    Raises:
        BadRow: it is no word that is known, not on the declared scale, or a number without one.
    """
    label = label_text(value)
    if label and schema.positive_from:
        return float(_on_scale(label, schema) >= float(schema.positive_from))
    if label and schema.scale:
        return _above_middle(label, schema)
    if label in THUMBS:
        return THUMBS[label]
    if is_number(label):
        raise BadRow(
            f"{column!r} holds numbers, and nothing is declared of what they stand for: pass "
            "--scale 0..1 if 0 is down and 1 is up, --scale 1..5 for ratings of which those above "
            "the middle are up, or --positive-from with the least number that is a thumb up"
        )
    raise BadRow(
        f"{column!r} must be true or false, or a word that says liked or not; found "
        f"{found_kind(value)}"
    )


def won(value: object, column: str, pair: Sequence[str], schema: Schema) -> float:
    """The winner of a ``pair`` of columns: 1 for the first, 0 for the second, 0.5 for a tie.

    Raises:
        BadRow: the label names neither, or is not on the declared scale.
    """
    if schema.scale:
        return 1.0 - _above_middle(label_text(value), schema)
    return named_side(value, column, pair)


def _on_scale(label: str, schema: Schema) -> float:
    low, high = schema.bounds
    number = number_cell(label)
    if not (math.isfinite(number) and low <= number <= high):
        which = f"the label {label!r}" if is_number(label) else "a label that is no number"
        raise BadRow(f"{which} is not on the scale {schema.scale}: pass --scale if it is another")
    return number


def _above_middle(label: str, schema: Schema) -> float:
    """1 for a label on the better half of the declared scale, 0 on the other, 0.5 in the middle."""
    above = _on_scale(label, schema) - sum(schema.bounds) / 2.0
    return float(np.heaviside(-above if schema.falling else above, 0.5))


def named_side(value: object, column: str, pair: Sequence[str]) -> float:
    """The winner of a ``pair`` of columns that a label names, as in ``won``.

    A label may be the column's whole name, the end of its name (perhaps after another word), or its
    position. A number for columns that end in letters could mean either one, and is refused rather
    than guessed.
    """
    if not isinstance(value, str) and (number := number_cell(value)).is_integer():
        value = str(int(number))
    label = label_text(value)
    if label in TIES:
        return 0.5
    text = value.strip().casefold() if isinstance(value, str) else ""
    ends = [name.rpartition("_")[2] for name in pair]
    sides = [
        side
        for side, (name, end) in enumerate(zip(pair, ends, strict=True))
        if label == label_text(name)
        or re.fullmatch(rf"(?:[a-z]+[ _-])?{re.escape(end.casefold())}", text)
    ]
    if len(sides) != 1 and label in _SIDES:
        words = [label_text(name).split() for name in pair]
        sides = [side for side in (0, 1) if label in words[side]]  # `left`, of `left_text`
        if len(sides) != 1 and not {*words[0], *words[1]}.intersection(_PLACES):
            sides = [_SIDES[label]]
    if len(sides) != 1:
        raise BadRow(
            f"{column!r} must name the side that won, {pair[0]!r} or {pair[1]!r} ({ends[0]!r} or "
            f"{ends[1]!r} will do), or be 'tie'; found {found_kind(value)}"
        )
    return 1.0 - sides[0]


def score(value: object, column: str) -> float | None:
    """A finite number, also from text; None for an empty cell.

    Raises:
        BadRow: it is none.
    """
    if is_empty(value):
        return None
    number = number_cell(value)
    if not math.isfinite(number):
        raise BadRow(f"{column!r} must hold finite numbers, found {found_kind(value)}")
    return number


def scores(value: object, column: str, responses: int) -> list[float]:
    """The score of each response.

    Raises:
        BadRow: one has none.
    """
    listed = [score(each, column) for each in list_cell(value) or ()]
    numbers = [each for each in listed if each is not None]
    if not len(numbers) == len(listed) == responses:
        raise BadRow(
            f"{column!r} must give a number for each of the {responses} responses; "
            f"found {found_kind(value)}"
        )
    return numbers


def best_places(value: object, column: str, responses: int) -> list[int]:
    """The indices of the best responses, from one number or a list.

    Raises:
        BadRow: they are none, or one stands there twice.
    """
    listed = list_cell(value)
    places = [_whole(place) for place in ([value] if listed is None else listed)]
    known = [place for place in places if place is not None and 0 <= place < responses]
    if not places or len(set(known)) < len(places):
        raise BadRow(
            f"{column!r} must be the place of a response, counted from 0 to {responses - 1}, or a "
            f"list of those that tie; found {found_kind(value)}"
        )
    return known


def _whole(value: object) -> int | None:
    if isinstance(value, Integral) and not isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, str) and not value.strip().isdecimal():
        return None
    number = number_cell(value)
    return int(number) if number.is_integer() else None


def ranks(value: object, column: str, responses: int) -> list[float]:
    """The rank of each response, 1 for the best; ties share one.

    Shared ranks are counted in any of the usual ways: 1, 2, 2, 4 or 1, 3, 3, 4 or 1, 2, 2, 3, or as
    means, 1, 2.5, 2.5, 4.

    Raises:
        BadRow: they are not ranks of this number of responses.
    """
    given = [number_cell(rank) for rank in list_cell(value) or ()]
    ordered = sorted(rank for rank in given if math.isfinite(rank))
    lowest = [ordered.index(rank) + 1 for rank in ordered]
    highest = [low + ordered.count(rank) - 1 for low, rank in zip(lowest, ordered, strict=True)]
    dense = [len({*ordered[: low - 1]}) + 1 for low in lowest]
    mean = [(low + high) / 2 for low, high in zip(lowest, highest, strict=True)]
    usual = ordered in (lowest, highest, dense, mean)
    if not usual or not len(ordered) == len(given) == responses:
        raise BadRow(
            f"{column!r} must give each of the {responses} responses a rank, 1 for the best, and "
            f"those that tie the same one; found {found_kind(value)}"
        )
    return given


def flip_probability(value: object, column: str, responses: int) -> float | None:
    """The probability that a label is false, given the number of responses; None for an empty cell.

    Raises:
        BadRow: it is none, or as large as pure chance.
    """
    if is_empty(value):
        return None
    number, most = number_cell(value), 1.0 - 1.0 / responses
    if not 0.0 <= number < most:
        raise BadRow(
            f"{column!r} must be at least 0 and below {most:.3g}, which is pure chance among "
            f"{responses} responses; found {found_kind(value)}"
        )
    return number
