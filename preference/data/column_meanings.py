"""What the columns of a row of judgements mean, by their names alone.

Columns have the fields' own names, or those that `--columns` gives. Beside that, columns in which
collections usually keep who judged are known: a row that has exactly one of them, and no `user_id`,
is that one's. What columns mean (`Layout`) is worked out once for all rows that have the same, so
that nobody's row decides how another's is read; what was done is said.

A comparison on two sides is often kept as `response_a`, `response_b` and `winner`: people's votes
between models, what annotation tools write. The two sides are told by the ends of their columns'
names (`a` and `b`, `0` and `1`, `1` and `2`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from murmuration.preference.data.cells import label_text, shortened
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.written import written_value

REQUIRED = ("user_id", "prompt", "chosen", "rejected")
#: The fields of a row that says which of two responses won, as `--columns` names them.
SIDED = ("response_a", "response_b", "winner")
FIELDS = (
    *REQUIRED,
    "tie",
    "score_chosen",
    "score_rejected",
    "responses",
    "best",
    "ranking",
    "scores",
    "completion",
    "label",
    "flip_probability",
    *SIDED,
)
#: Where people keep who judged, besides `user_id`.
USER_COLUMNS = (
    "annotator_id",
    "annotator",
    "worker_id",
    "worker",
    "participant_id",
    "participant",
    "rater_id",
    "rater",
    "labeler_id",
    "labeler",
    "userid",
    "user",
    "judge",
    "judge_hash",
    "evaluator",
    "completed_by",
    "visitor_id",
    "voter",
    "voter_id",
    "voter-id",
    "voter_email",
    "raterParticipantId",
)
#: What may be a prompt under another name: where one is there, none is made of shared words.
PROMPT_COLUMNS = (
    "question",
    "instruction",
    "query",
    "input",
    "context",
    "post",
    "messages",
    "conversations",
    "conversation",
)
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
KNOWN_COLUMNS = frozenset(
    (
        *FIELDS,
        *USER_COLUMNS,
        *RANKING_COLUMNS,
        *RATED_COLUMNS,
        *WINNERS,
        *(column for pair in PAIRS_OF_SIDES for column in pair),
    )
)
OF_PAIRS = ("chosen", "rejected", "score_chosen", "score_rejected")
_UNREAD = (
    "the column {!r} is not used: where it says which of two texts won, see --columns winner=NAME"
)
_SAYS_DISLIKED = ("disliked", "dislike", "thumbs down", "downvoted", "downvote")

Form = Literal["pair", "sides", "list", "rating"]


@dataclass(frozen=True)
class Layout:
    """The meaning of rows' columns, by their names.

    Attributes:
        form: two responses of which the first was preferred, two sides and a winner, a list of
            responses, or a single one that was rated.
        columns: field → column, of every field, whether it is there or not.
        missing: the fields that such rows need and that are not there, with their columns.
        prompted: whether there is a prompt, or must be.
        maybe_prompted: whether there is none, but a column that may be it, under another name: then
            texts need one, and whole conversations do not.
        notes: what is to be said of fields that have other columns than their own.
    """

    form: Form
    columns: Mapping[str, str]
    missing: Mapping[str, str]
    prompted: bool
    maybe_prompted: bool
    notes: tuple[str, ...]


def column_names(columns: Mapping[str, str]) -> dict[str, str]:
    """Field → column; `tie` is there only if it was asked for, and then the column must exist."""
    for each, column in columns.items():
        if each not in FIELDS:
            raise InputError(
                f"--columns: {each!r} is not a field; the fields are {', '.join(FIELDS)}"
            )
        if not isinstance(column, str) or not column:
            raise InputError(f"--columns: no column is named for {each!r}")
        if each == "label" and label_text(column) in _SAYS_DISLIKED:
            raise InputError(
                f"--columns: true in {column!r} says that a response was not liked, and in a label "
                "that it was: name a column that says what was liked, or turn this one round"
            )
    if (whose := columns.get("user_id", "user_id")) != "user_id" and whose in FIELDS:
        raise InputError(f"--columns user_id={whose}: that column is a judgement's own {whose!r}")
    needed = [each for each in REQUIRED if "winner" not in columns or each not in OF_PAIRS]
    names = {each: each for each in needed} | dict(columns)
    if len(set(names.values())) < len(names):
        shown = ",".join(f"{each}={column}" for each, column in names.items())
        raise InputError(f"--columns: two fields are read from one column ({shown})")
    return names


def layout_of(present: Iterable[str], names: Mapping[str, str]) -> Layout:
    """Return what columns mean; ``names`` are those that were asked for, field → column.

    Raises:
        BadRow: several columns may be meant by a field.
    """
    known = KNOWN_COLUMNS.union(PROMPT_COLUMNS, names.values())
    # What matters and no more is remembered: rows may have any number of columns.
    return _layout(tuple(column for column in present if column in known), tuple(names.items()))


@lru_cache(maxsize=1024)
def _layout(present: tuple[str, ...], stated: tuple[tuple[str, str], ...]) -> Layout:
    names = dict(stated)
    sides = _sides(present, names)
    if sides is not None:
        names |= zip(("chosen", "rejected", *SIDED), (*sides[:2], *sides), strict=True)
    names = with_user(present, names)
    pair = names.get("chosen", "chosen"), names.get("rejected", "rejected")
    rating = _rating(present, names, pair)
    notes = user_note(dict(stated), names)
    form: Form = "pair" if sides is None else "sides"
    unneeded = () if sides is None else OF_PAIRS[:2]
    prompted = "prompt" in present or names["prompt"] != "prompt"
    if rating is not None:
        form, names, unneeded = "rating", names | rating, OF_PAIRS
    elif "responses" in names or ("responses" in present and pair[0] not in present):
        form, unneeded, prompted = "list", OF_PAIRS[:2], True
        names.setdefault("responses", "responses")
        ranks = [column for column in RANKING_COLUMNS if column in present]
        if len(ranks) == 1:
            names.setdefault("ranking", ranks[0])
    else:
        prompted = prompted or not {*pair} <= {*present}
        if sides is not None:
            said = f"which of {pair[0]!r} and {pair[1]!r} was preferred is read from {sides[2]!r}"
            notes = [said, *notes]
        elif pair in PAIRS_OF_SIDES or pair[::-1] in PAIRS_OF_SIDES:
            unread = [column for column in WINNERS if column in present]
            notes = [
                _UNREAD.format(column) for column in unread if column not in names.values()
            ] + notes
    needed = {each: column for each, column in names.items() if each not in unneeded}
    if not prompted:
        del needed["prompt"]
    return Layout(
        form=form,
        columns={each: each for each in FIELDS if each != "user_id"} | names,
        missing={each: column for each, column in needed.items() if column not in present},
        prompted=prompted,
        maybe_prompted=not prompted and any(column in present for column in PROMPT_COLUMNS),
        notes=tuple(notes),
    )


def top_of(column: str) -> str:
    """Return the column of a row in which a named one stands: `user` of `user.id`."""
    return str(column).partition(".")[0]


def with_nested(row: Mapping[str, object], names: Mapping[str, str]) -> Mapping[str, object]:
    """Return a row with the cells that are named by where they stand inside of others: `user.id`,
    `candidates.0.content`. What is not there holds nothing."""
    nested = {column for column in names.values() if "." in column and column not in row}
    return {**row, **{column: inner_cell(row, column) for column in nested}}


def inner_cell(cell: object, name: str) -> object:
    """Return what stands inside of a cell, under names with dots between them, or at places in
    lists (-1 is the last); None where nothing does."""
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
    """Return the names of columns, with that of the user where there is a known one.

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
    """Return what is said where the user's column is not the one that was stated."""
    column = taken.get("user_id")
    return (
        []
        if column == stated.get("user_id")
        else [f"who judged is read from the column {column!r}"]
    )


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
    """Return why a row without the columns of these fields is none, with those that there are."""
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
