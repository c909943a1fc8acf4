"""Rows of bytes that were computed before, on disk: tokens, likelihoods, embeddings.

A row is named by a digest of all that it was computed from, and lies in an SQLite file that is
named by a digest of what all rows of the file depend on: a tokenizer, a network. So it has the same
bits whether it is read or computed, whatever else the folder holds. The folder holds no text, but
rows reveal private texts like the texts themselves: only its owner may open it, and must delete it
together with the texts.

SQLite lets several processes write at a time, and undoes what a killed one left half written. A row
is believed only if its checksum is right; a file with one that is not is deleted. A file that
cannot be read or written stops nothing: rows are computed again, and the log says so.
"""

import hashlib
import math
import os
import sqlite3
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from murmuration.preference.escaping import get_logger
from murmuration.privacy.disclosure import OperatorOnly

FOLDER = "MURMURATION_CACHE"
_AT_A_TIME, _WRITE_EACH = 1024, 32 * 2**20  # rows and bytes: with more they are written
_IN_A_QUERY = 500  # names: old versions of SQLite take 999
_SECONDS = 60.0  # that another process may write
_TABLE = (
    "CREATE TABLE IF NOT EXISTS rows (name BLOB PRIMARY KEY, row BLOB, digest BLOB) WITHOUT ROWID"
)
_log = get_logger("murmuration")


def named_folder() -> Path | None:
    """The folder that the environment names, or None."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


def user_folder() -> Path | None:
    """The named folder, or else the user's own; None if the variable is empty, or the user has no
    such folder.
    """
    if FOLDER in os.environ:
        return named_folder()
    own = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(own).expanduser()
    except RuntimeError:
        return None
    return folder / "murmuration" if folder.is_absolute() else None


def key_of(form: str, terms: Iterable[str]) -> str:
    """SHA-256 in hex of all that a file or a row depends on, and of its format."""
    digest = hashlib.sha256(form.encode())
    for term in terms:
        written = term.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(written)))
        digest.update(written)
    return digest.hexdigest()


class RowCache:
    """Rows of one kind by their names.

    Args:
        folder: where the file lies; None: nothing is kept.
        key: SHA-256 in hex of all that rows depend on beside their names.
        kind: what rows are; the file's name ends in it.
        max_bytes: of the file; what would be more is not written.
    """

    def __init__(
        self, folder: Path | None, key: str, kind: str, max_bytes: int | None = None
    ) -> None:
        self._path = None if folder is None else folder / f"{key}.{kind}"
        self._key, self._kind, self._max_bytes = key, kind, max_bytes
        self._new: dict[bytes, bytes] = {}
        self._new_bytes = 0
        self._writable = True

    @property
    def is_kept(self) -> bool:
        """True if rows are cached on disk."""
        return self._path is not None

    def find(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The cached rows of these names."""
        new = {name: self._new[name] for name in names if name in self._new}
        if self._path is None:
            return new
        rows = {}
        try:
            if not self._path.exists() or not self._path.stat().st_size:  # not begun yet
                return new
            with self._opened() as file:
                for at in range(0, len(names), _IN_A_QUERY):
                    some = names[at : at + _IN_A_QUERY]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT name, row, digest FROM rows WHERE name IN ({marks})"
                    for name, row, digest in file.execute(query, some):
                        is_whole = type(row) is type(name) is bytes
                        if not is_whole or digest != self._digest(name, row):
                            raise sqlite3.DatabaseError("it is damaged")
                        rows[name] = row
        except (OSError, sqlite3.Error) as error:
            why = f"{self._path} cannot be used ({error}): {self._kind} are computed again"
            _log.warning("%s", OperatorOnly(why))
            damaged = isinstance(error, sqlite3.DatabaseError)
            if damaged and not isinstance(error, sqlite3.OperationalError):  # a lock, or no rights
                with suppress(OSError):
                    self._path.unlink()
            return new
        return rows | new

    def add(self, rows: Mapping[bytes, bytes]) -> None:
        """Keep rows that were computed; they are written now and then."""
        if self.is_kept:
            self._new |= rows
            self._new_bytes += sum(map(len, rows.values()))
        if len(self._new) >= _AT_A_TIME or self._new_bytes >= _WRITE_EACH:
            self.write()

    def write(self) -> None:
        """Write what is new. What cannot be written is known to this process alone."""
        if self._path is None or not self._new or not self._writable:
            return
        try:
            if self.room() >= 0.0:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
                lines = [(name, row, self._digest(name, row)) for name, row in self._new.items()]
                with self._opened() as file, file:
                    file.execute(_TABLE)
                    file.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?)", lines)
            self._new, self._new_bytes = {}, 0
        except (OSError, sqlite3.Error) as error:
            self._writable = False
            said = "%s=%s: %s cannot be kept there (%s)"
            _log.warning(said, FOLDER, self._path.parent, self._kind, error)

    def room(self) -> float:
        """The number of bytes of rows that still fit."""
        if self._path is None or not self._writable:
            return 0.0
        if self._max_bytes is None:
            return math.inf
        there = self._path.stat().st_size if self._path.exists() else 0
        return self._max_bytes - there - self._new_bytes

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file anew each time, since a connection is for one thread and one process.

        Raises:
            PermissionError: it is another account's, or others may use it: who can write it could
                put rows there, and who can read it rows that tell of texts.
        """
        assert self._path is not None
        about = self._path.lstat()
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise PermissionError("it is not for this account alone")
        with closing(sqlite3.connect(self._path, timeout=_SECONDS)) as file:
            yield file

    def _digest(self, name: bytes, row: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self._key.encode(), name, row])).digest()
