"""Files that are there whole or not at all, also after a loss of power."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def replace_file(
    path: Path, data: bytes | Iterable[memoryview], *, mode: int = 0o666, flush: bool = True
) -> None:
    """Put ``data``, or these pieces of it, in the place of ``path``; on disk, with its name, when
    this returns, unless it is not to ``flush``: then a loss of power may cost either.

    ``mode`` is that of a new file, less what the process's mask forbids. After an error what is
    there is the former file or, if it was the folder that could not be flushed, the new one.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, mode), "wb") as file:  # noqa: PTH123
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        temporary.replace(path)
        if flush:
            sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the disk: files made in it, renamed or removed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
