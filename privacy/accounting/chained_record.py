"""An append-only file of JSON lines, chained by hashes, that cannot get shorter unnoticed.

Each line carries its ``index``, from 1, and in ``before`` the SHA-256 of the exact bytes of the
line before it. A second file beside it, ``NAME.head``, says how many lines there are and the hash
of the last. A line is on disk when ``append`` returns, and its head is written; that is on disk
before the next line is begun (a thread waits for the disk meanwhile, as a round would):

- after a crash the record may be one line ahead of its head: that line is kept and the head
  follows; or end in a torn line, which the head does not cover: that is cut off;
- a record that ends before its head, or meets another hash there, was deleted, rolled back, cut or
  edited; one further ahead has a head that was rolled back. Both are refused, and left as they are.

The head is two slots in one file, written in place and in turn, each with a checksum. One that a
crash has torn leaves the other, which is one line behind; and then that line must be there.

What this cannot see: hashes have no key, so anybody who can write both files can write another
history, and to bring back older copies of both at once brings back that older state. A head that is
kept elsewhere shows either (``on_chain``).

One process writes at a time (an advisory lock on the file, gone when the process is). After a write
that failed nothing can be added: what is on disk is only known once it is read again.
"""

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.regular_files import open_regular, read_regular

_SLOT = 512  # bytes: a sector, which disks write whole


class RecordDamaged(ValueError):
    """The record is not what was written; the message says what happened to which file."""


class NoRecord(ValueError):
    """A file without chained lines."""


class OtherRecord(ValueError):
    """Its first line is another one than was expected: ``found``."""

    def __init__(self, path: Path, found: Mapping[str, Any]) -> None:
        super().__init__(f"{path} begins with {found}")
        self.found = dict(found)


class RecordInUse(ValueError):
    """Another process writes it."""


@dataclass(frozen=True)
class Head:
    """The number of lines of a record, and the SHA-256 of the last one's bytes in hex."""

    index: int
    hash: str

    def __str__(self) -> str:
        return f"{self.index}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> "Head":
        """From ``str(head)``; ValueError for anything else."""
        index, _, digest = text.strip().partition(":")
        if not (index.isascii() and index.isdigit() and len(digest) == 64):
            raise ValueError(f"{text!r} is no head: it looks like 12:e3b0c4…, with 64 digits")
        bytes.fromhex(digest)
        return cls(int(index), digest.lower())


#: Of a record without lines.
NO_LINES = Head(0, "0" * 64)


@dataclass(frozen=True)
class Contents:
    """The contents of a record: payloads, the head after each line, bytes of all complete lines."""

    lines: tuple[dict[str, Any], ...]
    heads: tuple[Head, ...]
    size: int

    @property
    def head(self) -> Head:
        """The head after the last line."""
        return self.heads[-1]

    def on_chain(self, head: Head) -> bool:
        """True if this head is, or once was, the record's."""
        return head.index < len(self.heads) and self.heads[head.index] == head


def head_path(path: Path) -> Path:
    """The file of the head of the record at ``path``."""
    return path.with_name(path.name + ".head")


class ChainedRecord:
    """An open record; ``contents`` is what it held when it was opened.

    Args:
        path: made if neither it nor its head is there.
        first: its first line.
        begun: whether it is known that it was there before; then it must be.
        mode: of files that are made.

    Raises:
        RecordDamaged: it is not what was written.
        NoRecord: something else is there.
        OtherRecord: it begins with another line. Nothing is changed.
        RecordInUse: another process writes it.
        OSError: it cannot be read or written.
    """

    def __init__(
        self, path: Path, first: Mapping[str, Any], *, begun: bool = False, mode: int = 0o666
    ) -> None:
        self.path = path
        new = not path.exists() and not head_path(path).exists()
        if new and begun:
            raise RecordDamaged(f"{path} was deleted, and its head with it")
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if new else 0)
        try:
            self._file = os.open(path, flags, mode)
        except FileNotFoundError:
            if head_path(path).exists():
                raise RecordDamaged(f"{path} was deleted: its head is there") from None
            raise
        self._head_file = -1
        self._disk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="head")
        self._flushed: Future[None] | None = None
        try:
            self._lock()
            self._open(first, begun, mode)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """True if nothing can be added any more."""
        return self._file < 0

    @property
    def head(self) -> Head:
        """The head after the last line."""
        return self._head

    def append(self, payload: Mapping[str, Any]) -> Head:
        """Add a line; it is on disk when this returns, and the head follows.

        Raises:
            OSError: it may not be, or the head before it is not. The record is closed then.
        """
        data, head = _line(payload, self._head)
        try:
            if self.closed:
                raise OSError(errno.EBADF, "closed, or failed before: open it again")
            self._await_head()
            if os.write(self._file, data) != len(data):
                raise OSError(errno.ENOSPC, "the line was not written in full; is the disk full?")
            os.fsync(self._file)
            self._move_head(head)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror or str(error), str(self.path)) from error
            raise
        return head

    def close(self) -> None:
        """Close the files, once the head is on disk.

        If the disk refused it, it is one line behind, as after a crash.
        """
        try:
            with suppress(OSError):
                self._await_head()
        finally:
            self._disk.shutdown()
            self._close_files()

    def __del__(self) -> None:
        # The collector runs in any thread, at any place, and one that is just beginning holds what
        # the end of another waits for: nothing may be waited for here. A head that is not on disk
        # yet is one line behind after a loss of power, as after a crash.
        if hasattr(self, "_head_file"):
            self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self._file, self._head_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._head_file = -1

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RecordInUse(f"{self.path} is in use by another process") from None

    def _open(self, first: Mapping[str, Any], begun: bool, mode: int) -> None:
        beside = head_path(self.path)
        if not begun and not os.fstat(self._file).st_size and not beside.exists():
            replace_file(
                beside, _slot(NO_LINES) + b" " * _SLOT, mode=mode
            )  # flushes the folder too
        raw = read_regular(self.path)
        self.contents, covered = _checked(self.path, raw, _read_head(self.path))
        if self.contents.lines and self.contents.lines[0] != first:
            raise OtherRecord(self.path, self.contents.lines[0])
        self._head_file = os.open(beside, os.O_RDWR | os.O_CLOEXEC)
        if self.contents.size < len(raw):  # torn: whatever it stood for never left memory
            os.ftruncate(self._file, self.contents.size)
            os.fsync(self._file)
        self._head = covered
        if self.contents.head != covered:
            self._move_head(self.contents.head)
        if not self.contents.lines:
            self.append(first)
            self.contents, _ = _checked(self.path, read_regular(self.path), _read_head(self.path))

    def _move_head(self, head: Head) -> None:
        place = head.index % 2 * _SLOT
        if os.pwrite(self._head_file, _slot(head), place) != _SLOT:
            raise OSError(errno.ENOSPC, "the head was not written in full; is the disk full?")
        self._flushed = self._disk.submit(os.fdatasync, self._head_file)
        self._head = head

    def _await_head(self) -> None:
        """Until the head that was written last is on disk; OSError if it is not."""
        flushed, self._flushed = self._flushed, None
        if flushed is not None:
            flushed.result()


def read(path: Path) -> Contents:
    """Read a record, also while another process writes it.

    Raises:
        RecordDamaged, NoRecord: as ``ChainedRecord``.
        RecordInUse: it is being written too fast to be read.
        OSError: it cannot be read.
    """
    for _ in range(100):
        before = _read_head(path)
        try:
            raw = read_regular(path)
        except FileNotFoundError:
            if before is None:
                raise
            raise RecordDamaged(f"{path} was deleted: its head is there") from None
        if _read_head(path) == before:
            return _checked(path, raw, before)[0]
    raise RecordInUse(f"{path} is being written: look again later")


def first_line(path: Path) -> dict[str, Any] | None:
    """The payload of the first line as it stands, unverified; None where there is none to read."""
    try:
        with open_regular(path) as file:
            data = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    return {name: value for name, value in data.items() if name not in ("index", "before")}


def _line(payload: Mapping[str, Any], before: Head) -> tuple[bytes, Head]:
    """A line's bytes, and the head after it."""
    index = before.index + 1
    line = {"index": index, "before": before.hash, **payload}
    data = (json.dumps(line, allow_nan=False) + "\n").encode()
    return data, Head(index, hashlib.sha256(data).hexdigest())


def _slot(head: Head) -> bytes:
    text = f"{head.index} {head.hash}"
    check = hashlib.sha256(text.encode()).hexdigest()
    return f"{text} {check}".ljust(_SLOT - 1).encode() + b"\n"


def _read_head(path: Path) -> bytes | None:
    try:
        return read_regular(head_path(path))
    except FileNotFoundError:
        return None


def _checked(path: Path, raw: bytes, head_raw: bytes | None) -> tuple[Contents, Head]:
    """Check a record, and return it with the stored head, which may be a line behind."""
    size = raw.rfind(b"\n") + 1
    lines = raw[:size].split(b"\n")[:-1]
    _check_kind(path, raw, lines)
    beside = head_path(path)
    if head_raw is None:
        raise RecordDamaged(
            f"{beside} was deleted: without it nobody knows whether {path} is whole"
        )
    covered, torn = _covered(beside, head_raw)
    if len(lines) < covered.index:
        how = "was cut or rolled back" if raw else "was emptied"
        raise RecordDamaged(
            f"{path} {how}: {len(lines)} lines are left of {covered.index}, by its head"
        )
    payloads, heads = [], [NO_LINES]
    for number, line in enumerate(lines, start=1):
        payloads.append(_payload(path, number, line, heads[-1]))
        heads.append(Head(number, hashlib.sha256(line + b"\n").hexdigest()))
    if heads[covered.index] != covered:
        raise RecordDamaged(
            f"{path}:{covered.index}: edited after it was written, or of another file: its head "
            "has another hash"
        )
    ahead = len(lines) - covered.index + (size < len(raw))
    if ahead > 1 or (torn and len(lines) == covered.index):
        raise RecordDamaged(
            f"{beside} was rolled back or damaged: it covers {covered.index} lines of {len(lines)}"
        )
    return Contents(tuple(payloads), tuple(heads), size), covered


def _check_kind(path: Path, raw: bytes, lines: list[bytes]) -> None:
    """NoRecord for a file that nobody could have made of a record by damaging it."""
    try:
        first = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and "index" not in first and "before" not in first:
        raise NoRecord(f"{path} is something else: its lines are not chained")
    if raw and first is None and not head_path(path).exists():
        raise NoRecord(f"{path} is something else")


def _covered(beside: Path, raw: bytes) -> tuple[Head, bool]:
    """The newer slot, and whether the other one is torn."""
    result = [_read_slot(raw[place : place + _SLOT]) for place in (0, _SLOT)]
    heads = [head for head in result if head]
    newest = max(heads, key=lambda head: head.index, default=None)
    other = result[1 - newest.index % 2] if newest else None
    placed = all(head is None or head.index % 2 == place for place, head in enumerate(result))
    fits = other is None or (newest is not None and other.index == newest.index - 1)
    if newest is None or not placed or not fits or len(raw) != 2 * _SLOT:
        raise RecordDamaged(f"{beside} was edited or damaged")
    blank = newest.index == 0 and not raw[_SLOT:].strip(b" ")
    return newest, other is None and not blank


def _read_slot(raw: bytes) -> Head | None:
    try:
        index, digest, _ = raw.decode("ascii").split()
        head = Head(int(index), digest)
    except ValueError:
        return None
    return head if _slot(head) == raw else None


def _payload(path: Path, number: int, line: bytes, before: Head) -> dict[str, Any]:
    """A line without what chains it; RecordDamaged if it is not the one that was written there."""
    try:
        data = json.loads(line)
        index, hash_before = data.pop("index"), data.pop("before")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise RecordDamaged(f"{path}:{number}: damaged line ({error})") from None
    if type(index) is not int or index != number:
        raise RecordDamaged(
            f"{path}:{number}: this was line {index}: lines were removed, added or moved"
        )
    if hash_before != before.hash:
        raise RecordDamaged(
            f"{path}:{max(1, number - 1)}: edited after it was written, or of another file: line "
            f"{number} has the hash of another"
        )
    return data
