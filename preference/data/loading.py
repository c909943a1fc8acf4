"""Judgements and texts from files, folders, functions and dataset hubs.

A source becomes rows with the place they stand in (`preference.data.sources` says which files it
names), and these become judgements or texts (`preference.data.judgements`, `preference.data.texts`)
one by one: only the judgements themselves are held.

Decisions:
- One reader per kind of file; each yields rows with the line they stand in, so that every complaint
  about a row can be found with an editor. Parquet, Arrow and arrays count rows instead.
- A folder is all its files of known kinds in the order of their names, whatever the others are
  called; users may span files. Shards of one split are read where the split is named.
- A `.json` file may be one object that holds the rows (`preference.data.files.json_objects`).
- Whole files that cannot be read (missing, truncated, not of the kind their name says) are refused:
  setting aside is for rows. Of a folder at a node (``isolate``) only they are left out: where each
  user has a file, a broken one is that user's zero.
- Rows are read one by one, so that no bytes in one reach another: a line of JSONL that is broken or
  endless is that row's alone, and so is a cell of Parquet. Of some files this cannot be had, as
  they are one text: a JSON array, CSV (an open quote swallows what follows), what is packed. Such a
  file is read whole or refused: one bit, about all in it, to whoever holds it and to nobody else.
  Of CSV it shows only where a row no longer fits: quotes are trusted to be its writer's.
  Where several people's rows must be kept apart, arrays and CSV are not read (``isolate``).
"""

import codecs
import csv
import gzip
import json
import os
import re
import shlex
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeGuard, cast

from murmuration.preference.data.cells import (
    exchange,
    prompt_cell,
    rated_exchange,
    response_cell,
    shared_words,
)
from murmuration.preference.data.column_meanings import KNOWN_COLUMNS, USER_COLUMNS, top_of
from murmuration.preference.data.errors import BadRow, InputError, RowsError, first_line
from murmuration.preference.data.files.columnar import ColumnarReader, FileBudget, NotReadable
from murmuration.preference.data.files.json_objects import rows_of_object
from murmuration.preference.data.formats.format import Format, WholeSource
from murmuration.preference.data.formats.reading import Formatted
from murmuration.preference.data.formats.registry import format_named
from murmuration.preference.data.in_memory import Source, located_rows
from murmuration.preference.data.judgements import Judgements, OnBadRows
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.sources import (
    KINDS,
    READERS,
    Placed,
    Row,
    SourceFile,
    files_named,
    known_kinds,
    other_rows,
)
from murmuration.preference.data.sources import Reader as Reader
from murmuration.preference.data.texts import UserTexts
from murmuration.privacy.extensions import ExtensionError

#: What files may become.
BUDGET = FileBudget()
_USERS = frozenset(("user_id", *USER_COLUMNS))
#: Columns that any field may be read from, besides those that are named.
_KNOWN = KNOWN_COLUMNS | {"text"}
#: What users have, grouped by user.
Data = Judgements | UserTexts

#: Columns that are decoded; None: all.
Wanted = Collection[str] | None

_TOO_MANY = "too many for its size"
_LARGEST_OBJECT = 2**30  # bytes of a file that is one object, where it is not packed
_PART_BYTES = 64  # of memory, that a value of JSON takes at least


def load_judgements(
    source: str,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_rows: OnBadRows = "refuse",
    schema: Schema = PAIRS,
) -> Judgements:
    """Judgements from a source, grouped by user.

    Args:
        source: a `.jsonl`, `.csv`, `.parquet`, `.arrow` or `.json` file (an array, an object that
            holds the rows, or lines), each also with `.gz`; a folder of such files, or one that
            `datasets` saved; `package.module:function`, called without arguments, that gives an
            iterable of mappings; or the name of a data set on the Hugging Face hub. Of the last and
            of folders a split and a configuration may be named (`preference.data.sources`). What
            exists here as a path is a path.
        columns: field → column, for the fields of `preference.data.column_meanings.FIELDS`.
        on_bad_rows: `refuse` the whole source at its first bad row, or `skip`: leave bad rows out,
            as the result's `set_aside` says; `isolate`, for nodes, does so even if nothing is left,
            leaves out files of a folder that cannot be read, and reads no CSV and no `.json`.
        schema: what the rows are declared to be; a row that is something else is bad.

    Raises:
        InputError: one line that names the file and line, or the source, and what is wrong.
    """
    rows, columns, schema = _declared_rows(source, columns or {}, on_bad_rows, schema)
    return Judgements.from_placed_rows(
        rows, columns=columns, on_bad_rows=on_bad_rows, source=source, schema=schema
    )


def read_judgements(
    data: Judgements | Source,
    model: str,
    columns: str | Mapping[str, str],
    declared: Mapping[str, bool | int | str],
) -> Judgements:
    """Return judgements to measure a model on, of a source or of rows that are in memory.

    Args:
        data: what has them.
        model: the preference model; of `thumbs` rows are thumbs, unless declared otherwise.
        columns: as of `parse_columns`.
        declared: fields of a ``Schema``.

    Raises:
        InputError: rows that cannot be read, there is no such field, or every judgement is a tie.
    """
    if hasattr(type(data), "decided"):  # judgements already
        judgements: Judgements = data  # pyright: ignore[reportAssignmentType]
    else:
        usual = {"kind": "thumbs"} if model == "thumbs" else {}
        if unknown := declared.keys() - vars(Schema()):
            raise InputError(f"rows cannot be declared {min(unknown)!r}")
        schema = Schema.of({name.replace("_", "-"): v for name, v in {**usual, **declared}.items()})
        with located_rows(data) as place:  # pyright: ignore[reportArgumentType]
            judgements = load_judgements(place, columns=parse_columns(columns), schema=schema)
    if not judgements.decided:
        raise RowsError("every judgement is a tie: they do not say what is better")
    return judgements


def load_data(
    task: str,
    source: str,
    columns: str = "",
    on_bad_rows: OnBadRows = "refuse",
    schema: Schema = PAIRS,
) -> Data:
    """Users' rows of a source, as a task reads them; ``columns`` as `--columns` is written.

    Raises:
        InputError: one line that names the file and line, or the source, and what is wrong.
    """
    if task == "text" and schema.format:
        raise InputError(
            f"--format {schema.format} is about judgements, and --task text reads none"
        )
    read = UserTexts if task == "text" else Judgements
    rows, named, schema = _declared_rows(source, parse_columns(columns), on_bad_rows, schema)
    return read.from_placed_rows(
        rows,
        columns=named,
        on_bad_rows=on_bad_rows,
        source=source,
        schema=schema,
    )


def load_prompts(source: str) -> Iterator[str]:
    """The `prompt` of each row of a source as of `load_judgements`, one by one.

    Raises:
        InputError: it cannot be read, or a row has none that is a text (names the line).
    """
    for place, number, row in _rows(source, False, _KNOWN):
        yield _prompt(place, number, row)


def _prompt(place: str, number: int, row: Mapping[str, object] | BadRow) -> str:
    try:
        if isinstance(row, BadRow) or not isinstance(row, Mapping) or row.get("prompt") is None:
            raise BadRow("there is none")
        return prompt_cell(row["prompt"], "prompt")
    except BadRow as reason:
        raise InputError(f"{place}: line {number} has no prompt: {reason}") from None


def load_responses(source: str) -> Iterator[tuple[str, str]]:
    """The `prompt` and `response` of each row of a source as of `load_judgements`, one by one.

    A response may be empty: a model can have said nothing.

    Raises:
        InputError: it cannot be read, or a row has not both as texts (names the line).
    """
    for place, number, row in _rows(source, False, _KNOWN):
        response = row.get("response") if isinstance(row, Mapping) else None
        if not _is_text(response):
            raise InputError(
                f"{place}: line {number} needs a `prompt` and a `response` that are text"
            )
        yield _prompt(place, number, row), response


def texts_in(source: str, column: str) -> set[str]:
    """Return the distinct texts in a column of a source as of `load_judgements`; rows need not have
    it.

    Raises:
        InputError: it cannot be read, or the column holds something else.
    """
    rows = _rows(source, False, (column,))
    cells = (row.get(column) for _, _, row in rows if isinstance(row, Mapping))
    texts = set()
    for cell in cells:
        if not (cell is None or isinstance(cell, str)):
            raise RowsError(f"{source}: {column} is no text in a row")
        texts.add(cell or "")
    return texts - {""}


def load_scorable(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A prompt and its texts of each row of a source as of `load_judgements`, one by one: of pairs
    `chosen` and `rejected`, in all forms of `preference.data.cells`; else the `response` (or
    `completion`).

    Raises:
        InputError: it cannot be read, or a row is neither (names the line).
    """
    for place, number, row in _rows(source, False, _KNOWN):
        try:
            yield _scorable(row)
        except BadRow as error:
            raise InputError(f"{place}: line {number}: {error}") from None


def _scorable(row: Mapping[str, object] | BadRow) -> tuple[str, dict[str, str]]:
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    prompted = row.get("prompt") is not None
    if "chosen" in row and "rejected" in row:
        pair = ("chosen", "rejected")
        prompt, chosen, rejected = exchange(row, pair, "prompt" if prompted else None)
        if not prompt:
            prompt, chosen, rejected = shared_words(chosen, rejected, pair)
        return prompt, {"chosen": chosen, "rejected": rejected}
    name = "response" if "response" in row else "completion"
    if not prompted or row.get(name) is None:
        raise BadRow("neither `prompt` and `response`, nor `chosen` and `rejected`")
    return prompt_cell(row["prompt"], "prompt"), {"response": response_cell(row[name], name)}


def load_demonstrations(source: str) -> Iterator[tuple[str, str]]:
    """A prompt and how it should be answered, of each row of a source as of `load_judgements`.

    A row has `prompt` and `response` (or `completion`), or `messages` as chats are written down,
    the last of them the assistant's, each in all forms of `preference.data.cells`. What stands
    before the last message is the prompt.

    Raises:
        InputError: it cannot be read, or a row is none of these or has nothing to learn (names the
            line).
    """
    for place, number, row in _rows(source, False, _KNOWN):
        try:
            if isinstance(row, BadRow) or not isinstance(row, Mapping):
                raise BadRow("it is none")
            if "messages" in row:
                yield rated_exchange(row, "messages", None)
            else:
                answer = "response" if "response" in row else "completion"
                yield rated_exchange(row, answer, "prompt")
        except (BadRow, KeyError) as reason:
            raise InputError(
                f"{place}: line {number} needs a `prompt` and a `response` (or `completion`) that "
                "are text, or `messages` of which the last is the assistant's"
                + (f": {reason}" if isinstance(reason, BadRow) else "")
            ) from None


def placed_rows(
    source: str, columns: Mapping[str, str], format: str = "", one_user_per_row: bool = False
) -> Iterator[Placed]:
    """Yield the rows of a source as of `load_judgements`, with the file and line of each; of a
    format in our form, also of one that must be converted.

    Raises:
        InputError: it cannot be read, or is not of that format.
    """
    if not format:
        return _rows(source, False, None)
    declared = Schema(format=format, one_user_per_row=one_user_per_row)
    formatted = _formatted(source, columns, declared)
    return formatted.rows(_rows(source, False, formatted.wanted))


def public_texts(source: str, columns: str, format: str) -> list[object]:
    """Return the public texts of a source of a format, as Polis has them, in their order.

    Raises:
        InputError: it cannot be read, or has none.
    """
    formatted = _formatted(source, parse_columns(columns), Schema(format=format))
    return formatted.public_texts(_rows(source, False, formatted.wanted))


def columns_of(source: str, rows: int = 100) -> list[str]:
    """Names of the columns in the first good rows of a source as of `load_judgements`.

    Raises:
        InputError: it cannot be read.
    """
    first = (row for _, _, row in _rows(source, False, ()) if isinstance(row, Mapping))
    return list(dict.fromkeys(str(name) for row in islice(first, rows) for name in row))


def _is_text(cell: object) -> TypeGuard[str]:
    """Return whether a cell holds valid Unicode."""
    try:
        return isinstance(cell, str) and cell.encode() is not None
    except UnicodeEncodeError:
        return False


#: A name that can stand in ``field=column,field=column``.
_PLAIN = re.compile(r"[^,={\s]([^,=]*[^,=\s])?")


def parse_columns(columns: str | Mapping[str, str]) -> dict[str, str]:
    """Return the columns of fields, from ``field=column,field=column``, the same as a JSON object,
    or a mapping; empty for the names as they are.

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
    for field, equals, column in pairs:
        if not (field.strip() and equals and column.strip()):
            raise InputError(f"--columns {columns!r}: write field=column, as in user_id=annotator")
    named = {field.strip(): column.strip() for field, _, column in pairs}
    if len(named) < len(pairs):
        raise InputError(f"--columns {columns!r}: a field is named twice")
    return named


def write_columns(columns: str | Mapping[str, str] | None, user_column: str | None = None) -> str:
    """Return the setting ``columns`` that ``parse_columns`` reads, with the user's column in it.

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


def _declared_rows(
    source: str, columns: Mapping[str, str], on_bad_rows: OnBadRows, schema: Schema
) -> tuple[Iterator[Placed], Mapping[str, str], Schema]:
    """Rows of a source in our form, which of their columns have other names, and the schema with
    what their format declares.

    Raises:
        InputError: the format is unknown, or does not go with what else is declared.
    """
    isolate = on_bad_rows == "isolate"
    if not schema.format:
        wanted = _KNOWN.union(columns.values(), map(top_of, columns.values()))
        return _rows(source, isolate, wanted, columns.get("user_id", "")), columns, schema
    form = readable_format(source, schema.format)
    if isolate and not form.isolates:
        raise InputError(
            f"--format {form.name} does not keep people's rows apart, so a node does not read it; "
            "write the rows in our own form, as .jsonl or .parquet"
        )
    formatted = _formatted(source, columns, schema)
    return (
        formatted.rows(_rows(source, isolate, formatted.wanted, columns.get("user_id", ""))),
        {},
        replace(schema, scale=schema.scale or form.scale),
    )


def readable_format(source: str, name: str) -> Format:
    """Return a format by which each user's rows are read by themselves.

    Raises:
        InputError: it is unknown, or its judgements are made of several users' rows.
    """
    form = format_named(name)
    if isinstance(form.reads, WholeSource):
        raise InputError(
            f"--format {form.name} makes judgements of several users' rows, so no epsilon would "
            f"hold: convert it first, murmuration data {shlex.quote(source)} --format {form.name} "
            "--convert FILE.jsonl"
        )
    return form


def _formatted(source: str, columns: Mapping[str, str], schema: Schema) -> Formatted:
    """Return what reads the rows of a source by the declared format.

    Raises:
        InputError: the format is unknown, or does not go with what else is declared.
    """
    form = format_named(schema.format)
    named = {"user_id", "prompt"} if form.categories else {"user_id"}
    if others := {*columns} - named:
        raise InputError(
            f"--format {form.name} knows its columns: --columns may name "
            f"{' and '.join(sorted(named))} alone, not {', '.join(sorted(others))}"
        )
    return Formatted(
        form,
        source,
        user_column=columns.get("user_id", ""),
        category_column=columns.get("prompt", ""),
        alone=schema.one_user_per_row,
        same_id=schema.same_id,
    )


def _rows(source: str, isolate: bool, wanted: Wanted, user: str = "") -> Iterator[Placed]:
    """Rows of a source; of Parquet and Arrow what is in the ``wanted`` columns, of which ``user``
    says who judged where it has an unusual name."""
    files = files_named(source, isolate)
    if files is None:
        return other_rows(source, isolate)
    return _rows_of_files(files, wanted, user, isolate)


def _rows_of_files(
    files: Iterable[SourceFile], wanted: Wanted, user: str, isolate: bool
) -> Iterator[Placed]:
    """Rows of files, one after the other. Files of a folder may be different people's: to
    ``isolate`` them, a bad row stands for one that cannot be read."""
    with ColumnarReader(BUDGET) as columnar:
        for file in files:
            try:
                rows = _rows_of_file(file, wanted, user, isolate, columnar)
                apart = file.kind == ".jsonl" and not _is_packed(file.path)
                if isolate and file.of_folder and not apart:
                    rows = [*rows]  # all or none of what cannot be split by user
                for number, row in rows:
                    yield str(file.path), number, row
            except InputError as error:
                if not (isolate and file.of_folder):
                    raise
                yield str(file.path), 1, BadRow(str(error).removeprefix(f"{file.path}: "))


def _rows_of_file(
    file: SourceFile,
    wanted: Wanted,
    user: str,
    isolate: bool,
    columnar: ColumnarReader,
) -> Iterator[tuple[int, Row]]:
    path, kind = file.path, file.kind
    if kind is None:
        raise InputError(f"{path}: not a kind of file that can be read; known are {known_kinds()}")
    try:
        reader = None if kind in KINDS else READERS.load(kind.removeprefix("."))
    except ExtensionError as error:
        raise InputError(f"{path}: {error}") from None
    if isinstance(reader, Format):
        raise InputError(f"{path}: {reader.name} is a format, and no kind of file: see --format")
    if isolate and (reason := _not_isolated(kind, reader)):
        raise InputError(
            f"{path}: {reason}, so a node does not read it; write the rows as .jsonl or .parquet"
        )
    packed = _is_packed(path)
    try:
        with path.open("rb") as stream:
            if reader is not None:
                yield from _read_by(reader, stream, path)
            elif kind in _READERS:
                most = BUDGET.bytes(os.fstat(stream.fileno()).st_size) if packed else None
                unpacked = cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if packed else stream
                yield from _READERS[kind](unpacked, most)
            else:
                yield from columnar.rows(
                    stream, kind, packed, wanted, {user, top_of(user), *_USERS}
                )
    except NotReadable as error:
        raise RowsError(f"{path}: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RowsError(f"{path}: damaged or cut off gzip file: {first_line(error)}") from error
    except _NoRows as error:
        raise RowsError(f"{path}: not readable as JSON: {first_line(error)}") from error
    except csv.Error as error:
        raise RowsError(f"{path}: not readable as CSV: {first_line(error)}") from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or first_line(error)}"
        ) from error


def _is_packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _not_isolated(kind: str, reader: Reader | None) -> str:
    """Return why one row's bytes could reach others' in such a file; empty if they cannot."""
    if reader is not None and not reader.isolates:
        return f"what reads {kind} does not keep people's rows apart"
    return {
        ".csv": "in CSV one open quote swallows the rows of others",
        ".json": "in a JSON array one broken character takes away the rows of others",
    }.get(kind, "")


def _read_by(reader: Reader, file: IO[bytes], path: Path) -> Iterator[tuple[int, Row]]:
    """The rows that another package's reader yields; InputError for whatever it raises."""
    try:
        for pair in reader.rows(file):
            parts = pair if isinstance(pair, tuple) else (pair,)
            match parts:
                case (int() as number, Mapping() | BadRow() as row):
                    yield number, row
                case _:
                    types = ", ".join(type(part).__name__ for part in parts)
                    raise TypeError(f"expected (line number, row) each time, found ({types})")
    except Exception as error:
        raise InputError(
            f"{path}: the reader of .{reader.name} failed: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def _jsonl(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(_lines(stream, most), start=1):
        line = line.removeprefix(codecs.BOM_UTF8)  # of any line: none is read by its place
        if not line.strip():
            continue
        if too_much := _too_much(line):
            yield number, BadRow(too_much)
            continue
        yield number, _row_of(line)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name stands in one record twice")
    return result


_decoder = json.JSONDecoder(object_pairs_hook=_named_once)


def _row_of(line: bytes) -> Row:
    # Undecodable bytes become lone surrogates, which are refused with the cell they are in.
    text = line.decode(errors="surrogateescape")
    try:
        row, end = _decoder.raw_decode(text)
        if text[end:] in ("", "\n"):
            return row
    except (ValueError, RecursionError):
        pass  # blanks before it, or what is told next
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        opened = ": each line is a row; jq -c . writes them so" if text.strip() in "[{" else ""
        return BadRow(f"broken JSON: {first_line(error)}{_undecodable(line)}{opened}")


def _undecodable(line: bytes) -> str:
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return " (UTF-16: save the file as UTF-8)"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f" (not valid UTF-8 at byte {error.start + 1})"
    return ""


def _lines(stream: IO[bytes], most: int | None) -> Iterator[bytes]:
    """Lines; of one that is too long only so much as shows that it is.

    Raises:
        NotReadable: they are more than ``most`` bytes, where there is such a limit.
    """
    total, longest = 0, BUDGET.line_bytes + 1
    while line := stream.readline(longest):
        rest, total = line, total + len(line) + BUDGET.row_bytes
        while len(rest) == longest and not rest.endswith(b"\n"):
            rest = stream.readline(longest)
            total += len(rest)
            _check_size(total, most)
        _check_size(total, most)
        yield line


def _check_size(size: int, most: int | None) -> None:
    if most is not None and size > most:
        rows = most // BUDGET.row_bytes
        raise NotReadable(f"it would become more than {most:,} bytes or {rows:,} rows, {_TOO_MANY}")


def _too_much(line: bytes) -> str:
    """Why a row is not even parsed, as its values may take 100 times its bytes; else empty."""
    if len(line) > BUDGET.line_bytes:
        return f"a line of more than {BUDGET.line_bytes:,} bytes"
    if len(line) > BUDGET.parts and _parts(line) > BUDGET.parts:
        return f"a line of more than {BUDGET.parts:,} values"
    return ""


def _parts(text: bytes) -> int:
    """At least as many as there are values in a text of JSON or CSV, short of a few."""
    return sum(map(text.count, (b",", b"[", b"{")))


class _NoRows(ValueError):
    """A JSON file that holds neither an array nor an object on each line."""


def _json(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, Row]]:
    """An array of rows or an object that holds them, which are held as a whole, or lines as in
    JSONL."""
    first = stream.read(1)
    while first.isspace() or first in (b"\xef", b"\xbb", b"\xbf"):
        first = stream.read(1)
    stream.seek(0)
    if first != b"[":
        whole = _only_object(stream, most) if first == b"{" else None
        stream.seek(0)
        if whole is None:
            yield from _jsonl(stream, most)
            return
        try:
            rows = rows_of_object(whole, _KNOWN)
        except ValueError as error:
            raise _NoRows(str(error)) from error
        yield from cast(Iterable[tuple[int, Row]], enumerate(rows, start=1))
        return
    text = stream.read(-1 if most is None else most + 1)
    _check_size(len(text) if most is None else max(len(text), _PART_BYTES * _parts(text)), most)
    try:
        rows = json.loads(text.removeprefix(b"\xef\xbb\xbf").decode())
    except (ValueError, RecursionError) as error:
        raise _NoRows(first_line(error)) from error
    yield from enumerate(rows, start=1)


def _only_object(stream: IO[bytes], most: int | None) -> Mapping[str, object] | None:
    """Return the object that a whole file is; None where it is of lines.

    One of several lines, of which any is an object, is a file of lines: nobody's broken line may
    join others' to one object.
    """
    lines = _lines(stream, most)
    if _is_object(next(lines)) and any(line.strip() for line in lines):
        return None
    stream.seek(0)
    limit = _LARGEST_OBJECT if most is None else most
    text = stream.read(limit + 1).removeprefix(codecs.BOM_UTF8)
    if len(text) > limit or (most is not None and _PART_BYTES * _parts(text) > most):
        return None
    written = [line for line in text.splitlines() if line.strip()]
    if len(written) > 1 and any(map(_is_object, written)):
        return None
    try:
        whole = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return whole if isinstance(whole, Mapping) else None


def _is_object(line: bytes) -> bool:
    """Return whether a line is an object that holds anything, by itself."""
    line = line.removeprefix(codecs.BOM_UTF8).strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return False
    try:
        return bool(json.loads(line))
    except (ValueError, RecursionError):
        return False


_SEPARATOR_LINE = re.compile(rb"sep=([,;\t|])\s*", re.IGNORECASE)


def _csv(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, Row]]:
    """Rows under a header, whose separators are those of the whole file: commas, or, if there are
    none in it, semicolons or tabs. Excel may write in a line before it which they are.

    Where a row has another number of cells, and one has several lines, a quote may have been open
    and have taken other people's rows: then the file is refused.

    Cells and lines may have any length here, as a line that is cut off could leave a quote open: a
    row that is too large is found when it is whole.
    """
    csv.field_size_limit(sys.maxsize)
    lines = _whole_lines(stream, most)
    top = next(lines, b"").removeprefix(codecs.BOM_UTF8)
    if top.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise csv.Error("it is UTF-16, as Excel's Unicode text: save it as CSV UTF-8")
    separator, before = _separator(top), 0
    if stated := _SEPARATOR_LINE.fullmatch(top):
        separator, top, before = stated[1].decode(), next(lines, b""), 1
    if too_much := _too_much(top.replace(separator.encode(), b",")):
        raise csv.Error(too_much)
    # Undecodable bytes become lone surrogates, which are refused with the row they stand in.
    texts = (line.decode(errors="surrogateescape") for line in chain([top], lines))
    reader = csv.reader(texts, delimiter=separator, strict=True)
    spread, other_sizes = False, ""
    header = [name.strip() for name in next(reader, [])]
    if len(set(header)) != len(header):
        raise csv.Error(f"the header names a column twice: {', '.join(header)}")
    first_line_of_row = reader.line_num + before + 1
    for fields in reader:
        size = sum(map(len, fields))
        if size > BUDGET.line_bytes or len(fields) > BUDGET.parts:
            yield first_line_of_row, BadRow(f"a row of more than {BUDGET.line_bytes:,} bytes")
        elif len(fields) == len(header):
            yield first_line_of_row, dict(zip(header, fields, strict=True))
        elif fields:
            reason = f"{len(fields)} fields under a header of {len(header)}"
            yield first_line_of_row, BadRow(reason)
            other_sizes = other_sizes or f"line {first_line_of_row} has {reason}"
        spread = spread or reader.line_num + before > first_line_of_row
        first_line_of_row = reader.line_num + before + 1
    if spread and other_sizes:
        raise csv.Error(
            f"{other_sizes}, and other rows have several lines: a quote that is open may have "
            "taken other people's rows"
        )


def _whole_lines(stream: IO[bytes], most: int | None) -> Iterator[bytes]:
    """Lines of any length.

    Raises:
        NotReadable: they are more than ``most`` bytes, where there is such a limit.
    """
    total = 0
    while line := stream.readline(-1 if most is None else most - total + 1):
        total += len(line)
        _check_size(total, most)
        yield line


def _separator(header: bytes) -> str:
    return next((each for each in ",;\t" if each.encode() in header), ",")


_READERS = {".jsonl": _jsonl, ".csv": _csv, ".json": _json}
