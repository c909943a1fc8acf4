import math

import numpy as np
import pytest
from scipy import stats

from murmuration.research.reproductions.uls.conjecture import (
    renyi_divergence,
    uls_conjecture,
)


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return uls_conjecture(quick=True)


def test_the_conjecture_holds_at_deltas_that_anybody_promises(rows: list[dict]) -> None:
    small = [r for r in rows if r["statement"] == "conjecture-1" and r["delta"] <= 1e-3]
    assert len(small) >= 6
    for row in small:
        assert row["holds"], row
        assert row["ratio"] == pytest.approx(row["sigma_els"] / (row["K"] * row["sigma_uls"]))


def threshold_delta(centres: np.ndarray, weights: np.ndarray, sigma: float, eps: float) -> float:
    """The largest P(E) - e^eps Q(E), either way round, over half-lines E."""
    t = np.linspace(-8 * sigma, centres.max() + 8 * sigma, 100_001)
    above = (weights * stats.norm.sf((t[:, None] - centres) / sigma)).sum(axis=1)
    below = (weights * stats.norm.cdf((t[:, None] - centres) / sigma)).sum(axis=1)
    removed = above - math.exp(eps) * stats.norm.sf(t / sigma)
    added = stats.norm.cdf(t / sigma) - math.exp(eps) * below
    return float(max(removed.max(), added.max()))


def test_the_counterexample_stands_without_an_accountant(rows: list[dict]) -> None:
    failing = [r for r in rows if not r["holds"]]
    assert [(r["K"], r["T"], r["delta"]) for r in failing] == [(2, 1, 0.4), (32, 1, 0.4)]
    for row in failing:
        K, p, eps, delta = row["K"], row["p"], row["epsilon"], row["delta"]
        uls = threshold_delta(np.array([0.0, 1.0]), np.array([1 - p, p]), row["sigma_uls"], eps)
        counts = np.arange(K + 1.0)
        weights = np.asarray(stats.binom.pmf(counts, K, p))
        els = threshold_delta(counts, weights, K * row["sigma_uls"], eps)
        assert uls <= delta + 1e-4 < els - 1e-2


def test_the_lemma_holds_in_every_row(rows: list[dict]) -> None:
    lemma = [r for r in rows if r["statement"] == "lemma-1"]
    assert len(lemma) >= 16
    assert all(row["holds"] for row in lemma)
    assert all(0 < row["renyi_els"] <= row["renyi_uls"] * 1.001 for row in lemma)


def test_the_divergence_is_the_closed_form() -> None:
    # Without sampling: order · K² / (2 σ²).
    assert renyi_divergence(3, 1.0, 2.0, 5) == pytest.approx(5 * 9 / 8, rel=1e-9)
    # Order 2, one coin: log(1 + p² (e^{1/σ²} - 1)).
    expected = math.log1p(0.09 * math.expm1(1 / 0.49))
    assert renyi_divergence(1, 0.3, 0.7, 2) == pytest.approx(expected, rel=1e-9)
    # Order 2, K coins: log E exp(c c' / σ²) over two independent counts.
    counts = np.arange(5)
    weights = np.asarray(stats.binom.pmf(counts, 4, 0.2))
    expected = math.log(float(weights @ np.exp(np.outer(counts, counts) / 9.0) @ weights))
    assert renyi_divergence(4, 0.2, 3.0, 2) == pytest.approx(expected, rel=1e-9)
