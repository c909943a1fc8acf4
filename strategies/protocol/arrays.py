"""Numpy arrays as Flower sends them, byte for byte, and nothing else that may come in their place.

Flower's own conversion reads whatever numpy can: archives, texts, orders and lengths of all kinds,
by the parser of Python. Here a header is compared with the one that type and shape have, and
nothing is parsed. A header depends on type and shape alone, and a run has few of those, so they are
kept.
"""

import math
from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array
from numpy.lib import format as numpy_format

#: Serialization type of all arrays, and the types of numbers that travel.
_KIND = "numpy.ndarray"
_DTYPES = {
    name: np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint8", "uint64")
}
_MOST_DIMENSIONS = 3


def encoded(values: np.ndarray) -> Array:
    """``Array(values)``, row by row."""
    header = _header(values.dtype.str, values.shape)
    data = b"".join((header, np.ascontiguousarray(values).data))  # copied once
    return Array(dtype=str(values.dtype), shape=values.shape, stype=_KIND, data=data)


def decoded(array: Array) -> np.ndarray:
    """The numbers, row by row as this machine has them, in memory of their own.

    Raises:
        ValueError: other bytes than ``encoded`` makes of an array of numbers.
    """
    dtype, shape, data = _DTYPES.get(array.dtype), tuple(array.shape), array.data
    if dtype is None or array.stype != _KIND:
        raise ValueError("no array of numbers")
    if len(shape) > _MOST_DIMENSIONS or any(not 0 <= length <= len(data) for length in shape):
        raise ValueError("a shape that is none")
    header, count = _header(dtype.str, shape), math.prod(shape)
    if not data.startswith(header) or len(data) != len(header) + count * dtype.itemsize:
        raise ValueError("an array of another type or length than it says")
    return np.frombuffer(data, dtype, count, len(header)).reshape(shape).copy()


@lru_cache(maxsize=256)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    numpy_format.write_array_header_1_0(file, about)
    return file.getvalue()
