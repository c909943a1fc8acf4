"""Exact sums of privacy losses, and what a certified sum must be beside them.

Masses are whole multiples of 10⁻⁵⁰ here, and never rounded up; a polynomial is one long number,
which Python's ``decimal`` multiplies in nearly linear time.
"""

import decimal
import math
from fractions import Fraction

import numpy as np

from murmuration.privacy.accounting.convolution import convolve

_DIGITS = 50


def _exact_power(masses, times):
    """Lowest index and masses of the sum of ``times`` draws."""
    lowest = int(masses.index_N[0])
    power = [0] * (int(masses.index_N[-1]) - lowest + 1)
    for index, mass in zip(masses.index_N.tolist(), masses.mass_N.tolist(), strict=True):
        power[index - lowest] += int(Fraction(mass) * 10**_DIGITS)
    start, result = 0, [10**_DIGITS]
    while True:
        if times & 1:
            start, result = _exact_product((start, result), (lowest, power))
        times >>= 1
        if not times:
            return start, result
        lowest, power = _exact_product((lowest, power), (lowest, power))


def _exact_product(first, second):
    width = 2 * _DIGITS + 8
    with decimal.localcontext() as context:
        context.prec, context.Emax = decimal.MAX_PREC, decimal.MAX_EMAX
        numbers = [
            decimal.Decimal("".join(str(mass).zfill(width) for mass in reversed(masses)))
            for _, masses in (first, second)
        ]
        digits = str(numbers[0] * numbers[1])
    digits = digits.zfill(-(-len(digits) // width) * width)
    cells = [int(digits[end - width : end]) // 10**_DIGITS for end in range(len(digits), 0, -width)]
    used = [at for at, mass in enumerate(cells) if mass > 10**5]  # 10⁻⁴⁵
    lowest = first[0] + second[0] + used[0]
    return lowest, cells[used[0] : used[-1] + 1]


def exact_composition(parts):
    """Lowest index and masses, good to about 10⁻⁴⁰, of what is composed."""
    total = (0, [10**_DIGITS])
    for masses, times in parts:
        total = _exact_product(total, _exact_power(masses, times))
    return total[0], np.array([float(Fraction(mass, 10**_DIGITS)) for mass in total[1]])


def dominates_exactly(way, close_to=1e-14):
    """The certified composition is never below the exact one, at any epsilon, and close to it.

    Closeness is asked down to a delta of ``close_to``: what is added for rounding is a little of
    what is widest in the window, which can be a share of 1e-14 where masses lie anyhow.
    """
    lowest, mass_N = exact_composition(way.parts)
    loss_N = (lowest + np.arange(len(mass_N))) * way.interval

    def exact(epsilon):
        share_N = -np.expm1(np.minimum(epsilon - loss_N, 0.0))
        return way.infinite + math.fsum((mass_N * share_N).tolist())

    for tilted_for in (0.1, 1e-5, 1e-14):
        if tilted_for <= 2.0 * way.infinite:
            continue
        loss = way.loss_at_delta(tilted_for)
        for epsilon in np.linspace(loss_N[0] - 1.0, loss_N[-1] + 1.0, 60):
            below, found = exact(float(epsilon)), loss.delta(float(epsilon))
            # Below the lowest cell no more than one is certain: the library's masses may be more.
            below -= 1e-8 if epsilon < loss.start else 0.0
            assert found >= below * (1.0 - 1e-13), f"{found} for {below} at {epsilon}"
        for delta in (0.1, 1e-3, 1e-5, 1e-10, 1e-14):
            epsilon = loss.epsilon(delta)
            assert math.isinf(epsilon) or exact(epsilon) <= delta * (1.0 + 1e-13)
        # Cell by cell, where only rounding counts.
        shift = round((loss.start - lowest * way.interval) / way.interval)
        for at in range(max(1, -shift), min(len(loss.mass_N), len(mass_N) - shift)):
            assert loss.mass_N[at] >= mass_N[at + shift] * (1.0 - 1e-15)
        less = loss.epsilon(tilted_for) - 3e-5
        close = exact(less) >= tilted_for
        assert less <= 0.0 or close or tilted_for < close_to, "far from what it costs"


def survives_a_narrow_window(way):
    """Where the window is too small for what is composed, the rest is counted all the same."""
    lowest, mass_N = exact_composition(way.parts)
    loss_N = (lowest + np.arange(len(mass_N))) * way.interval
    for at in (0.3, 0.5, 0.6, 0.7):
        loss = convolve(
            way.parts,
            interval=way.interval,
            tilt=2.0 * way.interval,
            lowest=lowest + int(at * len(mass_N)),
            cells=32,
            beyond=4.0 * way.interval,
        )
        for epsilon in np.linspace(loss_N[0], loss_N[-1], 80):
            exact = float(mass_N @ -np.expm1(np.minimum(epsilon - loss_N, 0.0)))
            assert loss.delta(float(epsilon)) >= exact * (1.0 - 1e-12), "what wraps is forgotten"
