"""Where a basis of rewards starts: public, looked at no data, and the same on every machine.

At zero for the crowd, and at small signs elsewhere, from SHAKE-256 of public text: rows of zeros
would stay zeros (`preference.linear.tastes`).
"""

import hashlib

import numpy as np

#: Where rows other than the crowd's start: so small that noise of no run drowns in them.
START = 0.1


def start_KD(tastes: int, dimension: int) -> np.ndarray:
    """Return where the basis starts, (K, D) float32: public, and the same everywhere."""
    result_KD = np.zeros((tastes, dimension), dtype=np.float32)
    bits = (tastes - 1) * dimension
    name = f"murmuration tastes {tastes} {dimension}".encode()
    drawn = np.frombuffer(hashlib.shake_256(name).digest(-(-bits // 8)), dtype=np.uint8)
    signs = np.unpackbits(drawn)[:bits].astype(np.float32) * 2.0 - 1.0
    result_KD[1:] = START * signs.reshape(tastes - 1, dimension)
    return result_KD
