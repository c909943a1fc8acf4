"""Judgements that are in memory, as a file that a run reads like any other.

Rows are written to the folder of the run, into ``private/``, so that whatever holds of a file holds
of them: every check and its line number, the isolation of users from each other, and that a run is
resumed on the same rows only.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from murmuration.preference.data.rows import InputError
from murmuration.privacy.durable_files import replace_file


class DataFrame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any:
        """Return the names of the columns."""
        ...


Rows = Iterable[Mapping[str, object]] | DataFrame
#: What ``train`` takes as data: a path, the name of a data set on the hub, or rows.
Source = str | os.PathLike[str] | Rows | Callable[[], Rows]


def locate(source: Source, name: str, folder: Path) -> str:
    """Return the place of a source: its own, or in a folder, for rows that are in memory."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(folder.absolute() / "private" / f"{name}.jsonl")


@contextmanager
def located_rows(source: Source) -> Iterator[str]:
    """Return the place of a source; rows that are in memory are in a file until the end."""
    if isinstance(source, str | os.PathLike):
        yield os.fspath(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_rows({"data": source}, Path(folder), again=False)
        yield locate(source, "data", Path(folder))


def write_rows(sources: Mapping[str, Source], folder: Path, *, again: bool) -> None:
    """Write what is in memory of the sources into ``private/`` of a folder, a JSON object a line.

    Args:
        sources: by the name of the setting; those that are a path or a name stay where they are.
        folder: that of a run, or of several.
        again: whether they are continued: rows that are there must be the same.

    Raises:
        InputError: no rows, or others than before, or they cannot be written.
    """
    for name, source in sources.items():
        if isinstance(source, str | os.PathLike):
            continue
        path, lines = Path(locate(source, name, folder)), _lines(source, name)
        try:
            if again:
                _check_same(path, lines, name)
            else:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(path, map(memoryview, lines), mode=0o600)
        except OSError as error:
            raise InputError(f"{name}: {path} cannot be written: {error.strerror}") from None


def remove_rows(sources: Mapping[str, Source], folder: Path) -> None:
    """Remove what ``write_rows`` has written, and folders that are empty without it."""
    for name, source in sources.items():
        if not isinstance(source, str | os.PathLike):
            Path(locate(source, name, folder)).unlink(missing_ok=True)
            with suppress(OSError):
                (folder / "private").rmdir()
                folder.rmdir()


def _check_same(path: Path, lines: Iterable[bytes], name: str) -> None:
    former, given = hashlib.sha256(), hashlib.sha256()
    if path.exists():
        with path.open("rb") as file:
            former = hashlib.file_digest(file, "sha256")
    for line in lines:
        given.update(line)
    if not path.exists() or given.digest() != former.digest():
        raise InputError(
            f"{name}: these rows are not those that were begun with in {path.parents[1]}; go on "
            "with the same rows, or choose another folder"
        )


def _lines(source: Source, name: str) -> Iterator[bytes]:
    for row in _rows(source, name):
        try:
            yield json.dumps(row, default=_plain).encode() + b"\n"
        except (TypeError, ValueError, RecursionError):  # the reader refuses it, as a bad row
            yield b"null\n"


def _rows(source: Any, name: str) -> Iterable[object]:
    """Return the rows of what has rows: each a mapping, unless it is a bad one."""
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
    """Return a value of arrays and mappings as JSON has it.

    Of anything else JSON has nothing: what stands in its place is no text, number or truth value,
    so that a row which needs it is refused, as a row with another wrong value is.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return {"type": type(value).__name__}
