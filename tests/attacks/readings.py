"""Every way to read people's rows, and what is made of them, to compare it with a stranger and
without.

``DECLARED`` are the declarations, of our own form and of every registered format; ``SOURCES`` are
the kinds of sources. ``Reading`` puts users' rows in one, with a hostile user's or without, and
``seen`` returns what a run makes of each user's.
"""

import csv
import gzip
import io
import json
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow
import pyarrow.parquet
import torch

from murmuration.audits.hostile_users import AS_ANOTHER, HOSTILE, renamed
from murmuration.preference.data.columns import USER_COLUMNS
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files import reading
from murmuration.preference.data.files.columnar import ColumnarReader
from murmuration.preference.data.formats.registry import FORMATS
from murmuration.preference.data.in_memory import located_rows
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.loading import load_data
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip
from tests.preference.data.formats.examples import EXAMPLES

OTHERS = ("u1", "u2", "u3", "u4")
#: Whose the rows are that are nobody's.
PUBLIC = "public"
STRANGER = "u9"
VICTIM = "u2"  # whose id a hostile user spells
ROWS_EACH = 2
SMALL = HashingFeatures(dimension=17)
CLIP = UserClip(0.1)
MODULE = "rows_of_a_test"
WHO = ("user_id", *USER_COLUMNS)

Cells = Mapping[str, object]
#: Everything that a hostile user may be, by name.
STRANGERS: dict[str, Callable[[Sequence[Cells]], Sequence[object]]] = {
    **HOSTILE,
    **{
        f"another's id, {how}": lambda rows, spell=spell: renamed(rows, lambda _: spell(VICTIM))
        for how, spell in AS_ANOTHER.items()
    },
}


def first_is_better(user: str, number: int) -> bool:
    return crc32(f"{user}, {number}".encode()) % 2 == 0


def texts(number: int) -> tuple[str, str, str]:
    return f"What of {number}?", f"A merry reply {number}.", f"A sober, longer one, {number}!"


def pairs(user: str, number: int) -> list[Cells]:
    prompt, first, second = texts(number)
    both = (first, second) if first_is_better(user, number) else (second, first)
    return [{"user_id": user, "prompt": prompt, "chosen": both[0], "rejected": both[1]}]


def without_prompt(user: str, number: int) -> list[Cells]:
    (row,) = pairs(user, number)
    return [{each: cell for each, cell in row.items() if each != "prompt"}]


def shared_words(user: str, number: int) -> list[Cells]:
    return [
        {each: v if each == "user_id" else f"My question {number}: {v}" for each, v in row.items()}
        for row in without_prompt(user, number)
    ]


def conversations(user: str, number: int) -> list[Cells]:
    (row,) = pairs(user, number)
    turns = {
        side: [
            {"role": "user", "content": row["prompt"]},
            {"role": "assistant", "content": row[side]},
        ]
        for side in ("chosen", "rejected")
    }
    return [{"user_id": user, **turns}]


def named_turns(user: str, number: int) -> list[Cells]:
    (row,) = pairs(user, number)
    before = f"\n\nHuman: {row['prompt']}\n\nAssistant: "
    return [{"user_id": user, **{side: f"{before}{row[side]}" for side in ("chosen", "rejected")}}]


def sides(first: object = "response_a", second: object = "b", tie: object = "tie"):
    def rows(user: str, number: int) -> list[Cells]:
        prompt, one, two = texts(number)
        winner = tie if number == 1 and user == "u3" else None
        winner = winner or (first if first_is_better(user, number) else second)
        row = {"user_id": user, "prompt": prompt, "response_a": one, "response_b": two}
        return [{**row, "winner": winner}]

    return rows


def listed(**cells: Callable[[bool], object]):
    def rows(user: str, number: int) -> list[Cells]:
        prompt, *both = texts(number)
        first = first_is_better(user, number)
        row = {"user_id": user, "prompt": prompt, "responses": [*both, f"A third, {number}."]}
        return [{**row, **{name: cell(first) for name, cell in cells.items()}}]

    return rows


def thumbs(up: object, down: object):
    def rows(user: str, number: int) -> list[Cells]:
        prompt, *both = texts(number)
        labels = (up, down) if first_is_better(user, number) else (down, up)
        return [
            {"user_id": user, "prompt": prompt, "completion": text, "label": label}
            for text, label in zip(both, labels, strict=True)
        ]

    return rows


def written(user: str, number: int) -> list[Cells]:
    return [{"user_id": user, "text": f"{user} wrote this, as number {number}."}]


def votes(user: str, number: int) -> list[Cells]:
    both = ("m1", "m2") if first_is_better(user, number) else ("m2", "m1")
    return [{"user_id": user, "prompt": "Which?", "chosen": both[0], "rejected": both[1]}]


def marked(**cells: object):
    return lambda user, number: [{**row, **cells} for row in pairs(user, number)]


def under_other_names(**names: str) -> Callable[[Cells], Cells]:
    return lambda row: {names.get(str(each), each): cell for each, cell in row.items()}


def inside(row: Cells) -> Cells:
    """Return a row with its user and texts inside of others."""
    gone = ("user_id", "chosen", "rejected")
    rest = {each: cell for each, cell in row.items() if each not in gone}
    if "user_id" in row:
        rest["who"] = {"id": row["user_id"]}
    if "chosen" in row or "rejected" in row:
        rest["both"] = [{"text": row.get("chosen")}, {"text": row.get("rejected")}]
    return rest


@dataclass(frozen=True)
class Declared:
    """A declaration, and good rows for it: the n-th judgement of a user."""

    rows: Callable[[str, int], Sequence[Cells]]
    schema: Mapping[str, Any] = field(default_factory=dict)
    columns: str = ""
    task: str = "preference"
    shape: Callable[[Cells], Cells] = dict

    @property
    def reads(self) -> str:
        """Return what the rows depend on, by its name; of our own form on themselves."""
        name = self.schema.get("format")
        return type(FORMATS[name].reads).__name__ if name else "OwnRows"


SEVERAL = {"kind": "top-1", "responses": 4}
RANKED = {"kind": "ranking", "responses": 4}
THUMBS = {"kind": "thumbs"}
OWN = {
    "pairs": Declared(pairs),
    "pairs, no prompt": Declared(without_prompt, {"no_prompt": True}),
    "pairs, their words are the prompt": Declared(shared_words),
    "pairs, conversations": Declared(conversations),
    "pairs, turns by name": Declared(named_turns),
    "pairs, randomized": Declared(marked(flip_probability=0.25), {"labels": "randomized"}),
    "pairs, a user a row": Declared(without_prompt, {"one_user_per_row": True, "no_prompt": True}),
    "pairs, a user a row, labels": Declared(
        pairs, {"one_user_per_row": True, "pair_thumbs": False}
    ),
    "pairs, few and short": Declared(pairs, {"max_judgements": 3, "max_characters": 60}),
    "pairs, one each": Declared(pairs, {"max_judgements": 1}),
    "pairs, short": Declared(pairs, {"max_characters": 40}),
    "pairs, no prompt, few": Declared(without_prompt, {"no_prompt": True, "max_judgements": 2}),
    "pairs, scores": Declared(marked(score_chosen=2, score_rejected=1)),
    "pairs, columns renamed": Declared(
        pairs,
        columns="user_id=whoever,prompt=q,chosen=good,rejected=bad",
        shape=under_other_names(user_id="whoever", prompt="q", chosen="good", rejected="bad"),
    ),
    "pairs, columns inside": Declared(
        pairs, columns="user_id=who.id,chosen=both.0.text,rejected=both.1.text", shape=inside
    ),
    "pairs, a known column": Declared(pairs, shape=under_other_names(user_id="annotator")),
    "sides, words": Declared(sides()),
    "sides, a scale": Declared(sides(-2, 3, 0), {"scale": "-3..3"}),
    "sides, a falling scale": Declared(sides(2, 1), {"scale": "2..1"}),
    "the best of three": Declared(listed(best=lambda first: [0, 2][first]), SEVERAL),
    "the best of three, ties": Declared(listed(best=lambda first: [[0, 2], 1][first]), SEVERAL),
    "the best of three, randomized": Declared(
        listed(best=lambda first: [0, 2][first], flip_probability=lambda _: 0.3),
        {**SEVERAL, "labels": "randomized"},
    ),
    "the best of three, a user a row": Declared(
        listed(best=lambda first: [0, 2][first]), {**SEVERAL, "one_user_per_row": True}
    ),
    "rankings": Declared(listed(ranking=lambda first: [[1, 2, 3], [3, 1, 1]][first]), RANKED),
    "rankings, scores": Declared(
        listed(scores=lambda first: [[5, 2, 1], [1, 9, 1]][first]), RANKED
    ),
    "thumbs": Declared(thumbs(True, False), THUMBS),
    "thumbs, words": Declared(thumbs("thumbs up", "No"), THUMBS),
    "thumbs, a scale": Declared(thumbs(5, 2), {**THUMBS, "scale": "1..5"}),
    "thumbs, of two": Declared(thumbs(1, 0), {**THUMBS, "scale": "0..1"}),
    "thumbs, a falling scale": Declared(thumbs(1, 6), {**THUMBS, "scale": "6..1"}),
    "thumbs, positive from": Declared(
        thumbs(4, 3), {**THUMBS, "scale": "1..5", "positive_from": "4"}
    ),
    "thumbs as pairs": Declared(thumbs("yes", "no")),
    "thumbs as pairs, a scale": Declared(thumbs(3, 1), {"scale": "1..3", "max_judgements": 3}),
    "texts": Declared(written, task="text"),
    "texts, columns renamed": Declared(
        written,
        columns="user_id=whoever,text=words",
        task="text",
        shape=under_other_names(user_id="whoever", text="words"),
    ),
    "votes": Declared(votes),
}
#: What is declared with a format, besides that it is one.
WITH_FORMAT: dict[str, list[dict[str, Any]]] = {
    "arena": [{}, {"one_user_per_row": True}],
    "arena-models": [{}],
    "argilla": [{}],
    "community-alignment": [SEVERAL],
    "helpsteer": [{}, {"one_user_per_row": True}],
    "label-studio": [{}],
    "likert": [{}, {**THUMBS, "scale": "1..5", "positive_from": "3"}],
    "multipref": [{}],
    "openwebui": [{}, THUMBS],
    "polis": [{}, THUMBS],
    "prism": [{}, RANKED],
}


def _of_formats(example_of: Callable[[str], Any]) -> dict[str, Declared]:
    """Return declarations of every registered format that runs read."""
    result = {}
    for name, form in FORMATS.items():
        if name == "oasst" or type(form.reads).__name__ == "WholeSource":
            continue  # for conversion alone
        for more in WITH_FORMAT.get(name, [{}]):
            shown = ", ".join(f"{each} {value}" for each, value in more.items())
            columns = "user_id=annotator" if name == "helpsteer" and not more else ""
            result[f"{name} ({shown})"] = Declared(
                example_of(name), {"format": name, **more}, columns
            )
    return result


DECLARED = {**OWN, **_of_formats(EXAMPLES.__getitem__)}


@dataclass(frozen=True)
class Kind:
    """A kind of source: how rows are written, and what a bad one means."""

    write: Callable[[Path, "Rows"], Any]
    on_bad_rows: str = "skip"
    table: bool = False  # with the same columns in all rows
    wide: bool = False  # and those of the hostile user, too
    numbers: bool = False  # for ids


@dataclass(frozen=True)
class Rows:
    """Rows of each user in their order, with whose they are; and for a table the good ones among
    them, and its columns."""

    placed: Sequence[tuple[str, object]]
    good: Sequence[object] = ()
    columns: Sequence[str] = ()
    drawn: int = 0

    @property
    def rows(self) -> list[object]:
        return [row for _, row in self.placed]

    def by_user(self) -> dict[str, list[object]]:
        result: dict[str, list[object]] = {}
        for user, row in self.placed:
            result.setdefault(user, []).append(row)
        return result


def line(row: object) -> bytes:
    return (row if isinstance(row, bytes) else json.dumps(row, default=repr).encode()) + b"\n"


def lines(rows: Sequence[object]) -> bytes:
    return b"".join(map(line, rows))


def jsonl(path: Path, rows: Rows) -> str:
    (path / "rows.jsonl").write_bytes(lines(rows.rows))
    return str(path / "rows.jsonl")


def packed(path: Path, rows: Rows) -> str:
    (path / "rows.jsonl.gz").write_bytes(gzip.compress(lines(rows.rows), 1))
    return str(path / "rows.jsonl.gz")


def json_lines(path: Path, rows: Rows) -> str:
    (path / "rows.json").write_bytes(lines(rows.rows))
    return str(path / "rows.json")


def array(path: Path, rows: Rows) -> str:
    text = b",".join(line(row) for row in rows.rows)
    (path / "rows.json").write_bytes(b"[" + text + b"]")
    return str(path / "rows.json")


def csv_cell(cell: object) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else json.dumps(cell)


def comma_separated(path: Path, rows: Rows) -> str:
    written = []
    for row in [dict(zip(rows.columns, rows.columns, strict=True)), *rows.rows]:
        if isinstance(row, bytes):
            written.append(row + b"\n")
            continue
        cells = [row.get(c) for c in rows.columns] if isinstance(row, Mapping) else [row]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(map(csv_cell, cells))
        written.append(text.getvalue().encode("utf-8", "surrogatepass"))
    (path / "rows.csv").write_bytes(b"".join(written))
    return str(path / "rows.csv")


def table(rows: Rows) -> pyarrow.Table:
    """Return a table of the rows, of which good rows say the types of columns: a cell that is of
    another is text, or nothing. Of columns that good rows have not, a stranger's cells do."""
    arrays = []
    for column in rows.columns:
        good, mine = (
            [row.get(column) if isinstance(row, Mapping) else None for row in part]
            for part in (rows.good, rows.rows)
        )
        try:
            kind = pyarrow.array(good if any(cell is not None for cell in good) else mine).type
        except Exception:  # no type holds all of these
            kind = pyarrow.string()
        if pyarrow.types.is_string(kind) or pyarrow.types.is_null(kind):
            texts = [None if cell is None else csv_cell(cell) for cell in mine]
            cells = [text and text.encode("utf-8", "surrogatepass") for text in texts]
            arrays.append(pyarrow.array(cells, pyarrow.binary()).view(pyarrow.string()))
        else:
            parts = [_of_type(cell, kind) for cell in mine]
            arrays.append(pyarrow.concat_arrays([pyarrow.array([], kind), *parts]))
    return pyarrow.table(arrays, names=[*rows.columns])


def _of_type(cell: object, kind: pyarrow.DataType) -> pyarrow.Array:
    try:
        return pyarrow.array([cell], kind)
    except Exception:  # the column cannot hold it
        return pyarrow.array([None], kind)


def parquet(path: Path, rows: Rows) -> str:
    pyarrow.parquet.write_table(table(rows), path / "rows.parquet")
    return str(path / "rows.parquet")


def group_for_each(path: Path, rows: Rows) -> str:
    tables = [
        table(Rows([(user, row) for row in mine], rows.good, rows.columns))
        for user, mine in rows.by_user().items()
    ]
    tables = tables or [table(rows)]
    with pyarrow.parquet.ParquetWriter(path / "rows.parquet", tables[0].schema) as out:
        for each in tables:
            out.write_table(each, row_group_size=10**6)
    return str(path / "rows.parquet")


def arrow(path: Path, rows: Rows) -> str:
    whole = table(rows)
    with pyarrow.ipc.new_file(str(path / "rows.arrow"), whole.schema) as out:
        out.write_table(whole)
    return str(path / "rows.arrow")


def file_for_each(path: Path, rows: Rows) -> str:
    (path / "users").mkdir(exist_ok=True)
    for user, mine in rows.by_user().items():
        (path / "users" / f"{_file_of(user, rows.drawn)}.jsonl").write_bytes(lines(mine))
    return str(path / "users")


def mixed_files(path: Path, rows: Rows) -> str:
    """Write each user's rows in a file of another kind."""
    return _mixed_files(path, rows, [".jsonl", ".parquet", ".jsonl.gz", ".json"], 4)


def mixed_files_at_a_node(path: Path, rows: Rows) -> str:
    """Write each user's rows in a file of another kind; the hostile one's may be cut off, or of a
    kind that nodes do not read."""
    kinds = [".jsonl", ".parquet", ".jsonl.gz", ".arrow", ".csv", ".json", ".tsv", "cut.jsonl.gz"]
    return _mixed_files(path, rows, kinds, 4)


def _mixed_files(path: Path, rows: Rows, kinds: Sequence[str], readable: int) -> str:
    (path / "users").mkdir(exist_ok=True)
    for user, mine in rows.by_user().items():
        of_stranger = kinds[rows.drawn // 3 % len(kinds)]
        kind = kinds[crc32(user.encode()) % readable] if user in OTHERS else ".jsonl"
        kind = of_stranger if user == STRANGER else kind
        if kind in (".parquet", ".arrow") and not any(isinstance(row, Mapping) for row in mine):
            kind = ".jsonl"
        file = path / "users" / f"{_file_of(user, rows.drawn)}{kind}"
        columns = list(dict.fromkeys(c for r in mine if isinstance(r, Mapping) for c in r))
        inner = Rows([(user, row) for row in mine], columns=columns)
        if kind in (".parquet", ".arrow"):
            with suppress(Exception):  # they may be in no table
                whole = table(inner)
                if kind == ".parquet":
                    pyarrow.parquet.write_table(whole, file)
                else:
                    with pyarrow.ipc.new_file(str(file), whole.schema) as out:
                        out.write_table(whole)
        elif kind.endswith(".gz"):
            data = gzip.compress(lines(mine), 1)
            file.write_bytes(data[:-9] if "cut" in kind else data)
        else:
            file.write_bytes(lines(mine))
    return str(path / "users")


def _file_of(user: str, drawn: int) -> str:
    return user if user != STRANGER else ("a stranger", "u2 and more", "z")[drawn % 3]


def in_memory(_: Path, rows: Rows) -> list[object]:
    return [row for row in rows.rows if not isinstance(row, bytes)]


def frame(_: Path, rows: Rows) -> Any:
    """Return a data frame, in which the hostile user's last row names nobody; unless that would be
    a public text."""
    import pandas

    public = any(user == PUBLIC for user, _ in rows.placed)
    hostile = [at for at, (user, _) in enumerate(rows.placed) if user == STRANGER and not public]
    last = max(hostile, default=None)
    mine = [
        {c: None if at == last and c in WHO else row.get(c) for c in rows.columns}
        for at, row in enumerate(rows.rows)
        if isinstance(row, Mapping)
    ]
    try:
        return pandas.DataFrame(mine)
    except Exception:  # it holds no such cells but as objects
        return pandas.DataFrame(mine, dtype=object)


def _tupled(cell: object) -> object:
    """Return a cell with tuples for lists of what can be hashed: what a function may give."""
    if isinstance(cell, list) and not any(isinstance(each, list | dict) for each in cell):
        return tuple(cell)
    return cell


def function(_: Path, rows: Rows) -> str:
    module = types.ModuleType(MODULE)
    given = [
        {c: _tupled(cell) for c, cell in row.items()} if isinstance(row, Mapping) else row
        for row in rows.rows
    ]
    module.__dict__["rows"] = lambda: given
    sys.modules[MODULE] = module
    return f"{MODULE}:rows"


SOURCES = {
    "JSONL": Kind(jsonl),
    "JSONL, a node": Kind(jsonl, "isolate"),
    "JSONL packed": Kind(packed),
    "JSONL packed, a node": Kind(packed, "isolate"),
    "JSON of lines": Kind(json_lines),
    "a JSON array": Kind(array),
    "CSV": Kind(comma_separated, table=True),
    "CSV, more columns": Kind(comma_separated, table=True, wide=True),
    "Parquet": Kind(parquet, table=True),
    "Parquet, a node": Kind(parquet, "isolate", table=True),
    "Parquet, more columns": Kind(parquet, "isolate", table=True, wide=True),
    "Parquet, a group for each": Kind(group_for_each, "isolate", table=True),
    "Arrow": Kind(arrow, "isolate", table=True),
    "a file for each": Kind(file_for_each),
    "a file for each, a node": Kind(file_for_each, "isolate"),
    "files of many kinds": Kind(mixed_files),
    "files of many kinds, a node": Kind(mixed_files_at_a_node, "isolate"),
    "in memory": Kind(in_memory),
    "a data frame": Kind(frame, table=True, numbers=True),
    "a function": Kind(function),
    "a function, a node": Kind(function, "isolate"),
}


#: Of formats whose rows hold others: CSV has no such cells, and these are not read from JSON.
NOT_IN_CSV = ("argilla", "label-studio", "openwebui", "prism", "tldr")


def is_possible(declared: str, source: str) -> bool:
    """Return whether good rows of a declaration are read from a kind of source."""
    declaration, kind = DECLARED[declared], SOURCES[source]
    if kind.on_bad_rows == "isolate" and declaration.reads != "OwnRows":
        return False
    return not (kind.write is comma_separated and declaration.schema.get("format") in NOT_IN_CSV)


def merged(records: Sequence[Any]) -> Any:
    """Return one record with the answers of several that are alike but for these."""
    first = records[0]
    if all(each == first for each in records):
        return first
    if isinstance(first, Mapping):
        return {name: merged([each[name] for each in records]) for name in first}
    return [answer for each in records for answer in each]


def with_answers(
    record: Any, made: Callable[[Sequence[Cells]], Sequence[object]], rest: Any
) -> Any:
    """Return a record with what is made of its answers: the list by which it differs from the
    ``rest``."""
    if isinstance(record, Mapping):
        return {name: with_answers(record[name], made, rest[name]) for name in record}
    if record == rest or not isinstance(record, list):
        return record
    return [each if not isinstance(each, bytes) else each.decode("latin1") for each in made(record)]


class Reading:
    """Others' rows as a declaration and a kind of source have them, read with a stranger and
    without."""

    def __init__(self, declared: str, source: str, path: Path, child: "OneChild") -> None:
        self._child = child
        self.name = f"{declared} | {source}"
        self._declared, self._kind, self._path = DECLARED[declared], SOURCES[source], path
        self._alone: dict[tuple[object, ...], Any] = {}
        rows = [
            (user, row)
            for number in range(ROWS_EACH)
            for user in OTHERS
            for row in self._declared.rows(user, number)
        ]
        self._public = []
        if self._declared.reads == "PublicTexts":
            self._public = [row for _, row in rows if "voter-id" not in row]
            rows = [(user, row) for user, row in rows if "voter-id" in row]
            self._public = [
                row for at, row in enumerate(self._public) if row not in self._public[:at]
            ]
        self._others = rows
        self.drawn = 0

    def drawn_for(self, stranger: str) -> int:
        """Return what is drawn for a hostile user."""
        return crc32(f"{self.name} | {stranger}".encode())

    def rows_of(self, stranger: str) -> list[tuple[str, object]]:
        """Return a hostile user's rows, and records that others share with them."""
        good = [row for number in range(ROWS_EACH) for row in self._declared.rows(STRANGER, number)]
        if self._public:
            good = [row for row in good if "voter-id" in row]
        make = STRANGERS[stranger]
        if self._shares(stranger):
            own, rest = (self._declared.rows(each, 7)[0] for each in (STRANGER, OTHERS[0]))
            mine = with_answers(own, make, rest)
            records = [self._declared.rows(user, 7)[0] for user in OTHERS]
            records.insert(self.drawn_for(stranger) % 5, mine)
            return [("all", merged(records))]
        return [(STRANGER, row) for row in make(good)]

    def may_refuse(self, stranger: str) -> bool:
        """Return whether a record of several annotators may be broken as a whole, or a public
        text."""
        if self._declared.reads == "SharedRecords":
            return not self._shares(stranger)
        return bool(self._public)

    def _shares(self, stranger: str) -> bool:
        """Return whether a hostile user's answers are in a record of all, else in their own
        ones."""
        if self._declared.reads != "SharedRecords" or self._kind.table:
            return False
        return bool(self.drawn_for(stranger) % 2)

    def alone(self, stranger: str, columns: Sequence[str]) -> Any:
        """Return what is seen of the others without the stranger; None where a table with such
        columns is refused, too."""
        rows = [*self._others]
        shared = self._shares(stranger)
        if shared:
            record = merged([self._declared.rows(user, 7)[0] for user in OTHERS])
            rows = [("all", record), *rows]
        key = (shared, *columns)
        if key not in self._alone:
            try:
                self._alone[key] = self.seen(rows, columns, 0)
            except InputError:
                if not self._kind.wide:
                    raise
                self._alone[key] = None
            if self._kind.wide and not any(rows for _, rows in self._alone[key] or ()):
                self._alone[key] = None
        return self._alone[key]

    def columns_for(self, mine: Sequence[object]) -> list[str]:
        """Return the columns of a table: those of good rows, and the hostile user's if it is
        wide."""
        if not self._kind.table:
            return []
        rows = [*self._public, *(row for _, row in self._others)]
        if self._kind.wide:
            rows += [row for row in mine if isinstance(row, Mapping)]
        shaped = (self._declared.shape(row) for row in rows)
        return list(dict.fromkeys(str(column) for row in shaped for column in row))

    def compared(self, stranger: str) -> tuple[Any, Any]:
        """Return what is seen of others without a stranger, and with; None twice, where others
        alone are refused for the columns of a table."""
        placed = self.rows_of(stranger)
        mine = [row for _, row in placed]
        columns = self.columns_for(mine)
        alone = self.alone(stranger, columns)
        if alone is None:
            return None, None
        drawn = self.drawn_for(stranger)
        at = (0, len(self._others) // 2, len(self._others))[drawn // 7 % 3]
        if self._shares(stranger):
            at = 0
        rows = [*self._others[:at], *placed, *self._others[at:]]
        return alone, self.seen(rows, columns, drawn)

    def own(self, stranger: str) -> list[tuple[str, list[Any]]] | None:
        """Return what is seen of a hostile user's rows where nobody else is; None where these are
        not told apart, or a file cannot be read with nobody else's."""
        if self._shares(stranger):
            return None
        placed = self.rows_of(stranger)
        columns = self.columns_for([row for _, row in placed])
        try:
            return self.seen(placed, columns, self.drawn_for(stranger))
        except InputError as error:
            nothing = re.search(
                r"^all \d+ rows are bad|: no (judgements|texts): |no pair", str(error)
            )
            return [] if nothing else None

    def seen(
        self, rows: Sequence[tuple[str, object]], columns: Sequence[str], drawn: int
    ) -> list[tuple[str, list[Any]]]:
        """Return what is made of rows, by user."""
        public = [(PUBLIC, row) for row in self._public]
        shape = self._declared.shape

        def shaped(row: object) -> Any:
            if not isinstance(row, Mapping):
                return row
            row = shape(row)
            return _numbered(row) if self._kind.numbers else row

        placed = [(user, shaped(row)) for user, row in (*public, *rows)]
        good = [shaped(row) for row in (*self._public, *(row for _, row in self._others))]
        for old in (self._path / "users").glob("*"):
            old.unlink()
        source = self._kind.write(self._path, Rows(placed, good, columns, drawn))
        with located_rows(source) as place:
            try:
                data = load_data(
                    self._declared.task,
                    place,
                    self._declared.columns,
                    self._kind.on_bad_rows,  # pyright: ignore[reportArgumentType]
                    Schema(**self._declared.schema),
                )
            except BaseException:
                self._child.renew()
                raise
        return _numbers_of(data)

    def changed(self, alone: Any, mixed: Any, stranger: str) -> str:
        """Return what changed of others; empty where nothing did."""
        if self._declared.schema.get("one_user_per_row"):
            return _missing([row for _, rows in alone for row in rows], mixed)
        spared = {STRANGER, STRANGER[1:]}
        if stranger.startswith("another's id"):
            spared |= {VICTIM, VICTIM[1:]}
        before = [(user, rows) for user, rows in alone if user not in spared]
        names = {user for user, _ in before}
        if len(before) < len(OTHERS) - (len(spared) > 2):
            return f"others are not all there: {sorted(names)}"
        return _different(before, [(user, rows) for user, rows in mixed if user in names])

    def own_changed(self, own: Any, alone: Any, mixed: Any, stranger: str) -> str:
        """Return what changed of a hostile user's own rows by others; empty where nothing did."""
        if own is None or stranger.startswith("another's id"):
            return ""
        if self._declared.schema.get("one_user_per_row"):
            return _missing([row for _, rows in own for row in rows], mixed)
        names = {user for user, _ in alone}
        mine = [(user, rows) for user, rows in mixed if user not in names]
        if not own:  # all of them are bad
            wrong = [user for user, rows in mine if _judgements(rows)]
            return f"{wrong} have rows among others alone" if wrong else ""
        return _different(own, mine)


def _judgements(rows: Sequence[Any]) -> list[Any]:
    return [row for row in rows if not isinstance(row, bytes)]


def _missing(rows: Sequence[Any], mixed: Any) -> str:
    rest = [row for _, many in mixed for row in many]
    for row in rows:
        if row not in rest:
            return f"a row is gone or another: {row[0]}"
        rest.remove(row)
    return ""


def _different(before: Sequence[Any], after: Sequence[Any]) -> str:
    if [user for user, _ in before] != [user for user, _ in after]:
        return f"users are {[user for user, _ in after]}, not {[user for user, _ in before]}"
    for (user, one), (_, two) in zip(before, after, strict=True):
        if one != two:
            shown = [[str(row[:4]) for row in _judgements(rows)] for rows in (one, two)]
            return f"of {user}: {shown[0]} became {shown[1]}"[:900]
    return ""


def _numbered(row: Cells) -> Any:
    """Return a row whose users are numbers."""

    def spell(who: object) -> object:
        short = isinstance(who, str) and who[:1] == "u" and who[1:].isdecimal()
        return int(who[1:]) if short else who  # pyright: ignore[reportIndexIssue]

    return renamed([row], spell)[0]


def _numbers_of(data: Any) -> list[tuple[str, list[Any]]]:
    """Return of each user the rows, with their numbers and features, and the clipped vector."""
    if not isinstance(data, Judgements):
        return [
            (user, [*data.texts[low:high]])
            for user, low, high in zip(
                data.user_ids, data.start_U[:-1], data.start_U[1:], strict=True
            )
        ]
    left_out = LeftOut("isolate")
    examples = pair_examples(data, SMALL, left_out)
    assert not left_out.rows
    names = {"pairs": "btl", "thumbs": "thumbs"}
    model = preference_model(names.get(data.kind, "plackett-luce"), data.kind, examples.width)
    theta_D = torch.linspace(-1.0, 1.0, SMALL.dimension)
    every = torch.arange(len(data))
    vectors = [
        vector_D
        for part_BD in examples.user_gradients(theta_D, every, examples.counts_U, model)
        for vector_D in part_BD.clone()
    ]
    width = examples.width
    features = examples.x_RD.numpy().reshape(len(data), width * SMALL.dimension)
    labels = examples.y_R.numpy().reshape(len(data), width)
    result = []
    for user, low, high in zip(data.user_ids, data.start_U[:-1], data.start_U[1:], strict=True):
        rows: list[Any] = [
            (
                data.prompts[row],
                data.responses[row],
                float(data.y_R[row]),
                None if data.flip_R is None else float(data.flip_R[row]),
                data.groups_R[row] if data.groups_R is not None else (),
                features[row].tobytes(),
                labels[row].tobytes(),
            )
            for row in range(low, high)
        ]
        vector_D = CLIP.clip_sum(vectors[len(result)][None])
        if not data.one_user_per_row:
            rows.append(vector_D.numpy().tobytes())
        result.append((user, rows))
    return result


class OneChild:
    """Lets one child decode all columnar files, until one of them is not read to its end."""

    def __init__(self, monkeypatch: Any) -> None:
        self._reader = ColumnarReader(reading.BUDGET)
        self._half_read = False
        monkeypatch.setattr(reading, "ColumnarReader", lambda budget: nullcontext(self))

    def __enter__(self) -> "OneChild":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__()

    def rows(self, *request: Any) -> Iterator[Any]:
        """Yield the rows of a file, as ``ColumnarReader`` does."""
        self._half_read = True
        yield from self._reader.rows(*request)
        self._half_read = False

    def renew(self) -> None:
        """Let another one decode what follows, if this one may have rows of a file left."""
        if self._half_read:
            self._reader.__exit__()
            self._reader, self._half_read = ColumnarReader(reading.BUDGET), False
