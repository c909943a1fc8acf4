"""Judgements and texts from files, folders, functions and dataset hubs.

`preference.data.sources` says which files a source names, `preference.data.files.reading` reads
their rows one by one, and these become judgements (`preference.data.judgements`) or texts
(`preference.data.texts`): only these are held.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from murmuration.preference.data.cells import text_cell
from murmuration.preference.data.columns import parse_columns, top_of
from murmuration.preference.data.conversations import (
    exchange,
    prompt_cell,
    rated_exchange,
    response_cell,
    shared_words,
)
from murmuration.preference.data.errors import BadRow, InputError, RowsError
from murmuration.preference.data.files.progress import counted_aloud
from murmuration.preference.data.files.reading import KNOWN, source_rows
from murmuration.preference.data.formats.format import Format, WholeSource
from murmuration.preference.data.formats.reading import Formatted
from murmuration.preference.data.formats.registry import format_named
from murmuration.preference.data.in_memory import Source, located_rows
from murmuration.preference.data.judgements import Judgements, OnBadRows
from murmuration.preference.data.rows import cells_of
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.sources import Placed
from murmuration.preference.data.texts import UserTexts

#: What users have, grouped by user.
Data = Judgements | UserTexts
_Read = TypeVar("_Read")


def load_judgements(
    source: str,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_rows: OnBadRows = "refuse",
    schema: Schema = PAIRS,
) -> Judgements:
    """Judgements from a source, grouped by user.

    Args:
        source: a `.jsonl`, `.csv`, `.parquet`, `.arrow` or `.json` file (an array, what pandas'
            `to_json` writes by default, or lines), each also with `.gz`; a folder of such files, or
            one that `datasets` saved; `package.module:function`, called without arguments, that
            gives an iterable of mappings; or the name of a data set on the Hugging Face hub. Of the
            last and of folders a split and a configuration may be named
            (`preference.data.sources`). What exists here as a path is a path.
        columns: field → column, for the fields of `preference.data.columns.FIELDS`.
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
    """Read judgements to evaluate a model on, from a source or from rows in memory.

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
    rows = counted_aloud(rows, "reading rows")
    return read.from_placed_rows(
        rows, columns=named, on_bad_rows=on_bad_rows, source=source, schema=schema
    )


def load_prompts(source: str) -> Iterator[str]:
    """The `prompt` of each row of a source as of `load_judgements`, one by one.

    Raises:
        InputError: it cannot be read, or a row has none that is a text (names the line).
    """
    return _each(source, _prompt, " has no prompt")


def _each(
    source: str, read: Callable[[Mapping[str, object]], _Read], lacks: str = ""
) -> Iterator[_Read]:
    """Yield ``read(row)`` for each row; InputError, with its line, for a row that cannot be
    read.
    """
    for place, number, row in source_rows(source, False):
        try:
            yield read(cells_of(row))
        except BadRow as reason:
            raise InputError(f"{place}: line {number}{lacks}: {reason}") from None


def _prompt(row: Mapping[str, object]) -> str:
    return prompt_cell(row.get("prompt"), "prompt")


def load_responses(source: str) -> Iterator[tuple[str, str]]:
    """The `prompt` and `response` of each row of a source as of `load_judgements`, one by one.

    A response may be empty: a model can have said nothing.

    Raises:
        InputError: it cannot be read, or a row has not both as texts (names the line).
    """
    return _each(source, _answered, " needs a `prompt` and a `response` that are text")


def _answered(row: Mapping[str, object]) -> tuple[str, str]:
    response = row.get("response")
    return _prompt(row), "" if response == "" else text_cell(response, "response")


def texts_in(source: str, column: str) -> set[str]:
    """The distinct texts in a column of a source as of `load_judgements`; a row may lack the
    column.

    Raises:
        InputError: the source cannot be read, or the column holds something other than text.
    """
    rows = source_rows(source, False, (column,))
    cells = (row.get(column) for _, _, row in rows if isinstance(row, Mapping))
    texts = set()
    for cell in cells:
        if not (cell is None or isinstance(cell, str)):
            raise RowsError(f"{source}: {column} is no text in a row")
        texts.add(cell or "")
    return texts - {""}


def load_scorable(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A prompt and its texts of each row of a source as of `load_judgements`, one by one: of pairs
    `chosen` and `rejected`, in all forms of `preference.data.conversations`; else the `response`
    (or `completion`).

    Raises:
        InputError: it cannot be read, or a row is neither (names the line).
    """
    return _each(source, _scorable)


def _scorable(row: Mapping[str, object]) -> tuple[str, dict[str, str]]:
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
    return _prompt(row), {"response": response_cell(row[name], name)}


def load_demonstrations(source: str) -> Iterator[tuple[str, str]]:
    """A prompt and how it should be answered, of each row of a source as of `load_judgements`.

    A row has `prompt` and `response` (or `completion`), or `messages` as chats are written down,
    the last of them the assistant's, each in all forms of `preference.data.conversations`. What
    stands before the last message is the prompt.

    Raises:
        InputError: it cannot be read, or a row is none of these or has nothing to learn (names the
            line).
    """
    lacks = (
        " needs a `prompt` and a `response` (or `completion`) that are text, or `messages` of "
        "which the last is the assistant's"
    )
    return _each(source, _demonstration, lacks)


def _demonstration(row: Mapping[str, object]) -> tuple[str, str]:
    if "messages" in row:
        return rated_exchange(row, "messages", None)
    answer = "response" if "response" in row else "completion"
    return rated_exchange({"prompt": None, answer: None, **row}, answer, "prompt")


def placed_rows(
    source: str, columns: Mapping[str, str], format: str = "", one_user_per_row: bool = False
) -> Iterator[Placed]:
    """Yield the rows of a source as of `load_judgements`, with the file and line of each; rows of
    another format are converted.

    Raises:
        InputError: it cannot be read, or is not of that format.
    """
    if not format:
        return source_rows(source, False, None)
    declared = Schema(format=format, one_user_per_row=one_user_per_row)
    formatted = _formatted(source, columns, declared)
    return formatted.rows(source_rows(source, False, formatted.wanted))


def public_texts(source: str, columns: str, format: str) -> list[object]:
    """The public texts of a source whose format has them, such as Polis, in order.

    Raises:
        InputError: it cannot be read, or has none.
    """
    formatted = _formatted(source, parse_columns(columns), Schema(format=format))
    return formatted.public_texts(source_rows(source, False, formatted.wanted))


def columns_of(source: str) -> list[str]:
    """Names of the columns in the first hundred good rows of a source as of `load_judgements`.

    Raises:
        InputError: it cannot be read.
    """
    first = (row for _, _, row in source_rows(source, False, ()) if isinstance(row, Mapping))
    return list(dict.fromkeys(str(name) for row in islice(first, 100) for name in row))


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
        wanted = KNOWN.union(columns.values(), map(top_of, columns.values()))
        return source_rows(source, isolate, wanted, columns.get("user_id", "")), columns, schema
    form = readable_format(source, schema.format)
    if isolate and not form.isolates:
        raise InputError(
            f"--format {form.name} does not keep people's rows apart, so a node does not read it; "
            "write the rows in our own form, as .jsonl or .parquet"
        )
    formatted = _formatted(source, columns, schema)
    return (
        formatted.rows(source_rows(source, isolate, formatted.wanted, columns.get("user_id", ""))),
        {},
        replace(schema, scale=schema.scale or form.scale),
    )


def readable_format(source: str, name: str) -> Format:
    """The format of this name, which must read each user's rows by themselves.

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
    """Make the reader of a source by the declared format.

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
    )
