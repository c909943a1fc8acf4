"""Users' averaged gradients, compiled: one pass over a user's rows while they lie in the cache.

A user's rows are read from memory once: logits, slopes and the weighted sum are computed before the
next user's rows are touched, and while one user is worked on the rows of the next are being
fetched. On a few thousand short rows that is several times as fast as one tensor operation after
another, because the time is the memory's.

Compiled by numba at first use, for the processor at hand, and kept on disk; see ``privacy.kernel``.
Sums inside a row may be reordered by the compiler, so results can differ in the last bits between
processors, never between runs on one.

Legend: J all judgements, R rows (W of each judgement), N judgements taken, B users, D dimensions,
W rows of a judgement. A row whose y is infinite is not there.
"""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from privacy.kernel import kernel

#: The preference models that the kernel knows; see ``preference.models``.
BTL, THURSTONE, BEST, RANKING = range(4)

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
    """One judgement: derivatives of its loss by the logits ``z`` of its rows."""
    width = len(z)
    if model == BTL:
        for k in range(width):
            slope[k] = np.float32(1.0) / (np.float32(1.0) + np.exp(-z[k])) - y[k]
    elif model == THURSTONE:
        for k in range(width):
            at = np.float64(z[k])
            slope[k] = (1.0 - y[k]) * _hazard(at) - y[k] * _hazard(-at)
    elif model == BEST:
        most = np.float32(0.0)  # the first response has utility 0, another −z
        for k in range(width):
            if not math.isinf(y[k]):
                most = max(most, -z[k])
        total = np.exp(-most)
        for k in range(width):
            slope[k] = 0.0 if math.isinf(y[k]) else np.exp(-z[k] - most)
            total += slope[k]
        for k in range(width):
            if not math.isinf(y[k]):
                slope[k] = (np.float32(1.0) - y[k]) - slope[k] / total
    else:
        _ranking(z, y, slope)


@kernel(fastmath=_FAST)
def _hazard(at: float) -> float:
    """φ(at) / Φ(−at) of the standard normal distribution."""
    if at > 25.0:  # the quotient's expansion: both parts of it vanish from here on
        return at + 1.0 / at - 2.0 / at**3
    return math.sqrt(2.0 / math.pi) * math.exp(-0.5 * at * at) / math.erfc(at / math.sqrt(2.0))


@kernel(fastmath=_FAST)
def _ranking(z: np.ndarray, y: np.ndarray, slope: np.ndarray) -> None:
    """All choices of a ranking: the first among all, the second among the rest, and so on."""
    width = 0
    for k in range(len(z)):
        slope[k] = 0.0
        if not math.isinf(y[k]):  # those that are absent come last
            width += 1
    for stage in range(width):  # ``stage`` responses are placed; row k is response k + 1
        most = np.float32(0.0) if stage == 0 else -z[stage - 1]
        for k in range(stage, width):
            most = max(most, -z[k])
        total = np.exp((np.float32(0.0) if stage == 0 else -z[stage - 1]) - most)
        for k in range(stage, width):
            total += np.exp(-z[k] - most)
        if stage > 0:
            slope[stage - 1] += np.float32(1.0) - np.exp(-z[stage - 1] - most) / total
        for k in range(stage, width):
            slope[k] -= np.exp(-z[k] - most) / total


@kernel(fastmath=_FAST)
def descents(
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
    z = np.empty(most * width, np.float32)
    here, slope = np.empty_like(z), np.empty_like(z)
    rate32 = np.float32(rate)
    for b in range(len(ends_B)):
        first = ends_B[b - 1] if b else 0
        count = (ends_B[b] - first) * width
        for n in range(ends_B[b] - first):
            for k in range(width):
                rows[n * width + k] = taken_N[first + n] * width + k
        for k in range(count):
            row = rows[k]
            if ahead:
                n = first + (k + ahead) // width
                if n < len(taken_N):
                    begin = (taken_N[n] * width + (k + ahead) % width) * dimension
                    for line in range(0, dimension, _LINE):
                        _fetch(flat, begin + line)  # pyright: ignore[reportCallIssue]
            dot = np.float32(0.0)
            for d in range(dimension):
                dot += x_RD[row, d] * theta_D[d]
            z[k] = dot
        out_D = out_BD[b]
        out_D[:] = 0.0
        for step in range(steps):
            if step:
                for k in range(count):
                    dot = np.float32(0.0)
                    for d in range(dimension):
                        dot += x_RD[rows[k], d] * out_D[d]
                    here[k] = z[k] - dot
            else:
                here[:count] = z[:count]
            weight = rate32 * np.float32(width) / np.float32(max(count, 1))
            for n in range(0, count, width):
                row = rows[n]
                slopes(model, here[n : n + width], y_R[row : row + width], slope[n : n + width])
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
