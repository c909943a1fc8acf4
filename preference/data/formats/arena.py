"""Votes between two models, as LMArena and compar:IA publish them.

`arena` reads what was said, to learn a reward from; `arena-models` which models said it, to rank
them.

The winner is a side (`model_a`, `tie (bothbad)`), one of three columns of ones and zeros, or the
name of a model, which must be that of exactly one of the two. System prompts are not shown to who
votes; where the two conversations have different ones, or only one has one, both are left out.
Votes that were given when the names of the models were shown are left out, and copies.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import dropwhile, takewhile

from murmuration.preference.data.cells import list_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows, flag, pair, side
from murmuration.preference.data.formats.marks import Mark

#: The prompt where models are what is compared.
QUESTION = "Which model is better?"
_ONE_HOT = ("winner_model_a", "winner_model_b", "winner_tie")
_MODELS = (("model_a", "model_b"), ("model_a_name", "model_b_name"))
_FIRST = ("model a", "a", "left", "response a", "assistant a")
_SECOND = ("model b", "b", "right", "response b", "assistant b")


def rows(row: Cells) -> Iterator[Cells]:
    """Yield the pair of a vote."""
    won = _won(row)
    if "conversation_a" in row and "conversation_b" in row:
        yield pair(None, *_same_system(row["conversation_a"], row["conversation_b"]), won)
        return
    prompt, first, second = row["prompt"], row["response_a"], row["response_b"]
    turns = [list_cell(cell) for cell in (prompt, first, second)]
    if turns[0] is None or not all(isinstance(turn, str) for turn in turns[0]):
        yield pair(prompt, first, second, won)
        return
    yield pair(None, _conversation(turns[0], turns[1]), _conversation(turns[0], turns[2]), won)


def models(row: Cells) -> Iterator[Cells]:
    """Yield the names of the two models of a vote, as a pair."""
    first, second = next(both for both in _MODELS if {*both} <= {*row})
    yield pair(QUESTION, row[first], row[second], _won(row))


def _won(row: Cells) -> float:
    if "winner_model_a" in row:
        flags = [flag(row, column) for column in _ONE_HOT]
        if sum(flags) != 1:
            raise BadRow("not exactly one of the columns 'winner_…' is true")
        return (1.0, 0.0, 0.5)[flags.index(True)]
    column = "chosen_model_name" if "chosen_model_name" in row else "winner"
    names = next(([row[each] for each in both] for both in _MODELS if {*both} <= {*row}), [])
    if flag(row, "both_equal"):
        if row[column] in names:
            raise BadRow(f"'both_equal' is true, and {column!r} names a model")
        return 0.5
    meant = {1.0 - place for place, name in enumerate(names) if name == row[column]}
    with suppress(BadRow):
        meant.add(side(row[column], column, _FIRST, _SECOND))
    if len(meant) != 1:
        raise BadRow(f"{column!r} names {'both sides' if meant else 'no side, model or tie'}")
    return meant.pop()


def _same_system(first: object, second: object) -> tuple[object, object]:
    both = list_cell(first), list_cell(second)
    if both[0] is None or both[1] is None:
        return first, second
    if [*takewhile(_is_system, both[0])] == [*takewhile(_is_system, both[1])]:
        return first, second
    return [*dropwhile(_is_system, both[0])], [*dropwhile(_is_system, both[1])]


def _is_system(turn: object) -> bool:
    return isinstance(turn, Mapping) and turn.get("role") == "system"


def _conversation(prompts: list[object], replies: list[object] | None) -> list[dict[str, object]]:
    if replies is None or len(replies) != len(prompts):
        raise BadRow("prompts and responses are not as many turns")
    return [
        {"role": role, "content": content}
        for turn in zip(prompts, replies, strict=True)
        for role, content in zip(("user", "assistant"), turn, strict=True)
    ]


_CONVERSATIONS = ("conversation_a", "conversation_b")
_TEXTS = ("prompt", "response_a", "response_b")


_MARKS = (
    Mark("anony", (False,), "the models' names were shown"),
    Mark("dedup_tag.sampled", (False,), "it is one copy too many of a frequent prompt"),
)
ARENA = Format(
    "arena",
    forms=(
        (*_CONVERSATIONS, "model_a", "model_b", "winner"),
        (*_CONVERSATIONS, "model_a_name", "model_b_name", "chosen_model_name"),
        (*_CONVERSATIONS, "winner_model_a", "winner_model_b", "winner_tie"),
        (*_TEXTS, "winner_model_a", "winner_model_b", "winner_tie"),
        (*_TEXTS, "model_a", "model_b", "winner"),
    ),
    reads=OwnRows(rows),
    also=("both_equal",),
    marks=_MARKS,
)
ARENA_MODELS = Format(
    "arena-models",
    forms=(
        ("model_a", "model_b", "winner"),
        ("model_a_name", "model_b_name", "chosen_model_name"),
        ("model_a", "model_b", "winner_model_a", "winner_model_b", "winner_tie"),
    ),
    reads=OwnRows(models),
    also=("both_equal",),
    marks=_MARKS,
    unmistakable=False,
    categories=True,
)
