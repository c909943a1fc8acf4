"""Discrete Laplace noise, exact in whole numbers and in its probabilities.

P(z) is proportional to exp(−|z|/t) on the whole numbers, for a scale t that is a fraction. Drawn by
Algorithm 2 of Canonne, Kamath and Steinke 2020 with whole numbers only: no logarithm, no rounding,
so the last digits reveal nothing (Mironov 2012). A sum of whole numbers that moves by at most Δ in
total, with noise of scale Δ/ε on each, is (ε, 0)-DP. Meant for a few thousand draws.
"""

import math
from fractions import Fraction

import numpy as np


def draw(scale: Fraction, coins: np.random.Generator) -> int:
    """One draw of the discrete Laplace distribution of this ``scale``; ValueError if it is not > 0.

    ``coins`` is a source of uniform bytes.
    """
    if scale <= 0:
        raise ValueError(f"the scale of noise must be positive, got {scale}")
    t, s = scale.numerator, scale.denominator
    while True:
        low = below(t, coins)
        if not flip_exp(low, t, coins):
            continue
        high = 0
        while flip_exp(1, 1, coins):
            high += 1
        size = (low + t * high) // s
        if below(2, coins):
            return size
        if size:  # zero has one sign only
            return -size


def std(scale: Fraction) -> float:
    """Standard deviation of the noise."""
    ratio = 1.0 / float(scale)
    return math.sqrt(2.0 * math.exp(-ratio)) / -math.expm1(-ratio)


def flip_exp(part: int, whole: int, coins: np.random.Generator) -> bool:
    """True with probability exp(−part/whole), exactly, for 0 ≤ part ≤ whole."""
    tries = 1
    while below(whole * tries, coins) < part:
        tries += 1
    return tries % 2 == 1


def below(bound: int, coins: np.random.Generator) -> int:
    """A uniform whole number from 0 to ``bound`` − 1, however large."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        result = int.from_bytes(coins.bytes(size), "little") & ((1 << bits) - 1) if bits else 0
        if result < bound:
            return result
