"""Rows of numbers that were computed before, from a folder.

A row is known by a digest of all that it was computed from: of the texts, and in a file's name of
the network. So it has the same bits whether it is found or computed, whatever else the folder
holds. The folder holds no text; but who knows a text can see that it was there, and numbers tell of
what they were computed from: it is as private as the texts.

A file is digests, ascending, and rows behind a SHA-256 of them and of the network; it is written
whole, under a name that no other has, and never changed. So several processes need no lock, and
whoever is killed loses what was not written yet; what they leave half written `token_cache` deletes
in a later run. A file that is damaged is deleted, and never believed. Files are read, not mapped:
one that another process cuts would end this one. When there are many, a process puts what it has
read into one, and deletes those.

Legend: N rows.
"""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from murmuration.preference.escaping import get_logger
from murmuration.preference.language.token_cache import FOLDER, written_whole
from murmuration.privacy.disclosure import OperatorOnly

_NAME = np.dtype("S32")
_CHECK = hashlib.sha256().digest_size
_AT_A_TIME = 1024  # rows that are computed before they are written
_MANY = 16  # files
_log = get_logger("murmuration")

_Rows = tuple[np.ndarray, np.ndarray]  # names of rows, ascending, and these: N each


def name_of(digest: "hashlib._Hash") -> bytes:
    """Return what a row is known by."""
    return digest.hexdigest()[: _NAME.itemsize].encode()


class KeptRows:
    """What is known, by names.

    Args:
        folder: where it lies.
        key: SHA-256 in hex of all that rows depend on beside their names.
        what: the rows' name, which files end in.
        number: of which type a row's numbers are.
        width: how many numbers a row has; 0: it is one number, and no row of them.
        most: bytes; what would be more is not kept.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        what: str,
        number: str = "<f8",
        width: int = 0,
        most: int | None = None,
    ) -> None:
        self._folder, self._key, self._what, self._most = folder, key, what, most
        self._number = np.dtype(number)
        self._shape = (width,) if width else ()
        self._files: set[Path] = set()  # whose rows are among those below
        self._known: list[_Rows] = []
        self._new: dict[bytes, np.ndarray] = {}
        self._told = False

    def find(self, names: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Rows of these names, N of them, zeros where nothing is known; and where it is, (N,)."""
        name_N = np.asarray(names, _NAME)
        row_N = np.zeros((len(names), *self._shape), self._number)
        there_N = np.zeros(len(names), dtype=bool)
        for known_N, found_N in self._known:
            if len(known_N):
                at_N = np.searchsorted(known_N, name_N).clip(max=len(known_N) - 1)
                hit_N = known_N[at_N] == name_N
                row_N[hit_N] = found_N[at_N[hit_N]]
                there_N |= hit_N
        for place in np.flatnonzero(~there_N).tolist() if self._new else ():
            if (row := self._new.get(names[place])) is not None:
                row_N[place], there_N[place] = row, True
        return row_N, there_N

    def add(self, names: Sequence[bytes], rows: np.ndarray) -> None:
        """Keep rows that were computed, but for those with a NaN; write files now and then."""
        for name, row in zip(names, np.asarray(rows, self._number), strict=True):
            if not np.isnan(row).any():
                self._new[name] = row
        if len(self._new) >= _AT_A_TIME:
            self.write()

    def look(self) -> None:
        """Read files that were not there before."""
        for path in {*self._folder.glob(f"{self._key}.*.{self._what}")} - self._files:
            try:
                self._known.append(self._read(path.read_bytes()))
            except FileNotFoundError:
                continue  # another process has put it together with others
            except (OSError, ValueError) as error:
                why = f"{path} cannot be used ({error}): {self._what} are computed again"
                _log.warning("%s", OperatorOnly(why))
                if isinstance(error, ValueError):
                    with suppress(OSError):
                        path.unlink()
            self._files.add(path)

    def write(self) -> None:
        """A file of what is new; of everything, if there are many."""
        if not self._new:
            return
        parts, old = [_ascending([*self._new], np.stack([*self._new.values()]))], []
        self._new = {}
        if self._most is not None and self._bytes(*parts, *self._known) > self._most:
            return
        if len(self._files) >= _MANY:
            parts, self._known, old = [*parts, *self._known], [], [*self._files]
        name_N, row_N = _ascending(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self._known.append((name_N, row_N))
        body = name_N.tobytes() + row_N.tobytes()
        path = self._folder / f"{self._key}.{secrets.token_hex(8)}.{self._what}"
        try:
            with written_whole(path) as file:
                file.write_bytes(self._check(body) + body)
        except OSError as error:
            if not self._told:
                said = "%s=%s: %s cannot be kept there (%s)"
                _log.warning(said, FOLDER, self._folder, self._what, error)
            self._told = True
            return
        self._files.add(path)
        for each in old:
            self._files.remove(each)
            with suppress(OSError):
                each.unlink()

    def _bytes(self, *parts: _Rows) -> int:
        return sum(name_N.nbytes + row_N.nbytes for name_N, row_N in parts)

    def _read(self, whole: bytes) -> _Rows:
        """Of a file; ValueError if it is not as it was written."""
        check, body = whole[:_CHECK], whole[_CHECK:]
        if check != self._check(body):
            raise ValueError("it is damaged")
        each = int(np.prod(self._shape, dtype=np.int64))
        rows = len(body) // (_NAME.itemsize + each * self._number.itemsize)
        row_N = np.frombuffer(body, self._number, rows * each, rows * _NAME.itemsize)
        return np.frombuffer(body, _NAME, rows), row_N.reshape(rows, *self._shape)

    def _check(self, body: bytes) -> bytes:
        return hashlib.sha256(self._key.encode() + body).digest()


def _ascending(names: Sequence[bytes] | np.ndarray, rows: np.ndarray) -> _Rows:
    """Ascending, each name once."""
    name_N, first_N = np.unique(np.asarray(names, _NAME), return_index=True)
    return name_N, rows[first_N]
