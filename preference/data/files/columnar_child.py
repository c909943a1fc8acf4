"""The program that decodes Parquet and Arrow files: ``python -I columnar_child.py SOCKET PATH…``.

A few kilobytes of such a file can stand for gigabytes, in the decoder itself, which knows no limit.
So it works in this process, which has one, and only the columns that are wanted are decoded. What
comes out is JSON, which the parent reads (`preference.data.files.columnar`).
Nothing but the standard library and pyarrow is imported: the paths where that lies are named.

A request is JSON that comes with a file's descriptor. The answer is lines of JSON: the names of all
columns; each row, a list of the wanted columns' cells, null where that is too long, or whose it is
where it cannot be read; and how it ended.

Rows, bytes and memory are limited for each row group of Parquet by itself. Where one is more than
it may be, or damaged, and all of its rows are one user's, these are that user's bad rows, and the
others' groups are read; where it is several users', the file is not read.
"""

import gzip
import io
import json
import resource
import socket
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import IO, Any
from uuid import UUID

#: Names the type of a value that stands in no JSON.
NOT_OF_JSON = "a value of type"
_BATCH = 256  # rows that are decoded at a time
_MOST_LOST = 1_000  # rows of a group that cannot be read, of which its user is told
Cells = Iterator[list[Any] | None]
Lines = Iterator[str | None]  # of JSON, a row each


class OverBudget(Exception):
    """A file that becomes more than it may."""


def answer(file: IO[bytes], request: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that answer a request about a file."""
    end, begun = {"end": "whole", "why": ""}, False
    try:
        if request["packed"]:
            with gzip.open(file) as stream:
                data = stream.read(request["bytes"] + 1)
            if len(data) > request["bytes"]:
                raise OverBudget
            file = io.BytesIO(data)
        names, rows = _READERS[request["kind"]](file, request)
        yield json.dumps({"columns": names})
        begun = True
        for row in rows:
            yield "null" if row is None else row
    except OverBudget:
        end = {"end": "budget", "why": ""}
    except MemoryError:  # pyarrow's own is one
        end = {"end": "memory", "why": ""}
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        end = {"end": "gzip", "why": _why(error)}
    except Exception as error:  # damaged bytes raise errors of many types
        end = {"end": "damaged", "why": _why(error)}
    if not begun:
        yield json.dumps({"columns": []})
    yield json.dumps(end)


def _why(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()[:500]


def _is_whole(value: Decimal) -> bool:
    return value.is_finite() and value.adjusted() < 20 and value == value.to_integral_value()


def json_value(value: object) -> object:
    """The JSON form of a value that JSON does not have.

    A UUID becomes its text and a whole Decimal its number. Anything else becomes an object with the
    name of its type, which no field takes: a row that needs it is refused like a row with any wrong
    value.
    """
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal) and _is_whole(value):
        return int(value)
    return {NOT_OF_JSON: type(value).__name__}


def _parquet(file: IO[bytes], request: dict[str, Any]) -> tuple[list[str], Lines]:
    import pyarrow.parquet

    parquet = pyarrow.parquet.ParquetFile(file)
    names = parquet.schema_arrow.names
    wanted = [name for name in names if _is_wanted(name, request)]

    def cells_of(group: int, columns: list[str]) -> Cells:
        batches = parquet.iter_batches(
            batch_size=_BATCH, row_groups=[group], columns=columns, use_threads=False
        )
        return _cells(batches, columns, request)

    def lines() -> Lines:
        for group in range(parquet.num_row_groups):
            count, given = parquet.metadata.row_group(group).num_rows, 0
            try:
                _check_rows(count, request)
                cells = cells_of(group, wanted) if wanted else ([] for _ in range(count))
                for line in _within(cells, request):
                    yield line
                    given += 1
            except Exception:  # damaged bytes raise errors of many types
                users = [name for name in wanted if name in request["users"]]
                if not users:
                    raise
                only = next(cells_of(group, users), None)
                if only is None or any(row != only for row in cells_of(group, users)):
                    raise
                user = dict(zip(users, only, strict=True))
                rest = json.dumps({"user": user}, ensure_ascii=False, default=json_value)
                yield from (rest for _ in range(max(1, min(count - given, _MOST_LOST))))

    return names, lines()


def _arrow(file: IO[bytes], request: dict[str, Any]) -> tuple[list[str], Lines]:
    """The file or the stream format, which `datasets` writes."""
    import pyarrow

    begins = file.read(6)

    def opened(**options: Any) -> Any:
        file.seek(0)
        chosen = pyarrow.ipc.IpcReadOptions(use_threads=False, **options)
        kind = pyarrow.ipc.open_file if begins == b"ARROW1" else pyarrow.ipc.open_stream
        return kind(file, options=chosen)

    names = opened().schema.names
    places = [at for at, name in enumerate(names) if _is_wanted(name, request)]
    wanted = [names[at] for at in places]
    reader = opened(included_fields=places) if places else opened(included_fields=[0])
    if begins == b"ARROW1":
        batches = (reader.get_batch(at) for at in range(reader.num_record_batches))
    else:
        batches = iter(reader)

    def lines() -> Lines:
        for batch in batches:
            _check_rows(batch.num_rows, request)
            parts = (batch.slice(at, _BATCH) for at in range(0, batch.num_rows, _BATCH))
            yield from _within(_cells(parts, wanted, request), request)

    return names, lines()


def _within(cells: Cells, request: dict[str, Any]) -> Lines:
    """Yield rows as lines; None for a row that is too long, at no other row's expense.

    Raises:
        OverBudget: together they are more than they may be.
    """
    total = 0
    for row in cells:
        line = None if row is None else json.dumps(row, ensure_ascii=False, default=json_value)
        if line is not None and len(line) > request["line"]:
            line = None
        total += len(line or "") + request["row"]
        if total > request["bytes"]:
            raise OverBudget
        yield line


def _is_wanted(name: str, request: dict[str, Any]) -> bool:
    return request["wanted"] is None or name in request["wanted"]


def _check_rows(rows: int, request: dict[str, Any]) -> None:
    if rows * request["row"] > request["bytes"]:
        raise OverBudget


def _cells(batches: Iterable[Any], wanted: list[str], request: dict[str, Any]) -> Cells:
    """The wanted cells of each row; None for a row that is too long."""
    for batch in batches:
        whole = batch.nbytes <= request["line"]
        for at in range(0, batch.num_rows, batch.num_rows if whole else 1):
            rows = batch if whole else batch.slice(at, 1)
            if rows.nbytes > request["line"]:
                yield None
                continue
            columns = [_column(rows.column(rows.schema.names.index(name))) for name in wanted]
            yield from map(list, zip(*columns, strict=True)) if wanted else ([],) * rows.num_rows


def _column(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except MemoryError:
        raise
    except Exception:  # of some cell
        return [_cell(cell) for cell in column]


def _cell(cell: Any) -> Any:
    """A cell's value; if its text cannot be decoded, bytes, which no field takes."""
    try:
        return cell.as_py()
    except MemoryError:
        raise
    except Exception:  # a cell may hold anything
        return b""


_READERS: dict[str, Callable[..., tuple[list[str], Lines]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def _limit(request: dict[str, Any]) -> None:
    """Limit what this process may take from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + request["seconds"]
    for kind, most in ((resource.RLIMIT_DATA, request["memory"]), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(
            kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )


def main(descriptor: str, *paths: str) -> None:
    """Answer requests until the parent closes the socket."""
    sys.path.extend(paths)
    import pyarrow.parquet  # noqa: F401  (before memory is limited)

    with socket.socket(fileno=int(descriptor)) as parent, parent.makefile("wb") as out:
        while True:
            asked, files, _, _ = socket.recv_fds(parent, 2**20, 1)
            if not files:
                return
            request = json.loads(asked)
            _limit(request)
            with open(files[0], "rb") as file:  # noqa: PTH123  (a descriptor)
                for line in answer(file, request):
                    out.write(line.encode(errors="backslashreplace") + b"\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
