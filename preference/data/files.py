"""Rows of files: one reader per kind of file.

Decisions:
- Each reader yields rows with the line they stand in, so that every complaint about a row can be
  found with an editor. Parquet, Arrow and arrays count rows instead.
- Files are streamed. Whole files that cannot be read (missing, truncated, not of the kind their
  name says) are refused: setting aside is for rows.
- Rows are read one by one, so that no bytes in one reach another: a line of JSONL that is broken or
  endless is that row's alone, and so is a cell of Parquet. Only of CSV this cannot be had: an open
  quote swallows what follows, and to end every row at its line would let a text with line breaks
  in it pass for somebody else's rows. Nor of a JSON array, which is one text. Where several
  people's rows must be kept apart, these are not read (`check_isolated`).
- Another package brings a kind of file by an entry point ``murmuration.readers``, which is named as
  the files end, without the dot, and leads to a ``Reader``. Such files are not read as `.gz`.
"""

import csv
import gzip
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from murmuration.preference.data.budget import FileBudget
from murmuration.preference.data.columnar import ColumnarReader, NotReadable
from murmuration.preference.data.errors import BadRow, InputError, first_line
from murmuration.privacy.extensions import ExtensionError, Group

Row = Mapping[str, object] | BadRow
Placed = tuple[str, int, Row]  # with the file and line that it stands in

#: What files may become.
BUDGET = FileBudget()
_TOO_MANY = "too many for its size"
_PART_BYTES = 64  # of memory, that a value of JSON takes at least
_KINDS = (".jsonl", ".csv", ".parquet", ".arrow", ".json")


@dataclass(frozen=True)
class Reader:
    """Declare how a kind of file is read.

    Attributes:
        name: how such files' names end, in small letters, without the dot.
        rows: yields the rows of an open file, each a mapping from columns to cells, or a `BadRow`
            that says what is wrong with one, and each with the line, or the number, of it.
        isolates: whether no bytes of a row can reach another's, however broken they are; nodes,
            whose files can be several people's, read no others.
    """

    name: str
    rows: Callable[[IO[bytes]], Iterable[tuple[int, Mapping[str, object] | BadRow]]]
    isolates: bool = False


def _check_reader(name: str, loaded: object) -> str:
    if not isinstance(loaded, Reader):
        return "it is no Reader"
    return "" if loaded.name == name else f"it is called {loaded.name!r}"


#: The kinds of files that other packages bring.
READERS = Group("murmuration.readers", _check_reader, [*(kind[1:] for kind in _KINDS), "gz"])


def kind_of(name: str) -> str | None:
    """Return of which kind a file of this name is, as its name ends; None if of none."""
    unpacked = name.lower().removesuffix(".gz")
    if known := next((kind for kind in _KINDS if unpacked.endswith(kind)), None):
        return known
    others = (f".{reader}" for reader in READERS.names())
    return next((kind for kind in others if name.lower().endswith(kind)), None)


def known_kinds() -> str:
    """Return how files may end, as it is said."""
    others = "".join(f", .{name}" for name in READERS.names())
    return ", ".join(_KINDS) + " (each also .gz)" + others


def check_isolated(path: Path) -> None:
    """InputError for a file in which one row's bytes could reach others'."""
    reasons = {
        ".csv": "in CSV one open quote swallows the rows of others",
        ".json": "in a JSON array one broken character takes away the rows of others",
    }
    kind = kind_of(path.name) or ""
    if kind and kind not in _KINDS and not _reader(path, kind).isolates:
        reasons[kind] = f"what reads {kind} does not keep people's rows apart"
    if reason := reasons.get(kind):
        raise InputError(
            f"{path}: {reason}, so a node does not read it; write the rows as .jsonl or .parquet"
        )


def rows_of_files(
    files: Iterable[Path], wanted: Collection[str], apart: bool = False
) -> Iterator[Placed]:
    """Yield the rows of files, one file after the other; of Parquet and Arrow the ``wanted``
    columns.

    Where files are different people's and are kept ``apart``, a bad row stands for one that cannot
    be read, or in which one row's bytes could reach others'.

    Raises:
        InputError: a file cannot be read.
    """
    with ColumnarReader(BUDGET) as columnar:
        for file in files:
            try:
                if apart:
                    check_isolated(file)
                for number, row in _rows_of_file(file, wanted, columnar):
                    yield str(file), number, row
            except InputError as error:
                if not apart:
                    raise
                yield str(file), 1, BadRow(str(error).removeprefix(f"{file}: "))


def _rows_of_file(
    path: Path, wanted: Collection[str], columnar: ColumnarReader
) -> Iterator[tuple[int, Row]]:
    kind = kind_of(path.name)
    if kind is None:
        raise InputError(f"{path}: not a kind of file that can be read; known are {known_kinds()}")
    packed = path.name.lower().endswith(".gz")
    reader = None if kind in _KINDS else _reader(path, kind)
    try:
        with path.open("rb") as file:
            if reader is not None:
                yield from _read_by(reader, file, path)
            elif kind in _READERS:
                most = BUDGET.bytes(os.fstat(file.fileno()).st_size) if packed else None
                stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file
                yield from _READERS[kind](stream, most)
            else:
                yield from columnar.rows(file, kind, packed, wanted)
    except NotReadable as error:
        raise InputError(f"{path}: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged or cut off gzip file: {first_line(error)}") from error
    except _NoRows as error:
        raise InputError(f"{path}: not readable as JSON: {first_line(error)}") from error
    except csv.Error as error:
        raise InputError(f"{path}: not readable as CSV: {first_line(error)}") from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or first_line(error)}"
        ) from error


def _reader(path: Path, kind: str) -> Reader:
    try:
        return READERS.load(kind.removeprefix("."))
    except ExtensionError as error:
        raise InputError(f"{path}: {error}") from None


def _read_by(reader: Reader, file: IO[bytes], path: Path) -> Iterator[tuple[int, Row]]:
    """The rows that another package's reader yields; InputError for whatever it raises."""
    try:
        for number, row in reader.rows(file):
            if not (type(number) is int and isinstance(row, Mapping | BadRow)):
                raise TypeError(f"expected a number and a row, found {type(row).__name__}")
            yield number, row
    except Exception as error:
        raise InputError(
            f"{path}: the reader of .{reader.name} failed: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error


def _jsonl(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(_lines(stream, most), start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        if too_much := _too_much(line):
            yield number, BadRow(too_much)
            continue
        try:
            # Undecodable bytes become lone surrogates, which are refused with the cell they are in.
            row = json.loads(line.decode(errors="surrogateescape"))
        except (ValueError, RecursionError) as error:
            yield number, BadRow(f"broken JSON: {first_line(error)}{_undecodable(line)}")
        else:
            yield number, row


def _undecodable(line: bytes) -> str:
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
    """An array of rows, which is held as a whole, or lines as in JSONL."""
    first = stream.read(1)
    while first.isspace() or first in (b"\xef", b"\xbb", b"\xbf"):
        first = stream.read(1)
    stream.seek(0)
    if first != b"[":
        yield from _jsonl(stream, most)
        return
    text = stream.read(-1 if most is None else most + 1)
    _check_size(len(text) if most is None else max(len(text), _PART_BYTES * _parts(text)), most)
    try:
        rows = json.loads(text.removeprefix(b"\xef\xbb\xbf").decode())
    except (ValueError, RecursionError) as error:
        raise _NoRows(first_line(error)) from error
    yield from enumerate(rows, start=1)


def _csv(stream: IO[bytes], most: int | None) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(map(_csv_line, _lines(stream, most)), strict=True)
    header = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]
    if len(set(header)) != len(header):
        raise csv.Error(f"the header names a column twice: {', '.join(header)}")
    first_line_of_row = reader.line_num + 1
    for fields in reader:
        if len(fields) == len(header):
            yield first_line_of_row, dict(zip(header, fields, strict=True))
        elif fields:
            reason = f"{len(fields)} fields under a header of {len(header)}"
            yield first_line_of_row, BadRow(reason)
        first_line_of_row = reader.line_num + 1


def _csv_line(line: bytes) -> str:
    if too_much := _too_much(line):
        raise csv.Error(too_much)
    # Undecodable bytes become lone surrogates, which are refused with the row they stand in.
    return line.decode(errors="surrogateescape")


_READERS = {".jsonl": _jsonl, ".csv": _csv, ".json": _json}
