"""Storage of feature rows: in memory or, if they are large, in a memory-mapped file.

Mapped rows are read like any others, by compiled code too, and without a copy. The operating system
keeps those in memory that are in use, as long as there is room, and lets go of them when there is
not: a node's own memory does not grow with its rows.

Rows reveal private judgements. The file has no name (where the system cannot do that, it loses it
at once), only its owner may open it, and it is gone when the process ends, also when it is killed.
It lies where ``tempfile`` puts files: in ``TMPDIR``, if that is set.

Legend: R rows, D dimensions.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
import torch

from murmuration.preference.data.errors import InputError

#: Bytes of rows that are kept in memory. More are read from a mapped file as fast, to a few per
#: cent; it is writing the file that takes longer, about a second for each GiB.
IN_MEMORY = 256 * 2**20


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
        x_RD = torch.zeros(rows, dimension, dtype=dtype)
        fill(x_RD)
        return x_RD
    with _file(size) as file:
        fill(_mapped(file, "r+", rows, dimension, dtype))
        return _mapped(file, "r", rows, dimension, dtype)


def gathered(parts: Iterable[np.ndarray], dtype: np.dtype) -> torch.Tensor:
    """Parts of one long row, one after the other; where it lies does not show in it.

    Raises:
        InputError: there is no room for the file.
    """
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
            return torch.from_numpy(np.concatenate([np.empty(0, dtype), *held]))
        with _no_room():
            file.flush()
        return _as_tensor(np.memmap(file, dtype, "r"))
    finally:
        if file:
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
            "features cannot be kept in a temporary file "
            f"({error.strerror or error}): name a folder on a disk with more room in TMPDIR"
        ) from None


def _mapped(
    file: IO[bytes], mode: str, rows: int, dimension: int, dtype: torch.dtype
) -> torch.Tensor:
    """The file as rows; the mapping holds it when the file is closed."""
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    found_RD = np.memmap(file, kind, mode, shape=(rows, dimension))  # type: ignore[call-overload]
    return _as_tensor(found_RD)


def _as_tensor(found: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that tensors do not know what must not be written to
        return torch.from_numpy(found)
