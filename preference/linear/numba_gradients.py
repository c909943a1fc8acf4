"""Users' averaged gradients, compiled: one pass over a user's rows while they lie in the cache.

A user's rows are read from memory once: logits, slopes and the weighted sum are computed before the
next user's rows are touched, and while one user is worked on the rows of the next are being
fetched. On a few thousand short rows that is several times as fast as one tensor operation after
another, because the time is the memory's.

Compiled by numba at first use, for the processor at hand, and kept on disk; see
``privacy.mechanisms.numba_jit``. Sums inside a row may be reordered by the compiler, so results can
differ in the last bits between processors, never between runs on one.

What is computed of a user depends on that user's judgements and θ alone, to the last bit: every
loop is over one user's rows, in their order, and a row that is not there is never touched, so not
even the W that the widest judgement of all makes necessary shows.

Legend: J all judgements, R rows (W of each judgement), N judgements taken, K rows, B users,
D dimensions, W rows of a judgement. A row whose y is infinite is not there; such rows come last.
"""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from murmuration.preference.linear.offsets import thumb_slopes
from murmuration.privacy.mechanisms.numba_jit import kernel

#: The preference models that the kernel knows; see ``preference.models``.
BTL, THURSTONE, BEST, RANKING, THUMBS = range(5)

_FAST = {"reassoc", "contract", "arcp", "nsz"}  # NaN and infinity keep their meaning
_LINE = 16  # numbers in a cache line
# Rows further ahead than what the second-level cache can hold beside the present ones only disturb.
_FETCH_AHEAD, _FETCH_UP_TO = 10, 4096


@intrinsic
def _fetch(typing_context: Any, numbers: Any, at: Any) -> Any:
    """Ask the processor for the cache line of ``numbers[at]``; nothing happens if it cannot."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        integer, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, integer, integer, integer])
        prefetch = builder.module.globals.get("llvm.prefetch.p0") or ir.Function(
            builder.module, kind, "llvm.prefetch.p0"
        )
        read, second_level, data = (ir.Constant(integer, number) for number in (0, 2, 1))
        builder.call(prefetch, [builder.bitcast(address, pointer), read, second_level, data])
        return context.get_dummy_value()

    return numba.types.void(numbers, at), generate


@kernel(fastmath=_FAST)
def slopes(model: int, z: np.ndarray, y: np.ndarray, slope: np.ndarray) -> None:
    """For one judgement: derivatives of its loss by the logits ``z`` of its rows, without
    padding.
    """
    width = len(z)
    if model == THURSTONE:
        for k in range(width):
            at = np.float64(z[k])
            slope[k] = (1.0 - y[k]) * _hazard(at) - y[k] * _hazard(-at)
    elif model == RANKING and width == 1 and y[0] < np.float32(1.0):
        slope[0] = np.float32(0.0)  # two that tie say nothing
    elif model == BTL or width == 1:  # which is what the others are of two responses
        for k in range(width):
            slope[k] = np.float32(1.0) / (np.float32(1.0) + np.exp(-z[k])) - y[k]
    elif model == BEST:
        most = np.float32(0.0)  # the first response has utility 0, another −z
        for k in range(width):
            most = max(most, -z[k])
        total = np.exp(-most)
        for k in range(width):
            slope[k] = np.exp(-z[k] - most)
            total += slope[k]
        for k in range(width):
            slope[k] = (np.float32(1.0) - y[k]) - slope[k] / total
    else:
        _ranking(z, y, slope)


@kernel()
def there(y: np.ndarray) -> int:
    """The number of a judgement's rows that are not padding."""
    count = 0
    while count < len(y) and not math.isinf(y[count]):
        count += 1
    return count


@kernel(fastmath=_FAST)
def residuals(z_NW: np.ndarray, y_NW: np.ndarray, model: int, out_NW: np.ndarray) -> None:
    """``slopes`` of many judgements, each by itself; 0 where a row is not there."""
    out_NW[:] = 0.0
    for n in range(len(z_NW)):
        count = there(y_NW[n])
        slopes(model, z_NW[n, :count], y_NW[n, :count], out_NW[n, :count])


@kernel(fastmath=_FAST)
def dots(x_RD: np.ndarray, rows_K: np.ndarray, theta_D: np.ndarray, out_K: np.ndarray) -> None:
    """x·θ of some rows, each by itself."""
    for k in range(len(rows_K)):
        dot, row = np.float32(0.0), rows_K[k]
        for d in range(x_RD.shape[1]):
            dot += x_RD[row, d] * theta_D[d]
        out_K[k] = dot


@kernel(fastmath=_FAST)
def lengths(x_RD: np.ndarray, out_R: np.ndarray) -> None:
    """The ℓ2 norm of each row by itself, in float64."""
    for r in range(len(x_RD)):
        square = 0.0
        for d in range(x_RD.shape[1]):
            square += np.float64(x_RD[r, d]) * np.float64(x_RD[r, d])
        out_R[r] = math.sqrt(square)


@kernel(fastmath=_FAST)
def _hazard(at: float) -> float:
    """φ(at) / Φ(−at) of the standard normal distribution."""
    if at > 25.0:  # the quotient's expansion: both parts of it vanish from here on
        return at + 1.0 / at - 2.0 / at**3
    return math.sqrt(2.0 / math.pi) * math.exp(-0.5 * at * at) / math.erfc(at / math.sqrt(2.0))


@kernel(fastmath=_FAST)
def _ranking(z: np.ndarray, y: np.ndarray, slope: np.ndarray) -> None:
    """All choices of a ranking: the first among all, the second among the rest, and so on.

    A response that ties with the one before it has y below 1. Each response of a place is chosen
    among itself and what is below its place.
    """
    width = len(z)
    slope[:] = 0.0
    for stage in range(width):  # row k is response k + 1; ``stage`` is chosen
        below = stage
        while below < width and y[below] < np.float32(1.0):
            below += 1
        most = np.float32(0.0) if stage == 0 else -z[stage - 1]
        for k in range(below, width):
            most = max(most, -z[k])
        total = np.exp((np.float32(0.0) if stage == 0 else -z[stage - 1]) - most)
        for k in range(below, width):
            total += np.exp(-z[k] - most)
        if stage > 0:
            slope[stage - 1] += np.float32(1.0) - np.exp(-z[stage - 1] - most) / total
        for k in range(below, width):
            slope[k] -= np.exp(-z[k] - most) / total


@kernel(fastmath=_FAST)
def local_updates(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    width: int,
    taken_N: np.ndarray,
    ends_B: np.ndarray,
    theta_D: np.ndarray,
    model: int,
    steps: int,
    rate: float,
    out_BD: np.ndarray,
) -> None:
    """θ − θ_u of each user after gradient steps of their own, into ``out_BD``.

    One step at rate 1 gives the gradient: the mean, over the user's judgements, of the derivative
    of the loss. User b takes judgements ``taken_N[ends_B[b − 1]:ends_B[b]]``; a user without any
    gets zeros.
    """
    dimension = x_RD.shape[1]
    flat = x_RD.reshape(-1)
    ahead = _FETCH_AHEAD if dimension <= _FETCH_UP_TO else 0
    most = 0
    for b in range(len(ends_B)):
        most = max(most, ends_B[b] - (ends_B[b - 1] if b else 0))
    rows = np.empty(most * width, np.int64)
    begins = np.empty(most + 1, np.int64)  # where the rows of each judgement do
    z = np.empty(most * width, np.float32)
    here, slope = np.empty_like(z), np.empty_like(z)
    rate32 = np.float32(rate)
    for b in range(len(ends_B)):
        first = ends_B[b - 1] if b else 0
        judgements, count = ends_B[b] - first, 0
        for n in range(judgements):
            row, begins[n] = taken_N[first + n] * width, count
            for k in range(there(y_R[row : row + width])):
                rows[count] = row + k
                count += 1
        begins[judgements] = count
        for k in range(count):
            if ahead:
                begin = -1
                if k + ahead < count:
                    begin = rows[k + ahead]
                else:  # of those who come next
                    n = ends_B[b] + (k + ahead - count) // width
                    if n < len(taken_N):
                        begin = taken_N[n] * width + (k + ahead - count) % width
                if begin >= 0:
                    for line in range(0, dimension, _LINE):
                        _fetch(flat, begin * dimension + line)  # pyright: ignore[reportCallIssue]
            dot, row = np.float32(0.0), rows[k]
            for d in range(dimension):
                dot += x_RD[row, d] * theta_D[d]
            z[k] = dot
        out_D = out_BD[b]
        out_D[:] = 0.0
        for step in range(steps):
            if step:
                for k in range(count):
                    dot, row = np.float32(0.0), rows[k]
                    for d in range(dimension):
                        dot += x_RD[row, d] * out_D[d]
                    here[k] = z[k] - dot
            else:
                here[:count] = z[:count]
            weight = rate32 / np.float32(max(judgements, 1))
            if model == THUMBS:  # a user's together
                thumb_slopes(here[:count], y_R[rows[:count]], slope[:count])
            for n in range(judgements if model != THUMBS else 0):
                part = slice(begins[n], begins[n + 1])
                row = taken_N[first + n] * width
                slopes(model, here[part], y_R[row : row + part.stop - part.start], slope[part])
            for k in range(count):
                slope[k] *= weight
            _add_rows(x_RD, rows[:count], slope, out_D)


@kernel(fastmath=_FAST)
def _add_rows(x_RD: np.ndarray, rows: np.ndarray, slope: np.ndarray, out_D: np.ndarray) -> None:
    """Add the rows times their slopes, four at a time: the sum is loaded a quarter as often."""
    fours = len(rows) // 4 * 4
    for k in range(0, fours, 4):
        a_D, b_D, c_D, d_D = x_RD[rows[k]], x_RD[rows[k + 1]], x_RD[rows[k + 2]], x_RD[rows[k + 3]]
        a, b, c, d = slope[k], slope[k + 1], slope[k + 2], slope[k + 3]
        for i in range(len(out_D)):
            out_D[i] += a * a_D[i] + b * b_D[i] + c * c_D[i] + d * d_D[i]
    for k in range(fours, len(rows)):
        a, a_D = slope[k], x_RD[rows[k]]
        for i in range(len(out_D)):
            out_D[i] += a * a_D[i]
