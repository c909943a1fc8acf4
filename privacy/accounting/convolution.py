"""Sums of privacy losses by FFT, with a proven bound on every rounding added to delta.

An FFT's error is absolute: small beside the largest masses, large beside a tail of 1e-12, and the
power of T in the frequency domain multiplies it by T. So masses are tilted first, by e^{λl} with
λ ≥ 0 near the saddle point, which makes the tail that decides delta the bulk of what is convolved
(Esscher 1932). Untilted again, the error is relative to Chernoff's bound on delta; it is added.

**Theorem.** Let p_1 … p_m ≥ 0 be masses on the whole numbers, in steps of d, each with a mass at
infinity; p* the masses of the sum of T_i independent draws from each p_i, N = ΣT_i. Let t = λd ≥ 0
and κ_i be floating-point numbers, u = 2⁻⁵³, n a power of two; q_i the computed p_i(j) e^{tj − κ_i},
folded modulo n; ŷ the computed product of the T_i-th powers of their Fourier transforms; ĉ its
computed inverse, at the n places from a on; ‖·‖ the Euclidean norm. Then

    p*(j) ≤ (max(ĉ(j), 0) + E) exp(ΣT_iκ_i − tj) (1 + r)                      for a ≤ j < a + n,
    Σ_{j ≥ a+n} p*(j) ≤ exp(ΣT_i log Σ_j p_i(j)e^{sj} − s(a + n)) (1 + r)       for every s ≥ 0,

    E = 2e^g [Σ T_i F‖q_i‖ + (3Nu + F) max‖q_i‖] + 10⁻²⁸⁰,     F = 8u log₂ n,
    g = Σ T_i max(0, Σ_j q_i(j) − 1 + √n F‖q_i‖),
    r = exp(2 ΣT_i h_i + 2u(4 ΣT_i|κ_i| + 4 max|tj| + 20)) − 1,
    h_i = u (4 max|tj| + 8|κ_i| + 2 size_i/n + 40),

as long as g and ΣT_i h_i are at most 1/16 (``Uncertified`` is raised otherwise), the library's
exponentials are good to two units in the last place, and its real Fourier transforms to a relative
F/2 in the Euclidean norm. That is Higham 2002, Theorem 24.2 (radix two: 6.7u log₂ n), rounded up;
what the tests measure is smaller by a factor of ten.

*Proof.* (1) q_i(j) is p_i(j)e^{tj − κ_i} up to a factor within 1 ± h_i: a product, a difference,
an exponential (where an absolute error of the argument is a relative one) and a division, summed
over size_i/n places. All terms of a convolution are positive, so its relative error is at most
(1 − h)^{−N} ≤ e^{2Nh}. What underflows is below 10⁻³⁰⁰ wherever it is left out. (2) Modulo n, the
mass at a place is the sum of the masses at all places congruent to it, so never less than the one
that is meant: what wraps around can only enlarge it. (3) Let X_i be the exact transform of q_i;
|X_i| ≤ Σq_i and ‖X_i‖ = √n‖q_i‖. The computed one is X_i + e_i with ‖e_i‖ ≤ √n F‖q_i‖, which also
bounds |e_i| everywhere. Replacing one factor after another, the exact powers differ by at most
e^g ΣT_i|e_i|. Powers by squaring take N − 1 multiplications, with a relative error of √5u each
(Brent, Percival and Zimmermann 2007), of a product that is at most e^g|X_i + e_i| for any i. The
inverse transform divides Euclidean norms by √n and adds F relative to them. A Euclidean norm bounds
every place, and twice the sum what is of second order. (4) Untilting is one exponential of a sum of
three rounded terms. (5) The tail is Markov's inequality for e^{sj}. ∎

The result is a ``PrivacyLossDistribution``: masses no smaller than p*, cell by cell, down to a
lowest cell that holds all the rest; at infinity what the p_i have there and what lies beyond the
window. Its H_α is at least that of p*, and so of the releases that the p_i dominate, for
α ≥ e^lowest. From there down to
1 at α = 0 it is a straight line, and theirs, which is convex in α and no larger at either end, lies
under it. So it dominates them for every α ≥ 0.

*Not* proved is that each single distribution dominates its mechanism to the last bit: it is
computed in floating point. ``ALLOWANCE`` is made for that, and measured in the tests against 50
digits: for every release the losses are raised by 2⁻⁴⁰ and the masses by a factor of 1 + 2⁻⁴⁰.

Legend: W cells of the window.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy import fft

from murmuration.privacy.accounting.discrete_pmf import LOST, ROUNDING, DiscretePMF
from murmuration.privacy.accounting.privacy_loss import PrivacyLossDistribution

#: How far the discretized loss of one release may be off: its losses, and its masses relatively.
ALLOWANCE = 2.0**-40

_MOST_ERROR = 1.0 / 16.0


class Uncertified(ValueError):
    """This composition cannot be certified, or not at this delta."""


Parts = Sequence[tuple[DiscretePMF, int]]


def convolve(
    parts: Parts, *, interval: float, tilt: float, lowest: int, cells: int, beyond: float
) -> PrivacyLossDistribution:
    """The composition of ``(masses, times)``, tight where ``tilt`` puts the bulk of it.

    Args:
        parts: what is composed, in steps of ``interval``.
        tilt: t ≥ 0, for one step of loss.
        lowest: a, the first of the ``cells`` (a power of two) that are computed, in steps.
        beyond: s ≥ ``tilt``, for the bound on the tail above them.

    Formal guarantee: the result dominates what the parts compose to (see the top of this file).
    Where the window or the tilt is badly chosen it is loose, never too small.

    Raises:
        Uncertified: there are so many releases that rounding could not be bounded.
    """
    total = sum(times for _, times in parts)
    size = 8.0 * ROUNDING * math.log2(cells)
    spectrum: np.ndarray | None = None
    shifts, forward, widest, growth, relative = [], 0.0, 0.0, 0.0, 0.0
    for masses, times in parts:
        tilted_W, shift, error = _tilted(masses, tilt, cells)
        norm = float(np.sqrt(tilted_W @ tilted_W)) * (1.0 + cells * ROUNDING)
        mass = float(tilted_W.sum()) * (1.0 + cells * ROUNDING)
        shifts.append(times * shift)
        forward += times * size * norm
        widest = max(widest, norm)
        growth += times * max(0.0, mass - 1.0 + math.sqrt(cells) * size * norm)
        relative += times * error
        power = _power(np.asarray(fft.rfft(tilted_W)), times)
        spectrum = power if spectrum is None else np.multiply(spectrum, power, out=spectrum)
    if max(growth, relative, total * ALLOWANCE) > _MOST_ERROR:
        raise Uncertified(
            f"{total:,} releases are too many to bound their rounding: nothing can be certified"
        )
    assert spectrum is not None
    circular_W = np.asarray(fft.irfft(spectrum, cells))
    rounding = _rounding(growth, forward, (3.0 * total * ROUNDING + size) * widest)
    places_W = lowest + np.arange(cells)
    shift = math.fsum(shifts)
    furthest = float(np.abs(tilt * places_W[[0, -1]]).max())
    rounded = 2.0 * ROUNDING * (4.0 * math.fsum(map(abs, shifts)) + 4.0 * furthest + 20.0)
    slack = math.exp(2.0 * relative + rounded + total * ALLOWANCE)
    # The circle begins at multiples of its length; the window at ``lowest``.
    mass_W = np.roll(circular_W, -(lowest % cells))
    np.maximum(mass_W, 0.0, out=mass_W)
    mass_W += rounding
    mass_W *= np.exp(np.minimum(shift - tilt * places_W, 700.0)) * slack
    last = sum(times * int(masses.index_N[-1]) for masses, times in parts)
    mass_W[max(0, last + 1 - lowest) :] = 0.0  # there is nothing: no rounding either
    infinite = -math.expm1(sum(t * math.log1p(-m.infinite) for m, t in parts)) * slack
    if last >= lowest + cells:
        infinite += _tail(parts, beyond, lowest + cells) * math.exp(total * ALLOWANCE)
    raised = total * ALLOWANCE
    return _with_the_rest(mass_W, lowest, interval, infinite + LOST, raised)


def _tilted(masses: DiscretePMF, tilt: float, cells: int) -> tuple[np.ndarray, float, float]:
    """q modulo ``cells``, its κ, and h."""
    shift = masses.log_moment(tilt)
    tilted_N = masses.mass_N * np.exp(tilt * masses.index_N - shift)
    total = float(tilted_N.sum())
    tilted_N /= total
    shift += math.log(total)
    width = int(masses.index_N[-1]) - int(masses.index_N[0]) + 1
    folded_W = np.bincount(masses.index_N % cells, tilted_N, minlength=cells)
    furthest = tilt * max(abs(int(masses.index_N[0])), abs(int(masses.index_N[-1])))
    error = ROUNDING * (4.0 * furthest + 8.0 * abs(shift) + 2.0 * width / cells + 40.0)
    return folded_W, shift, error


def _rounding(growth: float, forward: float, backward: float) -> float:
    """E: what every place of the tilted convolution may be short of."""
    return 2.0 * math.exp(growth) * (forward + backward) + LOST


def _power(spectrum: np.ndarray, times: int) -> np.ndarray:
    """Powers by squaring: ``times`` − 1 multiplications' worth of error."""
    result = None
    while True:
        if times & 1:
            result = spectrum.copy() if result is None else np.multiply(result, spectrum, result)
        times >>= 1
        if not times:
            assert result is not None
            return result
        spectrum = spectrum * spectrum


def _tail(parts: Parts, tilt: float, first: int) -> float:
    """An upper bound on the mass at ``first`` and above."""
    exponents = [times * masses.log_moment(tilt) for masses, times in parts]
    total = math.fsum(exponents) - tilt * first
    furthest = max(abs(tilt * float(m.index_N[at])) for m, _ in parts for at in (0, -1))
    rounding = 8.0 * ROUNDING * (math.fsum(map(abs, exponents)) + abs(tilt * first) + 8.0)
    rounding += 8.0 * ROUNDING * sum(t * (furthest + 500.0 + len(m.index_N)) for m, t in parts)
    return math.exp(min(0.0, total + rounding))


def _with_the_rest(
    mass_W: np.ndarray, lowest: int, interval: float, infinite: float, raised: float
) -> PrivacyLossDistribution:
    """Cells from the top as long as they hold no more than one; the rest is in the lowest."""
    infinite = min(1.0, infinite)
    above_W = np.cumsum(mass_W[::-1])
    cells = min(int(np.searchsorted(above_W, 1.0 - infinite)) + 1, len(mass_W))
    first = len(mass_W) - cells
    mass_N = mass_W[first:].copy()
    mass_N[0] = max(0.0, 1.0 + 1e-9 - infinite - float(mass_N[1:].sum()))
    start = (lowest + first) * interval + raised
    start += 4.0 * ROUNDING * (abs(start) + 1.0)
    return PrivacyLossDistribution(start, interval, mass_N, infinite)
