"""Does sampling examples need at most K times the noise of sampling users?

Charles et al. 2024 compare DP-SGD on sampled examples (ELS, up to K of each user) and on sampled
users (ULS) at equal compute, with p = q. Conjecture 1: for all epsilon, delta, T, p and K, the
noise multipliers that meet (epsilon, delta) satisfy sigma_ELS <= K sigma_ULS. Lemma 1 proves it for
one direction of the Rényi divergence of integer order.

Both are computed here, the first with the tight accountants of both algorithms. As stated the
conjecture is false: with delta so large that it nearly covers the chance of being sampled at all,
ULS needs hardly any noise, while under ELS a user is in by at least one example far more often. The
table ends with such a case. At practical deltas it holds throughout.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import special, stats

from murmuration.research.reproductions.entry import Rows, where
from murmuration.research.reproductions.uls.accounting import noise_multiplier

_DELTA = 1e-6
#: Calibration meets epsilon within a few parts in 10,000; sigma moves by no more than that.
_TOLERANCE = 1e-3

# K, p, T, epsilon, delta
_QUICK = tuple(itertools.product((2, 32), (0.1,), (1, 100), (0.5, 4.0), (_DELTA,)))
_FULL = tuple(
    itertools.product((2, 8, 32), (0.01, 0.1, 0.5), (1, 100, 1000), (0.5, 2.0, 8.0), (_DELTA,))
)
_COUNTEREXAMPLES = ((2, 0.5, 1, 0.1, 0.4), (32, 0.5, 1, 0.1, 0.4))
# K, p, sigma, order
_LEMMA_QUICK = tuple(itertools.product((2, 32), (0.01, 0.5), (0.5, 2.0), (2, 16)))
_LEMMA_FULL = tuple(
    itertools.product((2, 8, 32, 128), (0.01, 0.1, 0.5, 0.9), (0.5, 1.0, 4.0), (2, 4, 16, 64))
)


def uls_conjecture(quick: bool = False) -> list[dict[str, Any]]:
    """Conjecture 1 and Lemma 1 of Charles et al. 2024 over a table of parameters.

    Rows with ``statement`` "conjecture-1" hold ``K, p, T, epsilon, delta, sigma_els, sigma_uls,
    ratio`` (sigma_els over K sigma_uls) and ``holds``; rows with "lemma-1" hold ``K, p, sigma,
    order, renyi_els, renyi_uls, ratio`` and ``holds``.
    """
    cases, lemma = (_QUICK, _LEMMA_QUICK) if quick else (_FULL, _LEMMA_FULL)
    return [*_conjecture_rows((*cases, *_COUNTEREXAMPLES)), *_lemma_rows(lemma)]


def _conjecture_rows(
    cases: Iterable[tuple[int, float, int, float, float]],
) -> Iterable[dict[str, Any]]:
    for group_size, probability, rounds, epsilon, delta in cases:
        els, uls = (
            noise_multiplier(epsilon, size, probability, rounds=rounds, delta=delta)
            for size in (group_size, 1)
        )
        ratio = els / (group_size * uls)
        yield {
            "statement": "conjecture-1",
            "K": group_size,
            "p": probability,
            "T": rounds,
            "epsilon": epsilon,
            "delta": delta,
            "sigma_els": els,
            "sigma_uls": uls,
            "ratio": ratio,
            "holds": ratio <= 1 + _TOLERANCE,
        }


def _lemma_rows(cases: Iterable[tuple[int, float, float, int]]) -> Iterable[dict[str, Any]]:
    for group_size, probability, sigma, order in cases:
        els = renyi_divergence(group_size, probability, group_size * sigma, order)
        uls = renyi_divergence(1, probability, sigma, order)
        yield {
            "statement": "lemma-1",
            "K": group_size,
            "p": probability,
            "sigma": sigma,
            "order": order,
            "renyi_els": els,
            "renyi_uls": uls,
            "ratio": els / uls,
            "holds": els <= uls * (1 + _TOLERANCE),
        }


def renyi_divergence(trials: int, probability: float, sigma: float, order: float) -> float:
    """The Rényi divergence of ``order`` of N(Binom(trials, probability), sigma^2) from N(0, ..).

    By the trapezoid rule on a smooth integrand that vanishes at both ends, in logarithms.
    """
    counts_K = np.arange(trials + 1)
    centres_K = counts_K / sigma
    log_weights_K = np.asarray(stats.binom.logpmf(counts_K, trials, probability))
    step = 0.02
    z_N = np.arange(-12.0, 12.0 + order * centres_K[-1], step)
    terms = z_N[:, None] * centres_K + (log_weights_K - centres_K**2 / 2)
    log_ratio_N = np.asarray(special.logsumexp(terms, axis=1))
    log_integrand_N = order * log_ratio_N - z_N**2 / 2 - math.log(2 * math.pi) / 2
    log_integral = float(np.asarray(special.logsumexp(log_integrand_N))) + math.log(step)
    return log_integral / (order - 1)


def remarks(rows: Rows) -> list[str]:
    """Sentences on the number of cases in which it holds, and where it does not."""
    failed = where(rows, holds=False)
    remark = f"{len(rows) - len(failed)} of {len(rows)} cases hold."
    if failed:
        remark += (
            f" Those that fail have δ ≥ {min(row['delta'] for row in failed):g}, nearly the chance "
            "of being sampled at all: the conjecture, stated for all δ, is false; at δ that "
            "anybody would promise it holds in every case here."
        )
    return [remark]
