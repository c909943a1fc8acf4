"""Judgements and texts from files, folders, functions and dataset hubs.

A source becomes rows with the place they stand in, and these become judgements or texts
(`preference.data.judgements`, `preference.data.texts`), row by row: only the judgements themselves
are held. A folder is its files of known kinds in the order of their names; users may span files. Of
a folder at a node (``isolate``) only files that cannot be read are left out: where each user has a
file, a broken one is that user's zero.
"""

import importlib
import os
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

from murmuration.preference.data.cells import exchange, prompt_cell, response_cell
from murmuration.preference.data.errors import BadRow, InputError, first_line
from murmuration.preference.data.files import (
    Placed,
    check_isolated,
    kind_of,
    known_kinds,
    rows_of_files,
)
from murmuration.preference.data.files import Reader as Reader
from murmuration.preference.data.judgements import Judgements, OnBadRows
from murmuration.preference.data.rows import KNOWN_COLUMNS
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.sources import (
    Named,
    files_of,
    hub_rows,
    is_hub_name,
    looks_like_path,
    parse_source,
)
from murmuration.preference.data.texts import UserTexts

#: Columns that any field may be read from, besides those that are named.
_KNOWN = KNOWN_COLUMNS | {"text"}
#: What `datasets` writes beside the rows of a data set.
_ABOUT_ROWS = ("state.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json")
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
#: What users have, grouped by user.
Data = Judgements | UserTexts


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
            and a configuration may be named (`preference.data.sources`). What exists here as a
            path is a path.
        columns: field → column, for the fields of `preference.data.rows.FIELDS`.
        on_bad_rows: `refuse` the whole source at its first bad row, or `skip`: leave bad rows out,
            as the result's `set_aside` says; `isolate`, for nodes, does so even if nothing is left,
            leaves out files of a folder that cannot be read, and reads no CSV and no `.json`.
        schema: what the rows are declared to be; a row that is something else is bad.

    Raises:
        InputError: one line that names the file and line, or the source, and what is wrong.
    """
    rows = _rows(source, on_bad_rows == "isolate", _KNOWN.union(map(str, (columns or {}).values())))
    return Judgements.from_placed_rows(
        rows, columns=columns, on_bad_rows=on_bad_rows, source=source, schema=schema
    )


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
    read, named = UserTexts if task == "text" else Judgements, parse_columns(columns)
    rows = _rows(source, on_bad_rows == "isolate", _KNOWN.union(named.values()))
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
            raise InputError(f"{source}: {column} is no text in a row: {cell!r}")
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
        return prompt, {"chosen": chosen, "rejected": rejected}
    name = "response" if "response" in row else "completion"
    if not prompted or row.get(name) is None:
        raise BadRow("neither `prompt` and `response`, nor `chosen` and `rejected`")
    return prompt_cell(row["prompt"], "prompt"), {"response": response_cell(row[name], name)}


def load_demonstrations(source: str) -> Iterator[tuple[str, str]]:
    """A prompt and how it should be answered, of each row of a source as of `load_judgements`.

    A row has `prompt` and `response` (or `completion`) that are text, or `messages` as chats are
    written down, the last of them the assistant's. What stands before it is the prompt, as in
    `preference.data.cells`.

    Raises:
        InputError: it cannot be read, or a row is none of these or has nothing to learn (names the
            line).
    """
    for place, number, row in _rows(source, False, _KNOWN):
        result = _demonstration(row) if isinstance(row, Mapping) else None
        if result is None or not all(_is_text(text) and text.strip() for text in result):
            raise InputError(
                f"{place}: line {number} needs a `prompt` and a `response` (or `completion`) that "
                "are text, or `messages` of which the last is the assistant's"
            )
        yield result


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
    first = (
        row for _, _, row in islice(_rows(source, False, ()), rows) if isinstance(row, Mapping)
    )
    return list(dict.fromkeys(str(name) for row in first for name in row))


def _is_text(cell: object) -> TypeGuard[str]:
    """Return whether a cell holds valid Unicode."""
    try:
        return isinstance(cell, str) and cell.encode() is not None
    except UnicodeEncodeError:
        return False


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


def _rows(source: str, isolate: bool, wanted: Collection[str]) -> Iterator[Placed]:
    """Rows of a source; of Parquet and Arrow what is in the ``wanted`` columns."""
    if not source.strip():
        raise InputError("no source of judgements is named")
    named = parse_source(source)
    path = Path(os.path.expanduser(named.name))  # noqa: PTH111 (a ~ of nobody stays what it is)
    if os.path.isdir(path):  # noqa: PTH112 (says no where it cannot look, whatever the reason)
        return rows_of_files(_files_of_folder(path, named, isolate), wanted, apart=isolate)
    if os.path.lexists(path):
        if named != Named(named.name):
            raise InputError(f"{source}: a single file has no splits: name it without the #")
        if isolate:
            check_isolated(path)
        return rows_of_files([path], wanted)
    if function := _FUNCTION.fullmatch(source):
        return _function(source, *function.groups())
    if looks_like_path(named.name) or not is_hub_name(named.name):
        raise InputError(f"{source}: no such file or folder")
    if isolate:
        raise InputError(f"{source}: no such file or folder, and a node asks no hub for its data")
    return hub_rows(named)


def _files_of_folder(path: Path, named: Named, isolate: bool) -> list[Path]:
    """Return which files of a folder are meant. At a node (``isolate``) it may be empty, and no
    split is concluded from what is there."""
    files = _files(path)
    if isolate and not (named.split or named.config):
        return files
    of_data_set = files_of(path, named, files)
    files = files if of_data_set is None else of_data_set
    if not (files or isolate):
        raise InputError(f"{path}: the folder holds no {known_kinds()} file")
    return files


def _files(folder: Path) -> list[Path]:
    """Of known kinds, in order; also those whose reading will say why they cannot be.

    What is named `.json` may be about the rows beside it, and is read only where it is alone.
    """
    try:
        named = [file for file in folder.iterdir() if kind_of(file.name)]
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror or error}") from error
    files = sorted(file for file in named if not file.name.startswith(".") and _is_file(file))
    rows = [file for file in files if kind_of(file.name) != ".json"]
    return rows or [file for file in files if file.name not in _ABOUT_ROWS]


def _is_file(path: Path) -> bool:
    """Return whether this is a file, or a link that leads nowhere: what ought to be there is
    missing."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


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
