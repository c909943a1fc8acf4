"""Ranks as ranges: they hold at once, and are no wider than they must be."""

import numpy as np
import pytest
from scipy import stats

from murmuration.ranking.ranks import (
    difference_std,
    rank_ranges,
    simultaneous_multiple,
    told_apart,
)


def some_covariance(items: int) -> np.ndarray:
    factor_KK = np.random.default_rng(items).normal(size=(items, items))
    return factor_KK @ factor_KK.T + 0.1 * np.eye(items)


def test_two_items_need_the_normal_quantile() -> None:
    assert simultaneous_multiple(np.eye(2)) == pytest.approx(1.96, abs=0.06)


@pytest.mark.parametrize("items", [3, 10])
def test_equal_variances_need_tukeys_quantile(items: int) -> None:
    tukey = stats.studentized_range.ppf(0.95, items, np.inf) / np.sqrt(2)
    assert simultaneous_multiple(np.eye(items)) == pytest.approx(tukey, abs=0.06)


def test_many_items_and_items_without_variance_have_bonferronis() -> None:
    bonferroni = stats.norm.isf(0.025 / (120 * 119 / 2))
    assert simultaneous_multiple(np.eye(120)) == pytest.approx(bonferroni)
    assert simultaneous_multiple(np.zeros((3, 3))) == pytest.approx(stats.norm.isf(0.025 / 3))


def test_ranges_hold_for_all_items_at_once() -> None:
    """Where differences are small everything counts, and the share of misses is at most 5 %."""
    covariance_KK = some_covariance(6)
    truth_K = np.linspace(0.03, 0, 6) * np.sqrt(covariance_KK.diagonal().max())
    draws = np.random.default_rng(1).multivariate_normal(truth_K, covariance_KK, size=600)
    multiple, std_KK = simultaneous_multiple(covariance_KK), difference_std(covariance_KK)
    off_SKK = np.abs((draws - truth_K)[:, :, None] - (draws - truth_K)[:, None])
    beyond_S = (off_SKK > multiple * std_KK + 1e-9).any(axis=(1, 2))
    assert beyond_S.mean() == pytest.approx(0.05, abs=0.025)
    wrong = 0
    for draw_K in draws:
        better_KK = draw_K[:, None] - draw_K > multiple * std_KK + 1e-9
        best_K, worst_K = rank_ranges(better_KK)
        wrong += not ((best_K <= np.arange(1, 7)) & (np.arange(1, 7) <= worst_K)).all()
    assert wrong / len(draws) <= 0.05 + 0.025


def test_ranges_of_a_board() -> None:
    theta_K = np.array([0.0, 10.0, 0.1])
    better_KK = told_apart(theta_K, 0.01 * np.eye(3))
    best_K, worst_K = rank_ranges(better_KK)
    assert (best_K.tolist(), worst_K.tolist()) == ([2, 1, 2], [3, 1, 3])


def test_differences_count_correlations() -> None:
    covariance_KK = np.array([[2.0, 1.9], [1.9, 2.0]])
    assert difference_std(covariance_KK)[0, 1] == pytest.approx(np.sqrt(0.2))
