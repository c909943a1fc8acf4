"""Hostile users, by name: what one person may put where their rows are read.

What a row means, and whether it counts, is a function of the declaration and of its own user's rows
alone. These users try to break that, with cells, columns, labels, texts, ids, sizes and bytes. A
test reads others' rows with and without each of them; an audit draws its canaries from them.

A hostile user makes their rows of a user's good ones, which may be of any form: ``HOSTILE`` changes
cells wherever these stand, also inside of others, and never those that say who judged, unless its
name says so. ``AS_ANOTHER`` spells a name as another user's may be read. What a hostile user has in
a row's place is a mapping, any other value, or bytes: a line as it stands in a file.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from murmuration.preference.data.columns import USER_COLUMNS

Cells = Mapping[str, object]
#: Makes a hostile user's rows of the good ones of a user.
Hostile = Callable[[Sequence[Cells]], Sequence[object]]
#: Says a leaf of a row otherwise, by the name of its column.
Change = Callable[[str, object], object]

_WHO = frozenset(("user_id", *USER_COLUMNS))
_MANY = 2_000
_HUGE = "word " * 40_000
_DEEP = 300
_LONE = "\ud800"
_CHAT = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]


def who_of(rows: Sequence[Cells]) -> dict[str, object]:
    """The cells with the user, of the first row that has any."""
    return next((mine for row in rows if (mine := {k: row[k] for k in row if k in _WHO})), {})


def changed(cell: object, change: Change, column: str = "") -> object:
    """A cell, or a row, with all leaves changed except those with the user."""
    if isinstance(cell, Mapping):
        return {k: v if k in _WHO else changed(v, change, str(k)) for k, v in cell.items()}
    if isinstance(cell, list | tuple):
        return [changed(each, change, column) for each in cell]
    return change(column, cell)


def renamed(rows: Sequence[Cells], spell: Callable[[object], object]) -> list[object]:
    """The rows with the user's id spelled by ``spell``, wherever it occurs."""

    def visit(cell: object) -> object:
        if isinstance(cell, Mapping):
            return {k: spell(v) if k in _WHO else visit(v) for k, v in cell.items()}
        return [visit(each) for each in cell] if isinstance(cell, list | tuple) else cell

    return [visit(row) for row in rows]


def _each(change: Change) -> Hostile:
    return lambda rows: [changed(row, change) for row in rows]


def _texts(spell: Callable[[str], object]) -> Hostile:
    return _each(lambda _, cell: spell(cell) if isinstance(cell, str) else cell)


def _numbers(spell: Callable[[float], object]) -> Hostile:
    return _each(lambda _, cell: spell(cell) if isinstance(cell, int | float) else cell)


def _with(**cells: object) -> Hostile:
    return lambda rows: [{**row, **cells} for row in rows]


def _others(**cells: object) -> Hostile:
    """A user whose further rows have the user's id and these cells alone."""
    return lambda rows: [*rows, *({**who_of(rows), **cells} for _ in rows)]


def _only(*values: object) -> Hostile:
    """A user with these values in place of rows, beside the good ones."""
    return lambda rows: [*values, *rows, *values]


def _spelled(spell: Callable[[object], object]) -> Hostile:
    """A user whose id has another spelling in every second row."""
    return lambda rows: [
        *renamed(rows[::2], lambda who: who),
        *renamed(rows, spell),
    ]


def _by_columns(rename: Callable[[str], object]) -> Hostile:
    def call(rows: Sequence[Cells]) -> list[object]:
        return [{rename(k) if k not in _WHO else k: v for k, v in row.items()} for row in rows]

    return call


def _each_missing(rows: Sequence[Cells]) -> list[object]:
    return [{k: v for k, v in row.items() if k != gone} for row in rows for gone in row]


def _each_empty(value: object, rows: Sequence[Cells]) -> list[object]:
    return [{**row, gone: value} for row in rows for gone in row if gone not in _WHO]


def _one_leaf(value: object, rows: Sequence[Cells]) -> list[object]:
    """Put a value in the place of each leaf of a row, one after the other."""
    made: list[object] = []
    for row in rows[:1]:
        leaves = 0

        def count(_: str, cell: object) -> object:
            nonlocal leaves
            leaves += 1
            return cell

        changed(row, count)
        for place in range(min(leaves, 40)):
            at = iter(range(leaves))
            made.append(changed(row, lambda _, cell: value if next(at) == place else cell))  # noqa: B023
    return made


def _nested() -> object:
    inner: object = "bottom"
    for _ in range(_DEEP):
        inner = [inner]
    return inner


def _many(rows: Sequence[Cells]) -> list[object]:
    return [rows[place % len(rows)] for place in range(_MANY)] if rows else []


def _many_texts(rows: Sequence[Cells]) -> list[object]:
    return [
        changed(row, lambda _, cell: f"{cell} {place}" if isinstance(cell, str) else cell)  # noqa: B023
        for place in range(_MANY // 4)
        for row in rows[:1]
    ]


def _last_first(rows: Sequence[Cells]) -> list[object]:
    return [dict([*row.items()][::-1]) for row in reversed(rows)]


def _all_alike(rows: Sequence[Cells]) -> list[object]:
    return [dict(row) for row in (*rows, *rows, *rows)]


def _alike_ids(rows: Sequence[Cells]) -> list[object]:
    return [changed(row, lambda k, v: "same" if k.lower().endswith("id") else v) for row in rows]


def _to_themselves(rows: Sequence[Cells]) -> list[object]:
    """Let each message follow itself."""

    def visit(cell: object) -> object:
        if not isinstance(cell, Mapping):
            return [visit(each) for each in cell] if isinstance(cell, list | tuple) else cell
        own = cell.get("id", cell.get("message_id", "self"))
        parents = ("parentId", "parent_id", "parent")
        return {k: own if k in parents else visit(v) for k, v in cell.items()}

    return [visit(row) for row in rows]


def _swapped(rows: Sequence[Cells]) -> list[object]:
    """Shift the cells of each row by one column."""
    made: list[object] = []
    for row in rows:
        columns = [each for each in row if each not in _WHO]
        cells = [row[each] for each in (*columns[1:], *columns[:1])]
        made.append({**row, **dict(zip(columns, cells, strict=True))})
    return made


def _as_json(rows: Sequence[Cells]) -> list[object]:
    return [{k: v if k in _WHO else json.dumps(v) for k, v in row.items()} for row in rows]


def _flipped(cell: object) -> object:
    return not cell if isinstance(cell, bool) else 1 - cell if cell in (0, 1) else cell  # pyright: ignore[reportOperatorIssue]


def _line(*lines: bytes) -> Hostile:
    return lambda rows: [*lines, *rows, *lines]


def _within(before: bytes, after: bytes) -> Hostile:
    """A user whose lines are good ones between other bytes."""
    return lambda rows: [before + json.dumps(row).encode() + after for row in rows]


def _whole_words(cell: object) -> object:
    words = {"1": "one", "0": "zero", "-1": "minus one"}
    return words.get(str(cell), str(cell))


_COLUMNS: dict[str, Hostile] = {
    "each column missing in turn": _each_missing,
    "each cell empty in turn": partial(_each_empty, ""),
    "each cell null in turn": partial(_each_empty, None),
    "each leaf a list in turn": partial(_one_leaf, ["a", "b"]),
    "each leaf a number in turn": partial(_one_leaf, 3),
    "each leaf a mapping in turn": partial(_one_leaf, {"content": "x"}),
    "no column but who": lambda rows: [who_of([row]) for row in rows],
    "columns in another order": _last_first,
    "columns in capitals": _by_columns(str.upper),
    "columns with blanks": _by_columns(lambda name: f" {name} "),
    "columns of dots": _by_columns(lambda name: f"a.{name}.0"),
    "cells one column further": _swapped,
    "another column of who": _with(worker="somebody"),
    "many columns of who": _with(worker="a", rater="b", annotator="c", judge="d", userid="e"),
    "a column of a prompt by another name": _with(question="Q", instruction="I", messages=_CHAT),
    "a winner beside the rest": _with(winner="model_b", preference="b", choice=1),
    "columns of a statement": _with(**{"comment-id": 0, "comment-body": "mine", "vote": 1}),
    "columns as of a report": _with(private_runs=9, epsilon=0.1, users=10**9, set_aside="all"),
    "five hundred columns": _with(**dict.fromkeys((f"column {place}" for place in range(500)), 1)),
    "a column of a thousand letters": _with(**{"c" * 1_000: 1}),
    "a column of no letter": _with(**{"": "x", " ": "y"}),
    "timestamps": _with(timestamp="2025-01-01T00:00:00Z", created_at=1e18, time=-1),
    "rows of a record": _with(record_id=1, id=1, question_id=1),
}

_KINDS: dict[str, Hostile] = {
    "pairs": _others(prompt="Q", chosen="a", rejected="b"),
    "pairs without a prompt": _others(chosen="Q a", rejected="Q b"),
    "ties": _others(prompt="Q", chosen="a", rejected="b", tie=True),
    "thumbs": _others(prompt="Q", completion="a", label=True),
    "thumbs down": _others(prompt="Q", response="b", label=0),
    "a single thumb of each prompt": _others(prompt="alone", completion="a", label=1),
    "the best of three": _others(prompt="Q", responses=["a", "b", "c"], best=1),
    "rankings": _others(prompt="Q", responses=["a", "b", "c"], ranking=[2, 1, 2]),
    "the best of seventy": _others(prompt="Q", responses=[str(n) for n in range(70)], best=1),
    "scores of a list": _others(prompt="Q", responses=["a", "b"], scores=[1, 2]),
    "two sides": _others(prompt="Q", response_a="a", response_b="b", winner="a"),
    "texts": _others(text="My own words."),
    "votes between models": _others(model_a="m1", model_b="m2", winner="model_a"),
    "votes on statements": _others(**{"comment-id": 1, "vote": -1}),
    "statements": lambda rows: [*rows, {"comment-id": 10**6, "comment-body": "mine"}],
    "ratings of Likert": _others(prompt="Q", response="a", rating="strongly agree"),
    "no rows": lambda rows: [],
    "empty rows": _only({}),
    "rows that are no objects": _only(None, 7, "text", [], ["a"], True),
    "rows of rows": lambda rows: [[*rows], {"rows": [*rows]}],
}

_LABELS: dict[str, Hostile] = {
    "numbers where words are": _each(lambda k, v: 4 if _short(v) else v),
    "words where numbers are": _numbers(lambda _: "good"),
    "numbers in words": _numbers(_whole_words),
    "numbers as text": _numbers(lambda cell: f" {cell}.0 "),
    "two among ones": _numbers(lambda cell: 2),
    "hundreds among ones": _numbers(lambda cell: 100),
    "meh": _each(lambda k, v: "meh" if _short(v) or not isinstance(v, str) else v),
    "truth as text": _numbers(lambda cell: "TRUE"),
    "truth for numbers": _numbers(lambda cell: True),
    "truth for ones": _numbers(lambda cell: True if cell == 1 else cell),
    "falsehood for noughts": _numbers(lambda cell: False if cell == 0 else cell),
    "fractions": _numbers(lambda cell: 0.25),
    "less than nothing": _numbers(lambda cell: -7),
    "not a number": _numbers(lambda _: math.nan),
    "infinite": _numbers(lambda _: math.inf),
    "a number of many digits": _numbers(lambda _: 10**400),
    "numbers that are lists": _numbers(lambda cell: [cell]),
    "the other way round": _each(lambda _, cell: _flipped(cell)),
    "scores that contradict": _with(score_chosen=1, score_rejected=2),
    "scores alike": _with(score_chosen=1, score_rejected=1.0),
    "a tie that is text": _with(tie="perhaps"),
    "a label that is null": _with(label=None, rating=None, best=None, ranking=None),
    "all labels at once": _with(label=1, best=0, ranking=[1, 2], scores=[1, 2], winner="a"),
    "a truth among ranks": _with(responses=["a", "b"], ranking=[True, 2], best=True),
}


def _short(cell: object) -> bool:
    return isinstance(cell, str) and len(cell) < 12


_TEXTS: dict[str, Hostile] = {
    "a missing prompt": lambda rows: [{k: v for k, v in r.items() if k != "prompt"} for r in rows],
    "empty texts": _texts(lambda _: ""),
    "blank texts": _texts(lambda _: " \t\u3000"),
    "texts that share nothing": _texts(lambda text: f"{len(text)}{text[::-1]}"),
    "texts that share everything": _texts(lambda _: "The same words."),
    "texts that share their first word": _texts(lambda text: f"Hello {text}"),
    "texts that end alike": _texts(lambda text: f"{text} The end."),
    "a system prompt": _texts(lambda t: [{"role": "system", "content": "Be odd."}, *_chat(t)]),
    "conversations": _texts(lambda text: _chat(text)),
    "conversations as text": _texts(lambda text: json.dumps(_chat(text))),
    "conversations that Python printed": _texts(lambda text: repr(_chat(text))),
    "conversations that numpy printed": _texts(lambda t: repr(_chat(t)).replace("}, {", "} {")),
    "half of a conversation that Python printed": _texts(lambda text: repr(_chat(text))[:-3]),
    "one message alone": _texts(lambda text: _chat(text)[-1]),
    "conversations inside of an object": _texts(lambda text: {"messages": _chat(text)}),
    "turns from others": _texts(lambda text: [{"from": "gpt", "value": text}]),
    "turns that call tools": _texts(lambda text: [{**_chat(text)[-1], "tool_calls": [text]}]),
    "brackets without end": _texts(lambda text: "[{'role': " * 5_000 + text),
    "conversations of parts": _texts(
        lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}]
    ),
    "conversations of nobody known": _texts(lambda text: [{"role": "tool", "content": text}]),
    "text with names before its turns": _texts(lambda t: f"\n\nHuman: Q\n\nAssistant: {t}"),
    "text that ends with a name": _texts(lambda text: f"{text}\n\nAssistant:"),
    "text that looks like JSON": _texts(lambda text: f'[{{"role": "{text}'),
    "text of another script": _texts(lambda text: "".join(chr(0x400 + ord(c) % 64) for c in text)),
    "decomposed letters": _texts(lambda text: f"e\u0301{text}e\u0301"),
    "letters from the right": _texts(lambda text: f"\u202e{text}\u202c"),
    "letters beyond the first plane": _texts(lambda text: f"\U0001f600{text}\U0010ffff"),
    "a quote that stays open": _texts(lambda text: f'"{text}'),
    "line ends": _texts(lambda text: f"{text}\r\n\u2028\x85\x0b{text}\r"),
    "separators": _texts(lambda text: f"{text},;\t|,{text}"),
    "lone surrogates": _texts(lambda text: f"{text}{_LONE}"),
    "zero characters": _texts(lambda text: f"{text}\0{text}"),
    "a mark of byte order": _texts(lambda text: f"\ufeff{text}"),
    "markup": _texts(lambda text: f"<script>{text}</script>\x1b[2J"),
}


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Q"}, {"role": "assistant", "content": text}]


_IDS: dict[str, Hostile] = {
    "an id in capitals": _spelled(lambda who: str(who).upper()),
    "an id between blanks": _spelled(lambda who: f"  {who}\t"),
    "an id with a fraction": _spelled(lambda who: f"{who}.0"),
    "an id of full width": _spelled(lambda who: "".join(map(_wide, str(who)))),
    "an id decomposed": _spelled(lambda who: f"{who}e\u0301"),
    "an id with what cannot be seen": _spelled(lambda who: f"{who}\u200b"),
    "an id of two scripts": _spelled(lambda who: f"{who}\u0430"),
    "an id in quotes": _spelled(lambda who: f'"{who}"'),
    "a whole number for an id": _spelled(lambda who: 7),
    "a float for an id": _spelled(lambda who: 7.5),
    "a huge number for an id": _spelled(lambda who: 2**70),
    "a huge float for an id": _spelled(lambda who: 1e300),
    "a number of huge digits for an id": _spelled(lambda who: "9" * 30),
    "a truth for an id": _spelled(lambda who: True),
    "not a number for an id": _spelled(lambda who: math.nan),
    "an infinite id": _spelled(lambda who: math.inf),
    "an id that is a list": _spelled(lambda who: [who]),
    "an id that is a mapping": _spelled(lambda who: {"id": who}),
    "an empty id": _spelled(lambda who: ""),
    "an id that is null": _spelled(lambda who: None),
    "an id of a lone surrogate": _spelled(lambda who: f"{who}{_LONE}"),
    "an id of a thousand letters": _spelled(lambda who: f"{who}" * 1_000),
    "an id that is minus zero": _spelled(lambda who: -0.0),
    "an id by powers of ten": _spelled(lambda who: "1.23457E+09"),
    "an id that is nothing in words": _spelled(lambda who: "nan"),
    "an id that is a date": _spelled(lambda who: "2024-03-01"),
    "an id that Python printed": _spelled(lambda who: repr([who])),
    "an id with zeros before it": _spelled(lambda who: "007"),
    "another id in each row": lambda rows: [
        each
        for place, row in enumerate(rows)
        for each in renamed([row], lambda who: f"{who} {place}")  # noqa: B023
    ],
}


def _wide(letter: str) -> str:
    return chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter


_SIZES: dict[str, Hostile] = {
    "thousands of rows": _many,
    "hundreds of rows of new texts": _many_texts,
    "every row three times": _all_alike,
    "one row": lambda rows: [*rows[:1]],
    "a huge cell": lambda rows: [*rows, *({**row, "huge": _HUGE} for row in rows[:1])],
    "huge texts": lambda rows: [changed(r, lambda _, v: _HUGE) for r in rows[:1]],
    "a list of many": _with(responses=["a"] * 5_000, best=0),
    "a deep cell": lambda rows: [*rows, *({**row, "tie": _nested()} for row in rows[:1])],
    "deep texts": lambda rows: [changed(row, lambda _, v: _nested()) for row in rows[:1]],
    "cells as JSON": _as_json,
}

_INSIDE: dict[str, Hostile] = {
    "one id for all messages": _alike_ids,
    "messages that follow themselves": _to_themselves,
    "ids of messages that are lists": _each(lambda k, v: [v] if k.lower().endswith("id") else v),
    "ids of items between blanks": _each(lambda k, v: f" {v}.0" if k.lower().endswith("id") else v),
    "ids of items that are nowhere": _each(lambda k, v: 10**9 if k.lower().endswith("id") else v),
    "lists for mappings": lambda rows: [_turned(row) for row in rows],
}


def _turned(row: Cells) -> object:
    return {k: [*v.items()] if isinstance(v, Mapping) else v for k, v in row.items()}


_MARKS: dict[str, Hostile] = {
    **{
        f"a flip probability of {shown}": _with(flip_probability=value)
        for shown, value in {
            "0": 0, "0.49": 0.49, "0.5": 0.5, "0.6": 0.6, "1": 1, "-1": -1, "text": "often",
            "nothing": None, "not a number": math.nan, "true": True, "a list": [0.1],
        }.items()
    },
}  # fmt: skip

_BYTES: dict[str, Hostile] = {
    "a line of half an object": _line(b'{"user_id": "x", "prompt": "Q'),
    "a line of broken UTF-8": _line(b'{"user_id": "\xff\xfe", "prompt": "\xc3\x28"}'),
    "a line of zero bytes": _line(b"\0" * 64),
    "a line of brackets": _line(b"[" * 100_000),
    "a line of objects": _line(b'{"a":' * 100_000),
    "two objects in a line": _line(b'{"user_id": "x"} {"user_id": "y"}'),
    "a line of no words": _line(b" \t\r"),
    "a mark of byte order in a line": _within(b"\xef\xbb\xbf", b""),
    "blanks around a line": _within(b"  \t", b" \r"),
    "a comma behind a line": _within(b"", b","),
    "a line of digits": _line(b"9" * 5_000),
    "an open quote": _line(b'"'),
    "columns twice in an object": _line(b'{"user_id": "x", "user_id": "y", "prompt": "a"}'),
}

#: By name; grouped by what they break.
HOSTILE: Mapping[str, Hostile] = {
    **_COLUMNS, **_KINDS, **_LABELS, **_TEXTS, **_IDS, **_SIZES, **_INSIDE, **_MARKS, **_BYTES,
}  # fmt: skip

#: Spells a user's id as another may be read: whom it is read as may be that user, and nobody else.
AS_ANOTHER: Mapping[str, Callable[[object], object]] = {
    "exactly": lambda who: who,
    "in capitals": lambda who: str(who).upper(),
    "between blanks": lambda who: f" {who}\n",
    "with a fraction": lambda who: f"{who}.0",
    "of full width": lambda who: "".join(map(_wide, str(who))),
    "with a joiner": lambda who: f"{who}\u200d",
    "with a zero before it": lambda who: f"0{who}",
    "as a list": lambda who: [who],
    "as a number": lambda who: float(digits) if (digits := str(who).strip("u")).isdigit() else -1,
}
