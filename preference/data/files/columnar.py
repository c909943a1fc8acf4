"""Rows of Parquet and Arrow files, from a process that may take only so much.

Nothing that such a file says of what it becomes can be believed, so it is decoded in a child with
limits of memory, time, bytes and rows (`preference.data.files.columnar_child`). Columns that no
field could be read from are not decoded at all. One child reads all files of a folder.
"""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.files.child import started

_CHILD = Path(__file__).with_name("columnar_child.py")
#: No threads, and no memory that is reserved ahead; nothing else of the environment is needed.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
_ENDS = {
    "gzip": "damaged or cut off gzip file: {why}",
    "damaged": "not readable as {kind}: {why}",
    "budget": "it would become more than {bytes:,} bytes or {rows:,} rows, too many for its size",
    "memory": "it takes more than {memory:,} bytes of memory to be decoded",
    "time": "it takes more than {seconds:,} seconds to be decoded",
    "died": "not readable as {kind}: what decodes it broke off",
}


@dataclass(frozen=True, kw_only=True)
class FileBudget:
    """Limits on the size of a file while it is read, by its size on disk: compressed kilobytes can
    expand to terabytes.

    Attributes:
        expansion: bytes that each byte may become; what people write packs to a tenth at best.
        least_bytes: bytes that any file may become; of Parquet any row group.
        row_bytes: added for each row besides its content, so that the number of rows is limited,
            too.
        line_bytes: of one row; a judgement over 64 responses of 100,000 characters may have them.
        parts: numbers, texts and lists in one row.
        memory: of the process that decodes Parquet and Arrow, besides four times the file's size.
        seconds: of its processor, and two more for each million bytes.
    """

    expansion: int = 64
    least_bytes: int = 2**28
    row_bytes: int = 256
    line_bytes: int = 2**26
    parts: int = 10**6
    memory: int = 2**30
    seconds: int = 30

    def bytes(self, size: int) -> int:
        """Bytes that a file of a size may become."""
        return max(self.least_bytes, self.expansion * size)

    def decoding(self, size: int) -> dict[str, int]:
        """The limits of the process that decodes a file of ``size`` bytes, by name."""
        return {
            "bytes": self.bytes(size),
            "rows": self.bytes(size) // self.row_bytes,
            "row": self.row_bytes,
            "line": self.line_bytes,
            "memory": self.memory + 4 * size,
            "seconds": self.seconds + 2 * size // 10**6,
        }


class NotReadable(ValueError):
    """Why no more rows come of a file."""


class ColumnarReader:
    """Reads files by a child, which lives from the first of them to the end of the ``with`` block,
    or until a file is more than it may be."""

    def __init__(self, budget: FileBudget) -> None:
        self._budget = budget
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._answers: IO[bytes] | None = None

    def __enter__(self) -> "ColumnarReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def rows(
        self,
        file: IO[bytes],
        kind: str,
        packed: bool,
        wanted: Collection[str] | None,
        users: Collection[str] = (),
    ) -> Iterator[tuple[int, Mapping[str, object] | BadRow]]:
        """Yield the rows of an open file, counted from 1, with all columns; those that are not
        ``wanted`` hold None.

        Args:
            file: one with a descriptor.
            kind: ``.parquet`` or ``.arrow``.
            packed: whether it is packed with gzip.
            wanted: names of columns that are decoded; None: all.
            users: those of them that may say whose a row is: of a row group that cannot be read,
                and is one user's, bad rows have these.

        Raises:
            NotReadable: it is damaged, or becomes more than it may.
        """
        limits = self._budget.decoding(os.fstat(file.fileno()).st_size)
        names_wanted = None if wanted is None else sorted(wanted)
        request = {"kind": kind, "packed": packed, "wanted": names_wanted, **limits}
        request["users"] = sorted(users)
        went_well = False
        try:
            answers = self._asked(request, file)
            names = _next(answers, limits["bytes"]).get("columns", [])
            decoded, number = [n for n in names if wanted is None or n in wanted], 0
            longest = 4 * limits["line"] + 2  # characters of JSON and the line's end
            while isinstance(line := _next(answers, longest), list | None) or "user" in line:
                number += 1
                if isinstance(line, dict):
                    bad = BadRow("in a row group that is damaged, or too much for its size")
                    bad.cells = line["user"]
                    yield number, bad
                elif line is None or len(line) != len(decoded):
                    yield number, BadRow(f"a row of more than {limits['line']:,} bytes")
                else:
                    yield number, dict.fromkeys(names) | dict(zip(decoded, line, strict=True))
            went_well = line["end"] not in ("memory", "died")
        finally:
            status = 0 if went_well else self._end()
        end = "time" if line["end"] == "died" and status == -signal.SIGXCPU else line["end"]
        if end != "whole":
            told = {**limits, "why": "", **line, "kind": kind[1:].capitalize()}
            raise NotReadable(_ENDS[end].format(**told))

    def _asked(self, request: Mapping[str, Any], file: IO[bytes]) -> IO[bytes]:
        """Send a request; where its answer comes."""
        if self._socket is None or self._answers is None:
            packages = ("pyarrow", "numpy")
            self._process, self._socket = started(_CHILD, packages, _ENVIRONMENT)
            self._answers = self._socket.makefile("rb")
        with suppress(OSError):  # that it is gone shows where its answer should be
            socket.send_fds(self._socket, [json.dumps(request).encode()], [file.fileno()])
        return self._answers

    def _end(self) -> int:
        """End the child; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()
        for each in (self._answers, self._socket):
            if each is not None:
                each.close()
        self._socket = self._answers = None
        return process.wait()


def _next(answers: IO[bytes], longest: int) -> Any:
    """The child's next line, decoded; an "end" if there is none or it cannot be read."""
    try:
        return json.loads(answers.readline(longest))
    except (OSError, ValueError, RecursionError):
        return {"end": "died"}
