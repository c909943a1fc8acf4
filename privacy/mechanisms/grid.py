"""The integer grid on which sums are exact, can be masked, and on which discrete noise lives.

A grid is the multiples of a step that is a power of two, at most 2⁻²⁸ of the clip norm it is for.
Vectors are clipped first and then rounded *toward zero*, coordinate by coordinate: no coordinate
grows, so neither does the length, and the bound on a user's vector holds as before. (The nearest
grid point may lie outside the ball, by up to half a step times √D.) A user's vector moves by less
than one step in each coordinate.

Every user's vector is rounded before it is added to anything, so a sum is the integer sum of
integer vectors, whatever node they are on: exact in float64 up to 2⁵² steps, and the same in any
order. How many users that is room for is checked when a plan is made, for all of them at once and
at their worst, so no sum can wrap around modulo 2⁶⁴ and none is rounded. Noise is added by the
server after that, outside the modulus.

Legend: D dimensions.
"""

import math
from collections.abc import Iterator

import numpy as np

#: A clip norm is at least 2²⁸ and less than 2²⁹ steps.
PRECISION = 28
#: Sums are masked modulo 2⁶⁴.
MODULUS_BITS = 64
#: Up to so many steps float64 has every multiple; with masks it is far from the modulus.
_MOST_STEPS = 2.0**52
#: Of counts, which move by one or a half: as fine as their noise needs
#: (``privacy.mechanisms.discrete_gaussian``).
COUNT_STEP = 2.0 ** -(PRECISION + 1)
_BLOCK = 2**16  # numbers that stay in a core's cache while they are looked at


def step_for(norm: float) -> float:
    """The step of the grid for vectors of at most this length; a function of public numbers only.

    Raises:
        ValueError: the length is not positive, or so small that float64 has no squares
            of what is about as long.
    """
    if not (math.isfinite(norm) and norm > 2.0**-450):
        raise ValueError(f"there is no grid for vectors of length {norm}")
    _, exponent = math.frexp(norm)  # norm is in [2^(exponent - 1), 2^exponent)
    return math.ldexp(1.0, exponent - 1 - PRECISION)


def check_room(vectors: int, norm: float, step: float) -> None:
    """ValueError if a sum of so many vectors of this length could leave the exact range."""
    if vectors * (norm / step) > _MOST_STEPS:
        raise ValueError(
            f"a sum of {vectors:,} vectors on the grid could leave the range in which sums are "
            f"exact; there is room for {int(_MOST_STEPS * step / norm):,}"
        )


def short(vectors: float) -> bool:
    """True if a sum of so many vectors, or counts, always fits into 32 bits."""
    return vectors * 2 ** (PRECISION + 1) < 2**31


def to_whole(values: np.ndarray, step: float) -> np.ndarray:
    """Multiples of ``step`` as whole numbers of steps, int64.

    Raises:
        ValueError: a value is not finite, not on the grid, or beyond 2⁵² steps.
    """
    whole = np.empty(np.shape(values), dtype=np.int64)
    for part, steps in _steps(values, step):
        whole.reshape(-1)[part] = steps
    return whole


def to_short(values: np.ndarray, step: float) -> np.ndarray:
    """As ``to_whole``, int32; ValueError where that is too short."""
    short = np.empty(np.shape(values), dtype=np.int32)
    for part, steps in _steps(values, step):
        if np.abs(steps).max() >= 2.0**31:
            raise ValueError("a sum that does not fit 32 bits")
        short.reshape(-1)[part] = steps
    return short


def check_whole(values: np.ndarray, step: float) -> None:
    """ValueError unless there is ``to_whole`` of these."""
    for _ in _steps(values, step):
        pass


def _steps(values: np.ndarray, step: float) -> Iterator[tuple[slice, np.ndarray]]:
    """``values`` over ``step``, float64, block by block; raises as ``to_whole``."""
    values_N = np.asarray(values, dtype=np.float64).reshape(-1)
    for first in range(0, len(values_N), _BLOCK):
        part = slice(first, first + _BLOCK)
        steps = values_N[part] / step
        if not (np.isfinite(steps).all() and (steps == np.rint(steps)).all()):
            raise ValueError("a sum that is not on the grid")
        if np.abs(steps).max() > _MOST_STEPS:
            raise ValueError("a sum beyond the range in which sums are exact")
        yield part, steps


def from_whole(steps: np.ndarray, step: float) -> np.ndarray:
    """Whole numbers of steps as values, float64."""
    return steps.astype(np.float64) * step
