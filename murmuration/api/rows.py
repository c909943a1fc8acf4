"""Judgements that are in memory, as a file that a run reads like any other.

Rows are written to the folder of the run, into ``private/``, so that whatever holds of a file holds
of them: every check and its line number, the isolation of users from each other, and that a run is
resumed on the same rows only.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.preference.data.in_memory import Source, naming_rows, row_lines
from murmuration.privacy.durable_files import replace_file
from murmuration.strategies.settings.data import row_fields


def locate(source: Source, name: str, folder: Path) -> str:
    """The path of a source: its own, or one in a folder for rows in memory."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(folder.absolute() / "private" / f"{name}.jsonl")


def with_columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a config has them, with ``columns`` (from a mapping, or from ``user_column``)
    as text.

    Raises:
        InputError: they name no columns.
    """
    from murmuration.preference.data.columns import write_columns

    result = dict(settings)
    columns, user_column = result.get("columns"), result.pop("user_column", None)
    if columns is not None or user_column is not None:
        result["columns"] = write_columns(columns, user_column)
    return result


def stated_rows(rows: Mapping[str, Any], *without: str) -> tuple[str, dict[str, Any]]:
    """The columns as a config has them, and the other stated properties of rows (None: not stated).

    Raises:
        InputError: they name no columns.
        TypeError: a keyword is not a property of rows (``row_fields``).
    """
    from murmuration.preference.data.columns import write_columns

    given = {name: value for name, value in rows.items() if value is not None}
    columns = write_columns(given.pop("columns", None), given.pop("user_column", None))
    if unknown := given.keys() - {field.name for field in row_fields(*without)}:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    return columns, given


@contextmanager
def rows_written(
    sources: Mapping[str, Source], folder: Path, *, again: bool
) -> Iterator[Mapping[str, str]]:
    """Write what is in memory of the sources into ``private/`` of a folder, a JSON object a line.

    Errors about it name the argument and the row. What was written goes again if nothing was begun
    there until the end.

    Args:
        sources: by the name of the setting; those that are a path or a name stay where they are.
        folder: that of a run, or of several.
        again: whether they are continued: rows that are there must be the same.

    Yields:
        The name of each that was written, by its path, as ``with_rows`` takes them.

    Raises:
        InputError: no rows, or others than before, or they cannot be written.
    """
    paths = {
        locate(source, name, folder): name
        for name, source in sources.items()
        if not isinstance(source, str | os.PathLike)
    }
    with naming_rows(paths):
        try:
            for path, name in paths.items():
                _write(Path(path), row_lines(sources[name], name), name, again)
            yield paths
        finally:
            if not any((folder / begun).exists() for begun in ("config.json", "runs")):
                for path in paths:
                    Path(path).unlink(missing_ok=True)
                with suppress(OSError):
                    (folder / "private").rmdir()
                    folder.rmdir()


def _write(path: Path, lines: Iterable[bytes], name: str, again: bool) -> None:
    with disk_errors_as(f"{name}: {path} cannot be written"):
        if again:
            _check_same(path, lines, name)
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, map(memoryview, lines), mode=0o600)


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
