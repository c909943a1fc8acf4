"""The ``metrics.jsonl`` of a run, read while it is written, by this process or another.

Only what is new is read. A last line without its end is kept until the rest arrives. A file that
was replaced, which is what a resumed run does after dropping rounds it will repeat, or cut short,
is read from its start again.
"""

import json
import os
from pathlib import Path
from typing import Any


class Tail:
    """The lines of ``path``, as they come; the file need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._absent = False  # at the last call: all that is in it at the next one is new
        self._offset = 0
        self._torn = b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects that were added since the last call, and whether they are the file as it was
        found: at the first call, or after it was replaced or cut short.

        Lines that are not JSON objects are left out; a file that cannot be read has none.
        """
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                result = identity != self._file or status.st_size < self._offset
                if result:
                    self._offset, self._torn = 0, b""
                anew = result and not self._absent
                self._file, self._absent = identity, False
                file.seek(self._offset)
                data = file.read()
        except OSError:
            self._absent = self._file is None
            return [], False
        self._offset += len(data)
        *complete, self._torn = (self._torn + data).split(b"\n")
        return [result for line in complete if (result := _object(line)) is not None], anew


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        result = json.loads(line)
    except ValueError:
        return None
    return result if isinstance(result, dict) else None
