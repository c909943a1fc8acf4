"""Files that are not any more as they were written."""

from collections.abc import Callable
from pathlib import Path


def change(at: int, by: int = 1) -> Callable[[Path], None]:
    """A function that changes one byte of a file."""

    def harm(file: Path) -> None:
        whole = bytearray(file.read_bytes())
        whole[at] ^= by
        file.write_bytes(whole)

    return harm
