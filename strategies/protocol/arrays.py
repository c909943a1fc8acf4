"""Numpy arrays as Flower sends them, byte for byte, without the same header over and over.

Flower's own conversion writes and parses a header of numpy's format each time, by the parser of
Python: for a few hundred numbers that takes longer than everything else that is done to them. A
header depends on type and shape alone, and a run has few of those.
"""

import math
from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array
from numpy.lib import format as numpy_format

#: Serialization type and beginning of numpy's format, version 1.0.
_KIND, _MAGIC = "numpy.ndarray", b"\x93NUMPY\x01\x00"
#: Longer headers are Flower's to read, and are not kept.
_MOST = 256


def encoded(values: np.ndarray) -> Array:
    """``Array(values)``, row by row."""
    header = _header(values.dtype.str, values.shape)
    data = b"".join((header, np.ascontiguousarray(values).data))  # copied once
    return Array(dtype=str(values.dtype), shape=values.shape, stype=_KIND, data=data)


def decoded(array: Array) -> np.ndarray:
    """``array.numpy()``; raises what that raises, and ValueError for numbers that are missing."""
    data = array.data
    end = len(_MAGIC) + 2 + int.from_bytes(data[8:10], "little")
    if array.stype != _KIND or data[:8] != _MAGIC or not end <= min(len(data), _MOST):
        return array.numpy()
    shape, in_columns, dtype = _read(data[:end])
    if in_columns or dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0:
        return array.numpy()
    return np.frombuffer(data, dtype, math.prod(shape), end).reshape(shape).copy()


@lru_cache(maxsize=256)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    numpy_format.write_array_header_1_0(file, about)
    return file.getvalue()


@lru_cache(maxsize=256)
def _read(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    file = BytesIO(header)
    numpy_format.read_magic(file)
    return numpy_format.read_array_header_1_0(file)
