"""Files that somebody else may have put there: read if they are files, without waiting.

A pipe, a device or a socket in a file's place would block the reader, or fill the memory.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes.

    Raises:
        OSError: it cannot be opened, or is no regular file, or a link to one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
        return open(descriptor, "rb")  # noqa: PTH123 (a descriptor has no path)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Read a file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def check_folder(folder: Path) -> None:
    """OSError for a folder in which something is neither a regular file nor a folder, before a
    library reads what is in it. Links that lead nowhere are left to that."""
    for path in folder.iterdir():
        if path.exists() and not path.is_dir():
            _check(path, path.stat())


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
