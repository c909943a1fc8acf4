"""Lock a run's folder for one process at a time, before anything is written.

The lock is on a file, ``private/lock``, and gone when its process is. Like that of a user's own
state (``client.labels.private_file``) it also remembers what must not get lost: that a ledger was
begun.
"""

import fcntl
import os
import time
from pathlib import Path

from murmuration.privacy.durable_files import sync_folder

_LOOK = 0.1  # seconds between looks
_BEGUN = b"a ledger was begun here\n"


class RunInUse(ValueError):
    """Another process has the folder."""


class RunLock:
    """The lock of a run's folder, held until ``close`` or the end of the process.

    The folder is made if it is missing. ``patience``: seconds to wait for another process to end.

    Raises:
        RunInUse: another process has it.
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: Path, *, patience: float = 0.0) -> None:
        self.path = folder / "private" / "lock"
        deadline = time.monotonic() + patience
        while not self._taken():
            if time.monotonic() >= deadline:
                raise RunInUse(
                    f"--out {folder} is in use by another run; wait for it to end, or choose "
                    "another folder"
                )
            time.sleep(_LOOK)

    def _taken(self) -> bool:
        """Take the lock if nobody has it, of the folder that has this name then."""
        while True:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the folder was discarded this moment
                continue
            file = os.fdopen(opened, "r+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                    self._file = file
                    return True
            except BlockingIOError:
                file.close()
                return False
            except FileNotFoundError:
                pass
            file.close()  # that of a folder which was discarded: look again under this name

    def close(self) -> None:
        """Let go of the folder."""
        self._file.close()

    @property
    def begun(self) -> bool:
        """True if there was a ledger in this folder."""
        return os.fstat(self._file.fileno()).st_size > 0

    def note_begun(self) -> None:
        """Note that there is a ledger; on disk when this returns."""
        if not self.begun:
            self._file.write(_BEGUN)
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)
