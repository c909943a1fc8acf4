"""The meaning of the columns of a row of judgements, by their names alone.

Columns have the fields' own names, or those that `--columns` gives. Beside that, columns in which
collections usually keep who judged are known: a row that has exactly one of them, and no `user_id`,
is that one's. What columns mean (`Layout`) is worked out once for all rows that have the same, so
that no row decides how another is read; notes report what was done.

A comparison on two sides is often kept as `response_a`, `response_b` and `winner`: people's votes
between models, what annotation tools write. The two sides are identified by the ends of their
columns' names (`a` and `b`, `0` and `1`, `1` and `2`).
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from murmuration.preference.data.cells import label_text, shortened
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.files.written import written_value

REQUIRED = ("user_id", "prompt", "chosen", "rejected")
#: The fields of a row that says which of two responses won, as `--columns` names them.
SIDED = ("response_a", "response_b", "winner")
FIELDS = (
    *REQUIRED, "tie", "score_chosen", "score_rejected", "responses", "best", "ranking", "scores",
    "completion", "label", "flip_probability", *SIDED,
)  # fmt: skip
#: Where people keep who judged, besides `user_id`.
USER_COLUMNS = (
    "annotator_id", "annotator", "worker_id", "worker", "participant_id", "participant", "rater_id",
    "rater", "labeler_id", "labeler", "userid", "user", "judge", "judge_hash", "evaluator",
    "completed_by", "visitor_id", "voter", "voter_id", "voter-id", "voter_email",
    "raterParticipantId",
)  # fmt: skip
#: What may be a prompt under another name: where one is there, none is made of shared words.
PROMPT_COLUMNS = (
    "question", "instruction", "query", "input", "context", "post", "messages", "conversations",
    "conversation",
)  # fmt: skip
RANKING_COLUMNS = ("ranking", "ranks", "rank")
#: Where a response stands that was liked or not, as `label` says.
RATED_COLUMNS = ("completion", "response", "messages")
#: Columns that hold two responses.
PAIRS_OF_SIDES = tuple(
    (f"{name}_{first}", f"{name}_{second}")
    for name in ("response", "answer", "output", "completion", "conversation")
    for first, second in (("a", "b"), ("0", "1"), ("1", "2"))
)
#: Columns that say which of them is the better one.
WINNERS = ("winner", "preference", "preferred", "choice", "better_response_id")
#: All columns that a field may be read from, besides those that are named.
KNOWN_COLUMNS = frozenset(FIELDS).union(
    USER_COLUMNS, RANKING_COLUMNS, RATED_COLUMNS, WINNERS, *PAIRS_OF_SIDES
)
#: All columns that tell what a row is.
_TOLD = KNOWN_COLUMNS.union(PROMPT_COLUMNS)
OF_PAIRS = ("chosen", "rejected", "score_chosen", "score_rejected")
_UNREAD = (
    "the column {!r} is not used: where it says which of two texts won, see --columns winner=NAME"
)
_SAYS_DISLIKED = ("disliked", "dislike", "thumbs down", "downvoted", "downvote")

#: A name that can stand in ``field=column,field=column``.
_PLAIN = re.compile(r"[^,={\s]([^,=]*[^,=\s])?")

Form = Literal["pair", "sides", "list", "rating"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """The meaning of rows' columns, by their names.

    Attributes:
        form: two responses of which the first was preferred, two sides and a winner, a list of
            responses, or a single one that was rated.
        columns: field → column, of every field, whether it is there or not.
        read: the columns that are there and may be a field's, except the user's.
        missing: the fields that such rows need and that are not there, with their columns.
        prompt: the column of the prompt; None where there is none, and need not be.
        maybe_prompted: whether there is none, but a column that may be it, under another name: then
            texts need one, and whole conversations do not.
        notes: what is to be said of fields that have other columns than their own.
    """

    form: Form
    columns: Mapping[str, str]
    read: tuple[str, ...]
    missing: Mapping[str, str]
    prompt: str | None
    maybe_prompted: bool
    notes: tuple[str, ...]


def parse_columns(columns: str | Mapping[str, str]) -> dict[str, str]:
    """The columns by field, from ``field=column,field=column``, the same as a JSON object, or a
    mapping; empty where fields have the columns of their own names.

    Raises InputError for anything else (an unknown field is refused when the source is read).
    """
    if isinstance(columns, str) and columns.lstrip().startswith("{"):
        try:
            columns = json.loads(columns)
        except ValueError:
            raise InputError(f"--columns {columns!r} is no JSON object") from None
    if isinstance(columns, Mapping):
        return dict(columns)
    if not isinstance(columns, str):
        raise InputError(f"--columns must name the columns of fields; got {columns!r}")
    pairs = [part.partition("=") for part in columns.split(",") if part.strip()]
    named = {field.strip(): column.strip() for field, _, column in pairs}
    if not all(named) or not all(named.values()):
        raise InputError(f"--columns {columns!r}: write field=column, as in user_id=annotator")
    if len(named) < len(pairs):
        raise InputError(f"--columns {columns!r}: a field is named twice")
    return named


def write_columns(columns: str | Mapping[str, str] | None, user_column: str | None = None) -> str:
    """The setting ``columns`` that ``parse_columns`` reads, including the user's column.

    Raises:
        InputError: it says no columns, or another one for the user.
    """
    if user_column is None and isinstance(columns, str | None):
        return columns or ""
    named = parse_columns(columns or {})
    if user_column is not None:
        user_column = user_column if isinstance(user_column, str) else ""
        if named.setdefault("user_id", user_column) != user_column or not user_column.strip():
            raise InputError(
                f"--user-column {user_column!r} must be the name of a column, and --columns no "
                "other for user_id"
            )
    if all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in chain(*named.items())):
        return ",".join(f"{field}={column}" for field, column in named.items())
    return json.dumps(named, ensure_ascii=False)


def column_names(
    columns: Mapping[str, str],
    fields: Collection[str] = FIELDS,
    needed: Collection[str] = REQUIRED,
) -> dict[str, str]:
    """The required columns by field: those of ``needed`` fields and those that ``columns`` names.

    Raises:
        InputError: there is no such field, or a column cannot be used for a field.
    """
    for each, column in columns.items():
        if each not in fields:
            raise InputError(
                f"--columns: {each!r} is not a field; the fields are {', '.join(fields)}"
            )
        if not isinstance(column, str) or not column:
            raise InputError(f"--columns: no column is named for {each!r}")
        if each == "label" and label_text(column) in _SAYS_DISLIKED:
            raise InputError(
                f"--columns: true in {column!r} says that a response was not liked, and in a label "
                "that it was: name a column that says what was liked, or turn this one round"
            )
    if (whose := columns.get("user_id", "user_id")) != "user_id" and whose in fields:
        raise InputError(f"--columns user_id={whose}: that column is a judgement's own {whose!r}")
    if "winner" in columns:
        needed = [each for each in needed if each not in OF_PAIRS]
    names = {each: each for each in needed} | dict(columns)
    if len(set(names.values())) < len(names):
        shown = ",".join(f"{each}={column}" for each, column in names.items())
        raise InputError(f"--columns: two fields are read from one column ({shown})")
    return names


def layout_of(present: Iterable[str], names: Mapping[str, str]) -> Layout:
    """The meaning of a row's columns; ``names`` maps fields to the columns that were named for
    them.

    Raises:
        BadRow: several columns may be meant by a field.
    """
    # What matters and no more is remembered: rows may have any number of columns.
    known = tuple(column for column in present if column in _TOLD or column in names.values())
    return _layout(known, tuple(names.items()))


@lru_cache(maxsize=1024)
def _layout(present: tuple[str, ...], stated: tuple[tuple[str, str], ...]) -> Layout:
    names = with_user(present, dict(stated))
    notes = user_note(dict(stated), names)
    form: Form = "pair"
    unneeded: tuple[str, ...] = ()
    if sides := _sides(present, names):
        form, unneeded = "sides", OF_PAIRS[:2]
        names |= zip(("chosen", "rejected", *SIDED), (*sides[:2], *sides), strict=True)
    pair = names.get("chosen", "chosen"), names.get("rejected", "rejected")
    prompted = "prompt" in present or names["prompt"] != "prompt"
    if rating := _rating(present, names, pair):
        form, unneeded, names = "rating", OF_PAIRS, names | rating
    elif "responses" in names or ("responses" in present and pair[0] not in present):
        form, unneeded, prompted = "list", OF_PAIRS[:2], True
        names.setdefault("responses", "responses")
        ranks = [column for column in RANKING_COLUMNS if column in present]
        if len(ranks) == 1:
            names.setdefault("ranking", ranks[0])
    else:
        prompted = prompted or not {*pair} <= {*present}
        notes = _notes_of_pair(present, names, sides) + notes
    needed = {each: column for each, column in names.items() if each not in unneeded}
    if not prompted:
        del needed["prompt"]
    columns = {each: each for each in FIELDS if each != "user_id"} | names
    whose = columns.get("user_id")
    return Layout(
        form=form,
        columns=columns,
        read=tuple(
            column
            for column in present
            if column != whose and (column in KNOWN_COLUMNS or column in columns.values())
        ),
        missing={each: column for each, column in needed.items() if column not in present},
        prompt=columns["prompt"] if prompted else None,
        maybe_prompted=not prompted and any(column in present for column in PROMPT_COLUMNS),
        notes=tuple(notes),
    )


def _notes_of_pair(
    present: Sequence[str], names: Mapping[str, str], sides: tuple[str, str, str] | None
) -> list[str]:
    """Notes about a column that names, or may name, the preferred response of a pair."""
    if sides is not None:
        return [f"which of {sides[0]!r} and {sides[1]!r} was preferred is read from {sides[2]!r}"]
    pair = names.get("chosen"), names.get("rejected")
    if pair not in PAIRS_OF_SIDES and pair[::-1] not in PAIRS_OF_SIDES:
        return []
    unread = [column for column in WINNERS if column in present and column not in names.values()]
    return [_UNREAD.format(column) for column in unread]


def top_of(column: str) -> str:
    """The row's own column of a nested name: `user` of `user.id`."""
    return str(column).partition(".")[0]


def with_nested(row: Mapping[str, object], names: Mapping[str, str]) -> Mapping[str, object]:
    """The row with cells for columns that are named by their path inside others: `user.id`,
    `candidates.0.content`. A path that does not exist has no value.
    """
    nested = {column for column in names.values() if "." in column and column not in row}
    return {**row, **{column: inner_cell(row, column) for column in nested}} if nested else row


def inner_cell(cell: object, name: str) -> object:
    """The value inside a cell at a path of names or list indices separated by dots (-1 is the
    last); None if there is none.
    """
    for part in name.split("."):
        if isinstance(cell, str):  # as CSV holds what is nested
            cell = written_value(cell)
        if isinstance(cell, Mapping):
            cell = cell.get(part)
        elif isinstance(cell, Sequence) and not isinstance(cell, str) and part.isdecimal():
            cell = cell[int(part)] if int(part) < len(cell) else None
        elif isinstance(cell, Sequence) and not isinstance(cell, str) and part == "-1":
            cell = cell[-1] if cell else None
        else:
            return None
    return cell


def with_user(present: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """The columns by field, with that of the user if a column of a known name is there.

    Raises:
        BadRow: several columns may be the user's.
    """
    if names.get("user_id") != "user_id" or "user_id" in present:
        return {**names}
    taken = names.values()
    there = [column for column in USER_COLUMNS if column in present and column not in taken]
    if len(there) > 1:
        raise BadRow(
            f"columns {', '.join(map(repr, there))} may each say who judged: name the one with "
            f"--columns user_id={there[0]}"
        )
    return {**names, "user_id": there[0]} if there else {**names}


def user_note(stated: Mapping[str, str], taken: Mapping[str, str]) -> list[str]:
    """A note for rows whose user column is not the one that was stated."""
    column = taken.get("user_id")
    if column == stated.get("user_id"):
        return []
    return [f"who judged is read from the column {column!r}"]


def _rating(
    present: Sequence[str], names: Mapping[str, str], compared: Sequence[str]
) -> dict[str, str] | None:
    """The columns of a single response (``completion``) and its ``label``; None where rows are no
    ratings.

    They are where these two are there, or were asked for, and nothing that the response was
    compared with.
    """
    stated = {each: names[each] for each in ("completion", "label") if each in names}
    there = [column for column in RATED_COLUMNS if column in present]
    if not stated:
        others = (*compared, names.get("responses", "responses"))
        if not there or "label" not in present or any(column in present for column in others):
            return None
    return {"completion": there[0] if there else "completion", "label": "label"} | stated


def _sides(present: Sequence[str], names: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The columns of two responses and of which one won; None where rows have another form.

    Raises:
        BadRow: several may be meant.
    """
    stated = any(each in names for each in SIDED)
    preferred = (names.get("chosen", "chosen"), names.get("rejected", "rejected"))
    if not stated and (
        preferred != ("chosen", "rejected")
        or "responses" in names
        or any(column in present for column in (*preferred, "responses"))
    ):
        return None
    if "response_a" in names or "response_b" in names:
        pairs = [(names.get("response_a", "response_a"), names.get("response_b", "response_b"))]
    else:
        pairs = [pair for pair in PAIRS_OF_SIDES if {*pair} <= {*present}]
    winners = [column for column in WINNERS if column in present and column not in names.values()]
    winners = [names["winner"]] if "winner" in names else winners
    if not stated and not (pairs and winners):
        return None
    if len(pairs) != 1 or len(winners) != 1:
        there = [column for pair in pairs for column in pair] + winners
        raise BadRow(
            f"which columns hold two responses, and which says who won, is not clear from "
            f"{', '.join(map(repr, there)) or 'the names of columns'}: name all three with "
            "--columns response_a=NAME,response_b=NAME,winner=NAME"
        )
    return (*pairs[0], winners[0])


def missing_columns(row: Mapping[str, object], missing: Mapping[str, str]) -> BadRow:
    """The error for a row without the columns of these fields; it lists the columns that are
    there.
    """
    there = shortened(", ".join(str(column) for column in row)) or "none"
    if missing == {"user_id": "user_id"}:
        return BadRow(
            f"no column says who judged; the columns are: {there}. Whoever judged is whom privacy "
            "is promised to: name the column with --user-column NAME. If there is none, "
            "--one-user-per-row counts each row as a user of its own, and then protects single "
            "rows only, not people who have several"
        )
    if "chosen" in missing and {"model_a", "model_b"} <= {*row}:
        return BadRow(
            f"votes between models; the columns are: {there}. --format arena-models compares the "
            "models, and --format arena what they said"
        )
    wanted = ", ".join(map(repr, missing.values()))
    example = ",".join(f"{each}=NAME" for each in missing)
    sided = ""
    two = "chosen" in missing or any({*pair} <= {*row} for pair in PAIRS_OF_SIDES)
    if "rejected" in missing and two:
        sided = (
            "; where a column says which of two responses won, response_a=NAME,response_b=NAME,"
            f"winner=NAME instead of {'the last two' if 'chosen' in missing else 'it'}; where it "
            "says how good a single response is, completion=NAME,label=NAME"
        )
    return BadRow(
        f"no column {wanted}; the columns are: {there}. Name yours with --columns {example}{sided}"
    )
