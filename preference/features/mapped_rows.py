"""Storage of rows: in memory or, if they are large, in a memory-mapped file.

Mapped rows are read like any others, by compiled code too, and without a copy. The operating system
keeps those in memory that are in use, as long as there is room, and lets go of them when there is
not: a node's own memory does not grow with its rows.

Rows are features, tokens or texts, and tell of private data. The file has no name (where the system
cannot do that, it loses it at once), only its owner may open it, and it is gone when the process
ends, also when it is killed: what was broken off is begun anew. It lies where ``tempfile`` puts
files: in ``TMPDIR``, if that is set.

Legend: R rows, D dimensions.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import numpy as np

from murmuration.preference.data.errors import InputError

if TYPE_CHECKING:
    import torch

#: Bytes of rows that are kept in memory. More are read from a mapped file as fast, to a few per
#: cent; it is writing the file that takes longer, about a second for each GiB.
IN_MEMORY = 256 * 2**20
_PART = 2**18  # numbers of short rows that are put together


def filled_rows(
    rows: int, dimension: int, dtype: torch.dtype, fill: Callable[[torch.Tensor], object]
) -> torch.Tensor:
    """Rows of zeros (R, D), once ``fill`` has filled them in; where they lie does not show in them.

    Only ``fill`` may write: writing to rows that are mapped later ends the process.

    Raises:
        InputError: there is no room for the file.
    """
    size = rows * dimension * dtype.itemsize
    if size <= IN_MEMORY:
        import torch

        x_RD = torch.zeros(rows, dimension, dtype=dtype)
        fill(x_RD)
        return x_RD
    with _file(size) as file:
        fill(_mapped(file, "r+", rows, dimension, dtype))
        return _mapped(file, "r", rows, dimension, dtype)


def joined(rows: Iterable[np.ndarray], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Rows of any lengths, one after the other, and where each begins and the last ends, (R + 1,);
    where they lie does not show in them.

    Raises:
        InputError: there is no room for the file.
    """
    lengths = array("q", [0])

    def parts() -> Iterator[np.ndarray]:
        part, size = list[np.ndarray](), 0
        for row in rows:
            lengths.append(len(row))
            part.append(row)
            size += len(row)
            if size >= _PART:
                yield np.concatenate(part)
                part, size = [], 0
        yield np.concatenate([np.empty(0, dtype), *part])

    return _gathered(parts(), dtype), np.cumsum(np.array(lengths, np.int64))


def _gathered(parts: Iterable[np.ndarray], dtype: np.dtype) -> np.ndarray:
    held: list[np.ndarray] = []
    size, file = 0, None
    try:
        for part in parts:
            held.append(np.ascontiguousarray(part, dtype))
            size += held[-1].nbytes
            if size > IN_MEMORY or file:
                file = file or _file(0)
                with _no_room():
                    for each in held:
                        file.write(each.tobytes())
                held = []
        if file is None:
            return np.concatenate([np.empty(0, dtype), *held])
        with _no_room():
            file.flush()
        return np.memmap(file, dtype, "r")
    finally:
        if file:
            with _no_room():  # it writes what is left
                file.close()


def _file(size: int) -> IO[bytes]:
    """An open file of zeros, for which there is room: without, a write to it would be a crash."""
    with _no_room():
        file = tempfile.TemporaryFile(prefix="murmuration-")  # noqa: SIM115  handed on
        try:
            if size and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError:
            file.close()
            raise
    return file


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Not how much: servers hear of errors, and it would tell how many judgements there are.
        raise InputError(
            "rows cannot be kept in a temporary file "
            f"({error.strerror or error}): name a folder on a disk with more room in TMPDIR"
        ) from None


def _mapped(
    file: IO[bytes], mode: str, rows: int, dimension: int, dtype: torch.dtype
) -> torch.Tensor:
    """The file as rows; the mapping holds it when the file is closed."""
    import torch

    kind = torch.empty(0, dtype=dtype).numpy().dtype
    found_RD = np.memmap(file, kind, mode, shape=(rows, dimension))  # type: ignore[call-overload]
    return as_tensor(found_RD)


def as_tensor(rows: np.ndarray) -> torch.Tensor:
    """Rows as a tensor, which shares their memory and must not be written to."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that tensors do not know what must not be written to
        return torch.from_numpy(rows)
