"""Pairs that say which of two responses won, instead of holding the preferred one first.

A comparison on two sides is often kept as `response_a`, `response_b` and `winner`: people's votes
between models, what annotation tools write. Such a row is turned round by what it says itself. The
two sides are told by the ends of their columns' names (`a` and `b`, `0` and `1`, `1` and `2`), and
the winner must name a side by its column, or by its end, perhaps behind a word (`model_a`). A
number where sides have letters could mean either one, and is refused rather than guessed.
"""

import re
from collections.abc import Mapping

from murmuration.preference.data.cells import BadRow, found_kind, number_cell
from murmuration.preference.data.columns import check_columns, taken

#: The fields of such a row, as `--columns` names them.
SIDED = ("response_a", "response_b", "winner")
#: Columns that hold two responses.
PAIRS_OF_SIDES = tuple(
    (f"{name}_{first}", f"{name}_{second}")
    for name in ("response", "answer", "output", "completion", "conversation")
    for first, second in (("a", "b"), ("0", "1"), ("1", "2"))
)
#: Columns that say which of them is the better one.
WINNERS = ("winner", "preference", "preferred", "choice", "better_response_id")
#: What such a column holds where neither side won.
TIES = ("tie", "tie (bothbad)", "both", "bothbad", "both_bad", "neither")


def preferred_first(
    row: Mapping[str, object], names: Mapping[str, str]
) -> tuple[Mapping[str, object], Mapping[str, str]]:
    """A row and its columns' names, in which `chosen` is the column of the side that won.

    Where neither won the row gets a `tie`. A row of another form is given back as it is.

    Raises:
        BadRow: which columns are meant is not clear, or the winner is neither side.
    """
    columns = sides(row, names)
    if columns is None:
        return row, names
    *pair, winner = columns
    names = {field: column for field, column in names.items() if field not in SIDED}
    side = _side(row[winner], winner, pair)
    if side is None:
        row = {**row, names.setdefault("tie", "tie"): True}
    names["chosen"], names["rejected"] = reversed(pair) if side == 1 else pair
    return row, names


def sides(row: Mapping[str, object], names: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The columns of the two responses and of the winner; None for a row of another form.

    Raises:
        BadRow: columns that were named are missing, or several may be meant.
    """
    asked = any(field in names for field in SIDED)
    if not asked and _has_another_form(row, names):
        return None
    if "response_a" in names or "response_b" in names:
        pairs = [tuple(names.get(field, field) for field in SIDED[:2])]
    else:
        pairs = [pair for pair in PAIRS_OF_SIDES if pair[0] in row and pair[1] in row]
    winners = [column for column in WINNERS if column in row and column not in names.values()]
    winners = [names["winner"]] if "winner" in names else winners
    if not asked and not (pairs and winners):
        return None
    if len(pairs) != 1 or len(winners) != 1:
        result = [column for pair in pairs for column in pair] + winners
        raise BadRow(
            f"which columns hold two responses, and which says who won, is not clear from "
            f"{', '.join(map(repr, result)) or 'the names of columns'}: name all three with "
            "--columns response_a=NAME,response_b=NAME,winner=NAME"
        )
    (first, second), (winner,) = pairs[0], winners
    check_columns(row, dict(zip(SIDED, (first, second, winner), strict=True)))
    return first, second, winner


def how_read(row: object, names: Mapping[str, str]) -> list[str]:
    """Return what is said of a row that could be read, where that was not by the fields' own
    columns."""
    if not isinstance(row, Mapping):
        return []
    if (columns := sides(row, names)) is not None:
        first, second, winner = columns
        said = f"which of {first!r} and {second!r} was preferred is read from {winner!r}"
        return [said, *taken(*preferred_first(row, names))]
    unread = [column for column in WINNERS if column in row and column not in names.values()]
    said = "is not used: where it says which of two texts won, see --columns winner=NAME"
    one_text = any(
        {names.get("chosen"), names.get("rejected")} == {*pair} for pair in PAIRS_OF_SIDES
    )
    return [f"the column {column!r} {said}" for column in unread if one_text] + taken(row, names)


def _has_another_form(row: Mapping[str, object], names: Mapping[str, str]) -> bool:
    preferred = (names.get("chosen", "chosen"), names.get("rejected", "rejected"))
    return (
        preferred != ("chosen", "rejected")
        or "responses" in names
        or any(column in row for column in (*preferred, "responses"))
    )


def _side(value: object, column: str, pair: list[str]) -> int | None:
    """Return which of a ``pair`` won, 0 or 1; None for a tie."""
    if not isinstance(value, str) and (number := number_cell(value)).is_integer():
        value = str(int(number))
    said = value.strip().casefold() if isinstance(value, str) else ""
    if said in TIES:
        return None
    won = [side for side, name in enumerate(pair) if _names(said, name.casefold())]
    if len(won) != 1:
        ends = " or ".join(repr(name.rpartition("_")[2]) for name in pair)
        raise BadRow(
            f"{column!r} must name the side that won, {pair[0]!r} or {pair[1]!r} ({ends} will do), "
            f"or be 'tie'; found {found_kind(value)}"
        )
    return won[0]


def _names(said: str, column: str) -> bool:
    """Return whether what was said is a side's column, or its end, perhaps behind a word."""
    end = re.escape(column.rpartition("_")[2])
    return said == column or re.fullmatch(rf"(?:[a-z]+[ _-])?{end}", said) is not None
