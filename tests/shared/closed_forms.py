"""Figures in closed form, which what is computed in other ways is held to."""

import math

import numpy as np

from murmuration.research.theory.analytic_gaussian import delta_of


def epsilon_of(noise: float, delta: float) -> float:
    """The least epsilon of one Gaussian at ``delta``, rounded up; ``noise`` is over sensitivity."""
    if delta_of(noise, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(noise, high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta_of(noise, middle) > delta else (low, middle)
    return high * (1.0 + 1e-10)


def found_at_most(epsilon: float, delta: float, false_positives: float) -> float:
    """The most users that any attacker can rightly say to be in, as a share of those who are, when
    wrong about this share of those who are not.

    (ε, δ) allows no more than e^ε·f + δ, nor than 1 − e^−ε·(1 − δ − f) (Kairouz et al. 2015).
    """
    if math.isinf(epsilon):
        return 1.0
    many = math.exp(min(epsilon, 700.0)) * false_positives + delta
    few = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives)
    return max(0.0, min(1.0, many, few))


def lower_triangular(row, size=None):
    """The lower-triangular Toeplitz matrix of these coefficients."""
    size = len(row) if size is None else size
    row = np.concatenate([np.asarray(row), np.zeros(size)])[:size]
    return np.array([[row[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)])
