"""Judgements and texts from files, folders, functions and dataset hubs.

Decisions:
- One reader per kind of file; each yields rows with the file and line they stand in, so that every
  complaint about a row can be found with an editor. Parquet, Arrow and arrays count rows instead.
- A folder is its files of known kinds in the order of their names; users may span files.
- Files are streamed; only the judgements themselves are held.
- Whole files that cannot be read (missing, truncated, not of the kind their name says) are refused:
  setting aside is for rows. Of a folder at a node (``isolate``) only they are left out: where each
  user has a file, a broken one is that user's zero.
- Rows are read one by one, so that no bytes in one reach another: a line of JSONL that is broken or
  endless is that row's alone, and so is a cell of Parquet. Only of CSV this cannot be had: an open
  quote swallows what follows, and to end every row at its line would let a text with line breaks
  in it pass for somebody else's rows. Nor of a JSON array, which is one text. Where several
  people's rows must be kept apart, these are not read (``isolate``).
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeGuard

from murmuration.preference.data.data_sets import Named, files_of, hub_rows, parse_source
from murmuration.preference.data.judgements import Judgements, OnBadRows
from murmuration.preference.data.messages import exchange, prompt_cell, response_cell
from murmuration.preference.data.rows import BadRow, InputError
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.sources import first_line, is_hub_name, looks_like_path
from murmuration.preference.data.texts import UserTexts

if TYPE_CHECKING:
    import pyarrow

Placed = tuple[str, int, Mapping[str, object] | BadRow]

#: Bytes of a line of JSONL; a judgement over 64 responses of 100,000 characters may have them.
MOST_LINE = 2**26

#: What `datasets` writes beside the rows of a data set.
_ABOUT_ROWS = ("state.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json")
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


def load_judgements(
    source: str,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_rows: OnBadRows = "refuse",
    schema: Schema = PAIRS,
) -> Judgements:
    """Judgements from a source, grouped by user.

    Args:
        source: a `.jsonl`, `.csv`, `.parquet`, `.arrow` or `.json` file (an array, or lines), each
            also with `.gz`; a folder of such files, or one that `datasets` saved;
            `package.module:function`, called without arguments, that gives an iterable of mappings;
            or the name of a data set on the Hugging Face hub. Of the last and of folders a split
            and a configuration may be named (`preference.data.data_sets`). What exists here as a
            path is a path.
        columns: field → column, for the fields of `preference.data.rows.FIELDS`.
        on_bad_rows: `refuse` the whole source at its first bad row, or `skip`: leave bad rows out,
            as the result's `set_aside` says; `isolate`, for nodes, does so even if nothing is left,
            leaves out files of a folder that cannot be read, and reads no CSV and no `.json`.
        schema: what the rows are declared to be; a row that is something else is bad.

    Raises:
        InputError: one line that names the file and line, or the source, and what is wrong.
    """
    rows = _rows(source, on_bad_rows == "isolate")
    return Judgements.from_placed_rows(
        rows, columns=columns, on_bad_rows=on_bad_rows, source=source, schema=schema
    )


def load_prompts(source: str) -> Iterator[str]:
    """The `prompt` of each row of a source as of `load_judgements`, one by one.

    Raises:
        InputError: it cannot be read, or a row has none that is a text (names the line).
    """
    for place, number, row in _rows(source, False):
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
    for place, number, row in _rows(source, False):
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
        InputError: it cannot be read.
    """
    rows = (row.get(column) for _, _, row in _rows(source, False) if isinstance(row, Mapping))
    return {cell for cell in rows if _is_text(cell)}


def load_scorable(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A prompt and its texts of each row of a source as of `load_judgements`, one by one: of pairs
    `chosen` and `rejected`, in all forms of `preference.data.messages`; else the `response` (or
    `completion`).

    Raises:
        InputError: it cannot be read, or a row is neither (names the line).
    """
    for place, number, row in _rows(source, False):
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
        columns = {name: name for name in ("prompt", "chosen", "rejected")}
        prompt, chosen, rejected = exchange(row, columns, prompted)
        return prompt, {"chosen": chosen, "rejected": rejected}
    name = "response" if "response" in row else "completion"
    if not prompted or row.get(name) is None:
        raise BadRow("neither `prompt` and `response`, nor `chosen` and `rejected`")
    return prompt_cell(row["prompt"], "prompt"), {"response": response_cell(row[name], name)}


def load_demonstrations(source: str) -> Iterator[tuple[str, str]]:
    """A prompt and how it should be answered, of each row of a source as of `load_judgements`.

    A row has `prompt` and `response` (or `completion`) that are text, or `messages` as chats are
    written down, the last of them the assistant's. What stands before it is the prompt, as in
    `preference.data.messages`.

    Raises:
        InputError: it cannot be read, or a row is none of these or has nothing to learn (names the
            line).
    """
    for place, number, row in _rows(source, False):
        found = _demonstration(row) if isinstance(row, Mapping) else None
        if found is None or not all(_is_text(text) and text.strip() for text in found):
            raise InputError(
                f"{place}: line {number} needs a `prompt` and a `response` (or `completion`) that "
                "are text, or `messages` of which the last is the assistant's"
            )
        yield found


def _demonstration(row: Mapping[str, object]) -> tuple[Any, Any] | None:
    """Prompt and answer of a row, whatever they are; None if it has none."""
    if "messages" not in row:
        return row.get("prompt"), row.get("response", row.get("completion"))
    said = row["messages"]
    if not isinstance(said, list) or len(said) < 2:
        return None
    if not all(isinstance(each, Mapping) and _is_text(each.get("content")) for each in said):
        return None
    *before, last = said
    if last.get("role") != "assistant":
        return None
    try:
        return prompt_cell(before, "messages"), last["content"]
    except BadRow:
        return None


def columns_of(source: str, rows: int = 100) -> list[str]:
    """Names of the columns in the first rows of a source as of `load_judgements`.

    Raises:
        InputError: it cannot be read.
    """
    first = (row for _, _, row in islice(_rows(source, False), rows) if isinstance(row, Mapping))
    return list(dict.fromkeys(str(name) for row in first for name in row))


def _is_text(cell: object) -> TypeGuard[str]:
    """Whether a cell holds valid Unicode."""
    try:
        return isinstance(cell, str) and cell.encode() is not None
    except UnicodeEncodeError:
        return False


def check_isolated(path: Path) -> None:
    """InputError for a file in which one row's bytes could reach others'."""
    reasons = {
        ".csv": "in CSV one open quote swallows the rows of others",
        ".json": "in a JSON array one broken character takes away the rows of others",
    }
    if reason := reasons.get(_kind(path.name) or ""):
        raise InputError(
            f"{path}: {reason}, so a node does not read it; write the rows as .jsonl or .parquet"
        )


def parse_columns(option: str) -> dict[str, str]:
    """Renamed columns from `field=column,field=column`; empty for the names as they are.

    Raises InputError for anything else (an unknown field is refused when the source is read).
    """
    pairs = [part.partition("=") for part in option.split(",") if part.strip()]
    for field, equals, column in pairs:
        if not (field.strip() and equals and column.strip()):
            raise InputError(f"--columns {option!r}: write field=column, as in user_id=annotator")
    columns = {field.strip(): column.strip() for field, _, column in pairs}
    if len(columns) < len(pairs):
        raise InputError(f"--columns {option!r}: a field is named twice")
    return columns


def _rows(source: str, isolate: bool) -> Iterator[Placed]:
    if not source.strip():
        raise InputError("no source of judgements is named")
    named = parse_source(source)
    path = Path(os.path.expanduser(named.name))  # noqa: PTH111 (a ~ of nobody stays what it is)
    if os.path.isdir(path):  # noqa: PTH112 (says no where it cannot look, whatever the reason)
        return _isolated_folder(path, named) if isolate else _folder(path, named)
    if os.path.lexists(path):
        if named != Named(named.name):
            raise InputError(f"{source}: a single file has no splits: name it without the #")
        if isolate:
            check_isolated(path)
        return _file(path)
    function = _FUNCTION.fullmatch(source)
    if function:
        return _function(source, *function.groups())
    if looks_like_path(named.name) or not is_hub_name(named.name):
        raise InputError(f"{source}: no such file or folder")
    return hub_rows(named)


def _kind(path: str) -> str | None:
    name = path.lower().removesuffix(".gz")
    return next((suffix for suffix in _READERS if name.endswith(suffix)), None)


def _files(folder: Path) -> list[Path]:
    """Of known kinds, in order; also those whose reading will say why they cannot be.

    What is named `.json` may be about the rows beside it, and is read only where it is alone.
    """
    try:
        named = [file for file in folder.iterdir() if _kind(file.name)]
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror or error}") from error
    files = sorted(file for file in named if not file.name.startswith(".") and _is_file(file))
    rows = [file for file in files if _kind(file.name) != ".json"]
    return rows or [file for file in files if file.name not in _ABOUT_ROWS]


def _is_file(path: Path) -> bool:
    """Whether this is a file, or a link that leads nowhere: what ought to be there is missing."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _folder(path: Path, named: Named) -> Iterator[Placed]:
    found = _files(path)
    files = files_of(path, named, found)
    files = found if files is None else files
    if not files:
        raise InputError(f"{path}: the folder holds no {_known_kinds()} file")
    for file in files:
        yield from _file(file)


def _isolated_folder(path: Path, named: Named) -> Iterator[Placed]:
    """As ``_folder``, where files are different people's: one that cannot be read is theirs alone,
    a folder may be empty, and no split is concluded from what is there."""
    found = _files(path)
    files = files_of(path, named, found) if named.split or named.config else None
    for file in found if files is None else files:
        try:
            check_isolated(file)
            yield from _file(file)
        except InputError as error:
            yield str(file), 1, BadRow(str(error).removeprefix(f"{file}: "))


def _file(path: Path) -> Iterator[Placed]:
    kind = _kind(path.name)
    if kind is None:
        raise InputError(f"{path}: not a kind of file that can be read; known are {_known_kinds()}")
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as stream:
            for number, row in _READERS[kind](stream):
                yield str(path), number, row
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
    except Exception as error:
        if kind not in (".parquet", ".arrow"):
            raise
        # Of damaged bytes pyarrow raises errors of many types, some of them not its own.
        name = kind[1:].capitalize()
        raise InputError(f"{path}: not readable as {name}: {first_line(error)}") from error


def _known_kinds() -> str:
    return ", ".join(_READERS) + " (each also .gz)"


def _jsonl(stream: IO[bytes]) -> Iterator[tuple[int, Mapping[str, object] | BadRow]]:
    for number, line in enumerate(_lines(stream), start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        if len(line) > MOST_LINE:
            yield number, BadRow(f"a line of more than {MOST_LINE} bytes")
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


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines; of one that is too long only so much as shows that it is."""
    while line := stream.readline(MOST_LINE + 1):
        rest = line
        while len(rest) > MOST_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(MOST_LINE + 1)
        yield line


class _NoRows(ValueError):
    """A JSON file that holds neither an array nor an object on each line."""


def _json(stream: IO[bytes]) -> Iterator[tuple[int, Mapping[str, object] | BadRow]]:
    """An array of rows, which is held as a whole, or lines as in JSONL."""
    first = stream.read(1)
    while first.isspace() or first in (b"\xef", b"\xbb", b"\xbf"):
        first = stream.read(1)
    stream.seek(0)
    if first != b"[":
        yield from _jsonl(stream)
        return
    try:
        rows = json.loads(stream.read().removeprefix(b"\xef\xbb\xbf").decode())
    except (ValueError, RecursionError) as error:
        raise _NoRows(first_line(error)) from error
    yield from enumerate(rows, start=1)


def _csv(stream: IO[bytes]) -> Iterator[tuple[int, Mapping[str, object] | BadRow]]:
    # Undecodable bytes become lone surrogates, which are refused with the row they stand in.
    lines = (line.decode(errors="surrogateescape") for line in stream)
    reader = csv.reader(lines, strict=True)
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


def _parquet(stream: IO[bytes]) -> Iterator[tuple[int, Mapping[str, object]]]:
    import pyarrow.parquet

    return _batches(pyarrow.parquet.ParquetFile(stream).iter_batches(batch_size=1024))


def _arrow(stream: IO[bytes]) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The file or the stream format, which `datasets` writes."""
    import pyarrow

    begins = stream.read(6)
    stream.seek(0)
    if begins == b"ARROW1":
        file = pyarrow.ipc.open_file(stream)
        return _batches(file.get_batch(at) for at in range(file.num_record_batches))
    return _batches(iter(pyarrow.ipc.open_stream(stream)))


def _batches(
    batches: Iterable[pyarrow.RecordBatch],
) -> Iterator[tuple[int, Mapping[str, object]]]:
    number = 0
    for batch in batches:
        try:
            rows = batch.to_pylist()
        except Exception:  # of some cell
            columns = list(zip(batch.schema.names, batch.columns, strict=True))
            rows = [
                {name: _cell(column[at]) for name, column in columns}
                for at in range(batch.num_rows)
            ]
        for row in rows:
            number += 1
            yield number, row


def _cell(cell: pyarrow.Scalar) -> object:
    """What a cell holds; of text that is none, bytes, which no field takes."""
    try:
        return cell.as_py()
    except Exception:  # a cell may hold anything
        return b""


_READERS = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".json": _json,
}


def _function(source: str, module_name: str, function_name: str) -> Iterator[Placed]:
    # a console script does not look in the current folder by itself
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise InputError(f"{source}: cannot be imported: {first_line(error)}") from error
    except AttributeError as error:
        raise InputError(f"{source}: {module_name} has no {function_name!r}") from error
    if not callable(function):
        raise InputError(f"{source}: not a function but a {type(function).__name__}")
    try:
        rows = function()
        if not isinstance(rows, Iterable) or isinstance(rows, (str, Mapping)):
            raise TypeError(f"expected an iterable of rows, found {type(rows).__name__}")
        for number, row in enumerate(rows, start=1):
            yield source, number, row
    except Exception as error:
        raise InputError(
            f"{source}: failed: {type(error).__name__}: {first_line(error)}"
        ) from error


# What a run learns: a reward from judgements, or a language model from texts.
#
# - `reward`: a number for a prompt and a response, from judgements;
# - `text`: the next token of users' own texts (Charles et al. 2024);
# - `sft`: the next token of the responses in judgements, given the prompt (supervised fine-tuning).
#
# Each reads rows of its own kind.

#: What users have, grouped by user.
Data = Judgements | UserTexts


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
    read = UserTexts if task == "text" else Judgements
    rows = _rows(source, on_bad_rows == "isolate")
    return read.from_placed_rows(
        rows,
        columns=parse_columns(columns),
        on_bad_rows=on_bad_rows,
        source=source,
        schema=schema,
    )
