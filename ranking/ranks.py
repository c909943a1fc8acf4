"""Ranks as ranges: the significant part of an order.

An item's range holds, for all items at once with the confidence, its rank by true strengths: it
comes after those that are better beyond doubt, and before those that are worse beyond doubt (Klein,
Wright and Wieczorek; Mogstad, Romano, Shaikh and Wilhelm). "Beyond doubt" is that a
difference is larger than a multiple of its standard deviation, the same multiple for all pairs,
which no standardized difference exceeds with the confidence.

Legend: K items, S draws.
"""

import numpy as np
from scipy import special

#: Up to so many items the multiple is simulated; beyond, Bonferroni's is as good and takes no time.
_MOST_SIMULATED = 100
_DRAWS_S = 4000


def difference_std(covariance_KK: np.ndarray) -> np.ndarray:
    """The standard deviation of each difference of two strengths, (K, K)."""
    variance_K = covariance_KK.diagonal()
    squared_KK = variance_K[:, None] + variance_K - 2 * covariance_KK
    return np.sqrt(np.maximum(squared_KK, 0.0))


def simultaneous_multiple(covariance_KK: np.ndarray, confidence: float = 0.95) -> float:
    """The multiple of their standard deviations that no two items' difference exceeds, with
    probability ``confidence``.

    The draws are always the same: the multiple is a function of the covariance.
    """
    items = len(covariance_KK)
    pairs = items * (items - 1) / 2
    bonferroni = -float(special.ndtri((1 - confidence) / 2 / pairs))
    std_KK = difference_std(covariance_KK)
    if items > _MOST_SIMULATED or not (std_KK[np.triu_indices(items, 1)] > 0).all():
        return bonferroni
    values_K, vectors_KK = np.linalg.eigh(covariance_KK)
    root_KK = vectors_KK * np.sqrt(np.maximum(values_K, 0.0))
    draws_SK = np.random.default_rng(0).standard_normal((_DRAWS_S, items)) @ root_KK.T
    largest_S = np.zeros(_DRAWS_S)
    for first in range(items - 1):  # the pairs of one item at a time, so that it fits the cache
        off_SK = np.abs(draws_SK[:, first + 1 :] - draws_SK[:, first : first + 1])
        np.maximum(largest_S, (off_SK / std_KK[first, first + 1 :]).max(axis=1), out=largest_S)
    return min(float(np.quantile(largest_S, confidence)), bonferroni)


def told_apart(
    theta_K: np.ndarray, covariance_KK: np.ndarray, confidence: float = 0.95
) -> np.ndarray:
    """True where the row's item is significantly better than the column's, simultaneously for all
    pairs, (K, K).
    """
    difference_KK = theta_K[:, None] - theta_K
    multiple = simultaneous_multiple(covariance_KK, confidence)
    return difference_KK > multiple * difference_std(covariance_KK)


def rank_ranges(better_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each item's best and worst rank, (K,) each, from 1, given which item is significantly better
    than which.
    """
    return 1 + better_KK.sum(axis=0), len(better_KK) - better_KK.sum(axis=1)
