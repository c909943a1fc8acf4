"""A file of the user's own, that one process at a time reads and replaces.

Decisions:
- Nobody else may read it: it is made with mode 0600, and one that others can read is not used.
- It is replaced whole: written beside, flushed to the disk, renamed, and the folder flushed too.
  After a loss of power it is the old one or the new one, and the new one if ``write`` returned.
- Its first line holds a checksum of the rest. What does not fit its checksum is refused, never
  repaired: nobody could know what is missing.
- Processes take turns by a lock on a file beside it, ``NAME.lock``, which also remembers that the
  file was written before. If it is gone then, that is refused as well. This is on disk before
  ``write`` or ``read`` returns, so the loss of anything that was sent is detected.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.privacy.durable_files import replace_file, sync_folder

_TITLE = "murmuration private file 1 sha256="
_WRITTEN = b"NAME was written; without it nothing may be answered\n"


class PrivateFile:
    """A JSON document on disk; read and write it inside ``locked()``."""

    def __init__(self, path: Path) -> None:
        # Through links, so that one file has one lock whatever it is called.
        self.path = Path(os.path.realpath(path.expanduser()))

    @property
    def lock_path(self) -> Path:
        """The file beside it that processes take turns by."""
        return self.path.with_name(self.path.name + ".lock")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process or thread uses the file, and keep it until the end.

        Raises:
            InputError: the folder cannot be used.
        """
        with disk_errors_as(f"{self.path} cannot be used"):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> dict[str, Any]:
        """The document; empty if none was ever written.

        Raises:
            InputError: it is damaged, gone, or others can read it.
        """
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                data = file.read()
        except FileNotFoundError:
            if not self._was_written():
                return {}
            raise InputError(
                f"{self.path} is gone, and with it what was answered before: bring it back (or, to "
                f"forget what was promised and spend anew, remove {self.lock_path} too)"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise InputError(
                f"{self.path} can be read by others (mode {mode:03o}): chmod 600 it first"
            )
        head, _, body = data.partition(b"\n")
        if head != _title(body):
            raise InputError(
                f"{self.path} is damaged, so nothing is answered: bring back an undamaged copy of "
                "its last state"
            )
        with disk_errors_as(f"{self.lock_path} cannot be written"):
            self._remember()
        return json.loads(body)

    def write(self, document: dict[str, Any]) -> None:
        """Put ``document`` in the file's place; on disk when this returns.

        Raises:
            InputError: it cannot be written; the former one is still there.
        """
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        data = body.encode()
        with disk_errors_as(f"{self.path} cannot be written"):
            replace_file(self.path, _title(data) + b"\n" + data, mode=0o600)
            self._remember()

    def _remember(self) -> None:
        """Note that the file exists, so that its loss can be detected."""
        if not self._was_written():
            _write(self.lock_path, _WRITTEN.replace(b"NAME", os.fsencode(self.path.name)))
            sync_folder(self.path.parent)

    def _was_written(self) -> bool:
        return self.lock_path.exists() and self.lock_path.stat().st_size > 0


def _title(body: bytes) -> bytes:
    return (_TITLE + hashlib.sha256(body).hexdigest()).encode()


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor has no path)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
