"""Rows in memory, as lines of JSON, so that they are read exactly like a file: with every check and
line number, and no row deciding how another is read.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from murmuration.preference.data.errors import InputError, disk_errors_as, reword
from murmuration.preference.data.files.columnar_child import json_value


class DataFrame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """The names of the columns."""
        ...


Rows = Iterable[Mapping[str, object]] | DataFrame
#: Data: a path, the name of a data set on the hub, or rows.
Source = str | os.PathLike[str] | Rows | Callable[[], Rows]


@contextmanager
def located_rows(source: Source) -> Iterator[str]:
    """Yield the path of a source. Rows in memory are written to a private file for the duration,
    and an error about one names the row's number instead of that file.

    Raises:
        InputError: it has no rows, or they cannot be written.
    """
    if isinstance(source, str | os.PathLike):
        yield os.fspath(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        with disk_errors_as(f"data: {path} cannot be written"), path.open("wb") as file:
            file.writelines(row_lines(source, "data"))
        with naming_rows({str(path): "data"}):
            yield str(path)


@contextmanager
def naming_rows(names: Mapping[str, str]) -> Iterator[None]:
    """Let errors name an argument and a row of it, in the place of a file and a line.

    Args:
        names: by the path of each file that was written of an argument, the argument.
    """
    try:
        yield
    except Exception as error:
        reword(error, lambda text: with_rows(text, names))
        raise


def with_rows(text: str, names: Mapping[str, str]) -> str:
    """The text with argument names and row numbers in the place of files and lines; as
    ``naming_rows``.
    """
    for path, name in names.items():
        text = re.sub(rf"{re.escape(path)}:(\d+)", rf"{name}, row \1", text)
        text = text.replace(path, name)
    return text


def row_lines(source: Source, name: str) -> Iterator[bytes]:
    """Yield the rows of a source in memory, as one JSON object per line.

    Args:
        source: what has rows.
        name: of the argument that it was given as, for errors.

    Raises:
        InputError: it has no rows.
    """
    for row in _rows(source, name):
        try:
            yield json.dumps(row, default=_plain).encode() + b"\n"
        except (TypeError, ValueError, RecursionError):  # the reader refuses it, as a bad row
            yield b"null\n"


def _rows(source: Any, name: str) -> Iterable[object]:
    """The rows of a source; each is a mapping unless it is bad."""
    if callable(source):
        source = source()
    if hasattr(source, "iter_rows"):  # polars
        return source.iter_rows(named=True)
    if hasattr(source, "notna"):  # pandas, whose missing values are of many kinds
        return source.astype(object).where(source.notna(), None).to_dict("records")
    if isinstance(source, Iterable) and not isinstance(source, Mapping | str | bytes):
        return source
    raise InputError(
        f"{name} must be a path, the name of a data set, a data frame, or rows (mappings from "
        f"column to value); got {type(source).__name__}"
        + (": choose one of its splits" if isinstance(source, Mapping) else "")
    )


def _plain(value: Any) -> object:
    if hasattr(value, "tolist") and getattr(value, "dtype", None) is not None:
        # Of a time in nanoseconds that would be a number.
        return json_value(value) if value.dtype.kind in "mM" else value.tolist()
    return dict(value) if isinstance(value, Mapping) else json_value(value)
