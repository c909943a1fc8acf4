"""Rows of files, one by one, each with the line that it stands in.

Decisions:
- One reader per kind of file; each yields rows with the line they stand in, so that every complaint
  about a row can be found with an editor. Parquet, Arrow and arrays count rows instead.
- A folder is all its files of known kinds in the order of their names, whatever the others are
  called; users may span files. Shards of one split are read where the split is named.
- A `.json` file may be one object: columns as pandas writes them by default, or a row. Which of
  these it is follows from the object's own shape, and from no row in it.
- Whole files that cannot be read (missing, truncated, not of the kind their name says) are refused:
  setting aside is for rows. Of a folder at a node (``isolate``) only they are left out: where each
  user has a file, a broken one is that user's zero.
- Rows are read one by one, so that no bytes in one reach another: a line of JSONL that is broken or
  endless is that row's alone, and so is a cell of Parquet. Of some files this cannot be had, as
  they are one text: a JSON array, CSV (an open quote swallows what follows), what is packed. Such a
  file is read whole or refused: this reveals one bit about its content, to its holder only. Of CSV
  it shows only where a row no longer fits: quotes are trusted to be its writer's. Where several
  people's rows must be kept apart, arrays and CSV are not read (``isolate``).
"""

import codecs
import csv
import gzip
import json
import os
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from murmuration.preference.data.columns import KNOWN_COLUMNS, USER_COLUMNS, top_of
from murmuration.preference.data.errors import BadRow, InputError, RowsError, first_line
from murmuration.preference.data.files.columnar import ColumnarReader, FileBudget, NotReadable
from murmuration.preference.data.formats.format import Format
from murmuration.preference.data.sources import (
    FILE_KINDS,
    READERS,
    Placed,
    RawRow,
    Reader,
    SourceFile,
    files_named,
    known_kinds,
    other_rows,
)
from murmuration.privacy.extensions import ExtensionError
from murmuration.privacy.regular_files import open_regular

#: What files may become.
BUDGET = FileBudget()
_USERS = frozenset(("user_id", *USER_COLUMNS))
#: Columns that any field may be read from, besides those that are named.
KNOWN = KNOWN_COLUMNS | {"text"}

#: Columns that are decoded; None: all.
Wanted = Collection[str] | None

_TOO_MANY = "too many for its size"
_LARGEST_OBJECT = 2**30  # bytes of a file that is one object, where it is not packed
_WRITE = (
    "write an array of rows, or one row a line, as pandas does with "
    "to_json(FILE, orient='records', lines=True)"
)
_PART_BYTES = 64  # of memory, that a value of JSON takes at least


def source_rows(
    source: str, isolate: bool, wanted: Wanted = KNOWN, user: str = ""
) -> Iterator[Placed]:
    """Yield the rows of a source, with the file and line of each.

    Args:
        source: as of ``preference.data.loading.load_judgements``.
        isolate: whether files may be different people's, as at a node: then a bad row stands for
            one of a folder that cannot be read.
        wanted: the columns that are decoded of Parquet and Arrow; None: all.
        user: that of them which says who judged, where it has an unusual name.

    Raises:
        InputError: it cannot be read, or names nothing.
    """
    files = files_named(source, isolate)
    if files is None:
        return other_rows(source, isolate)
    return _rows_of_files(files, wanted, user, isolate)


def _rows_of_files(
    files: Iterable[SourceFile], wanted: Wanted, user: str, isolate: bool
) -> Iterator[Placed]:
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
) -> Iterator[tuple[int, RawRow]]:
    path, kind = file.path, file.kind
    if kind is None:
        raise InputError(f"{path}: not a kind of file that can be read; known are {known_kinds()}")
    try:
        reader = None if kind in FILE_KINDS else READERS.load(kind.removeprefix("."))
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
        with open_regular(path) as stream:
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
    except csv.Error as error:
        raise RowsError(f"{path}: not readable as CSV: {first_line(error)}") from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or first_line(error)}"
        ) from error


def _is_packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _not_isolated(kind: str, reader: Reader | None) -> str:
    """The reason why one row's bytes could change how others are read; empty if they cannot."""
    if reader is not None and not reader.isolates:
        return f"what reads {kind} does not keep people's rows apart"
    return {
        ".csv": "in CSV one open quote swallows the rows of others",
        ".json": "in a JSON array one broken character takes away the rows of others",
    }.get(kind, "")


def _read_by(reader: Reader, file: IO[bytes], path: Path) -> Iterator[tuple[int, RawRow]]:
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


def _jsonl(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, RawRow]]:
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


def _row_of(line: bytes) -> RawRow:
    # Undecodable bytes become lone surrogates, which are refused with the cell they are in.
    text = line.decode(errors="surrogateescape")
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
    """An upper bound, short of a few, on the number of values in a text of JSON or CSV."""
    return sum(map(text.count, (b",", b"[", b"{")))


def _json(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, RawRow]]:
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
            rows = _rows_of_object(whole, KNOWN)
        except ValueError as error:
            raise NotReadable(f"not readable as JSON: {error}") from error
        yield from cast(Iterable[tuple[int, RawRow]], enumerate(rows, start=1))
        return
    text = stream.read(-1 if most is None else most + 1)
    _check_size(len(text) if most is None else max(len(text), _PART_BYTES * _parts(text)), most)
    try:
        rows = json.loads(text.removeprefix(b"\xef\xbb\xbf").decode())
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"not readable as JSON: {first_line(error)}") from error
    yield from enumerate(rows, start=1)


def _only_object(stream: IO[bytes], most: int | None) -> Mapping[str, object] | None:
    """The JSON object that a whole file is; None for a file of lines.

    A file of several lines, of which any is an object, is a file of lines: a broken line must not
    join others to one object.
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
    """True if a line alone is a JSON object that is not empty."""
    line = line.removeprefix(codecs.BOM_UTF8).strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return False
    try:
        return bool(json.loads(line))
    except (ValueError, RecursionError):
        return False


_SEPARATOR_LINE = re.compile(rb"sep=([,;\t|])\s*", re.IGNORECASE)


def _csv(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, RawRow]]:
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


def _rows_of_object(whole: Mapping[str, object], columns: Set[str]) -> list[object]:
    """Return the rows of a file that is one object.

    Those of columns are by their numbers, `{"user_id": {"0": cell, …}, …}`; any other object is a
    row.

    Args:
        whole: the object.
        columns: names that columns may have.

    Raises:
        ValueError: it holds a list, and has none of these names; or its columns have no numbers.
    """
    cells_of = {name: cells for name, cells in whole.items() if isinstance(cells, Mapping)}
    if len(cells_of) < len(whole):
        if columns.isdisjoint(whole) and any(isinstance(cell, list) for cell in whole.values()):
            raise ValueError(f"it is one object with a list, and no row: {_WRITE}")
        return [whole]
    numbers = dict.fromkeys(number for cells in cells_of.values() for number in cells)
    if not all(map(str.isdecimal, numbers)):
        raise ValueError(f"it is one object of objects without numbers for rows: {_WRITE}")
    return [
        {name: cells[number] for name, cells in cells_of.items() if number in cells}
        for number in numbers
    ]
