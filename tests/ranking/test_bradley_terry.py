"""Strengths from sums of votes: optimality, known cases, and what noise can do to the sums."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murmuration.ranking.bradley_terry import (
    ELO_PER_UNIT,
    Strengths,
    curvature,
    denoised,
    laplacian,
    strengths,
)


def counts(items: int, seed: int, most: float = 100.0) -> np.ndarray:
    table_KK = np.triu(np.random.default_rng(seed).uniform(1, most, (items, items)), 1)
    return table_KK + table_KK.T


def sums(theta_K: np.ndarray, pairs_KK: np.ndarray, tie: float) -> tuple[np.ndarray, float]:
    """Return the expected net scores and number of ties."""
    model = Strengths(theta_K, tie)
    return (pairs_KK * model.margin_KK).sum(axis=1), float((pairs_KK * model.tie_KK).sum() / 2)


@pytest.mark.parametrize("tie", [0.0, 0.3, 4.0])
@pytest.mark.parametrize("items", [2, 7])
def test_expected_sums_give_the_strengths_back(items: int, tie: float) -> None:
    theta_K = np.random.default_rng(1).normal(size=items)
    theta_K -= theta_K.mean()
    pairs_KK = counts(items, 2)
    net_K, ties = sums(theta_K, pairs_KK, tie)
    fitted = strengths(net_K, pairs_KK, ridge=1e-9, ties=ties if tie else None)
    assert fitted.theta_K == pytest.approx(theta_K, abs=1e-6)
    assert fitted.tie == pytest.approx(tie, abs=1e-6)


def test_two_items_are_the_log_odds() -> None:
    pairs_KK = np.array([[0.0, 40.0], [40.0, 0.0]])
    fitted = strengths(np.array([20.0, -20.0]), pairs_KK, ridge=1e-9)  # 30 wins, 10 losses
    assert np.diff(fitted.theta_K)[0] == pytest.approx(-np.log(3.0), abs=1e-6)
    assert fitted.elo_K.mean() == pytest.approx(1000.0)
    assert -np.diff(fitted.elo_K)[0] == pytest.approx(400 * np.log10(3.0), abs=1e-4)


def test_chances_add_up_to_one() -> None:
    model = Strengths(np.array([-40.0, 0.0, 1.0, 30.0]), 0.5)
    assert model.win_KK + model.win_KK.T + model.tie_KK == pytest.approx(np.ones((4, 4)))
    assert model.win_KK[3, 0] == pytest.approx(1.0)


def test_curvature_is_the_slopes_derivative() -> None:
    theta_K, tie, step = np.array([0.5, -0.2, -0.3]), 0.4, 1e-6
    pairs_KK = counts(3, 3)

    def slopes(point: np.ndarray) -> np.ndarray:
        net_K, ties = sums(point[:3], pairs_KK, float(np.exp(point[3])))
        return np.append(net_K / 2, ties)

    point = np.append(theta_K, np.log(tie))
    numeric = [
        (slopes(point + step * unit) - slopes(point - step * unit)) / (2 * step)
        for unit in np.eye(4)
    ]
    assert curvature(Strengths(theta_K, tie), pairs_KK) == pytest.approx(
        np.array(numeric), abs=1e-5
    )


@given(
    net=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8),
    scale=st.floats(0.0, 1e5),
    ties=st.one_of(st.none(), st.floats(-1e6, 1e7)),
    ridge=st.floats(1e-2, 1e3),
)
@example(net=[0.0, 0.0, 11643.0], scale=3491.0, ties=11048.0, ridge=1.0)
@example(net=[0.0, 0.0, 494925.0], scale=69705.0, ties=30361.0, ridge=1.0)  # ν fell to 0
def test_whatever_the_noise_the_answer_is_finite_and_optimal(net, scale, ties, ridge) -> None:
    net_K = np.array(net)
    pairs_KK = counts(len(net), 4, 2.0) * scale
    fitted = strengths(net_K, pairs_KK, ridge=ridge, ties=ties)
    assert np.isfinite(fitted.theta_K).all() and abs(fitted.theta_K.sum()) < 1e-6 * (
        1 + np.abs(fitted.theta_K).max()
    )
    expected_K, _ = sums(fitted.theta_K, pairs_KK, fitted.tie)
    slope_K = (expected_K - net_K + net_K.mean()) / 2 + ridge * fitted.theta_K
    if beyond(net_K - net_K.mean(), pairs_KK) <= 0.0:
        assert np.abs(slope_K).max() <= 1e-5 * (1 + np.abs(net_K).max() + scale)


def beyond(net_K: np.ndarray, pairs_KK: np.ndarray) -> float:
    """Return by how much some items won more from all others than there were votes between them:
    of all sets of items, the one of which that is most."""
    sets = (np.array(each) for each in itertools.product((False, True), repeat=len(net_K)))
    return max(net_K[each].sum() - pairs_KK[np.ix_(each, ~each)].sum() for each in sets)


@pytest.mark.parametrize("pairs", ["alike", "others apart"])
@pytest.mark.parametrize("tie", [None, 20.0])
def test_more_wins_than_votes_count_as_all_votes(pairs: str, tie: float | None) -> None:
    """50,000 points were given for twice as many wins as there were meetings."""
    pairs_KK = 100.0 * (1.0 - np.eye(4))
    if pairs == "others apart":
        pairs_KK[1:, 1:] = 0.0
    net_K = np.array([300.0, -100.0, -100.0, -100.0])
    possible = strengths(net_K, pairs_KK, ridge=0.1, ties=tie)
    for times in (1.01, 2.0, 1e3, 1e6):
        fitted = strengths(times * net_K, pairs_KK, ridge=0.1, ties=tie)
        assert fitted.theta_K == pytest.approx(possible.theta_K, rel=0.1 if tie else 0.02)


@given(net=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=7), seed=st.integers(0, 99))
def test_no_net_scores_give_more_than_votes_and_the_prior_can_carry(net, seed) -> None:
    """Of two neighbours in strength the votes between what is above and below them decide: had all
    been won, the distance would be logarithmic in them."""
    net_K, pairs_KK, ridge = np.array(net), counts(len(net), seed), 0.1
    theta_K = np.sort(strengths(net_K, pairs_KK, ridge=ridge).theta_K)
    most = 2.0 * math.log1p(pairs_KK.sum() / ridge)
    assert np.diff(theta_K).max() < most


def test_who_never_lost_is_finite_and_first() -> None:
    pairs_KK = np.array([[0.0, 5, 5], [5, 0, 5], [5, 5, 0]])
    fitted = strengths(np.array([10.0, -5.0, -5.0]), pairs_KK, ridge=0.1)
    assert fitted.theta_K.argmax() == 0
    assert fitted.theta_K[1] == pytest.approx(fitted.theta_K[2])
    assert fitted.theta_K[0] * ELO_PER_UNIT < 2000


@pytest.mark.parametrize(
    ("pairs", "ridge"),
    [
        ([[0.0, -1.0], [-1.0, 0.0]], 1.0),
        ([[0.0, 1.0], [2.0, 0.0]], 1.0),
        ([[1.0, 1.0], [1.0, 0.0]], 1.0),
        ([[0.0, np.nan], [np.nan, 0.0]], 1.0),
        ([[0.0, 1.0], [1.0, 0.0]], 0.0),
    ],
)
def test_what_is_no_table_of_counts_is_refused(pairs, ridge) -> None:
    with pytest.raises(ValueError):
        strengths(np.zeros(2), np.array(pairs), ridge=ridge)


@given(
    items=st.integers(2, 9),
    seed=st.integers(0, 1000),
    std=st.floats(0, 1e4),
    votes=st.floats(-1e3, 1e6),
)
def test_a_table_without_noise_has_no_negative_count_and_the_total(items, seed, std, votes) -> None:
    noise_KK = np.triu(np.random.default_rng(seed).normal(0, std, (items, items)), 1)
    result_KK, left = denoised(counts(items, seed) + noise_KK + noise_KK.T, votes, std)
    assert result_KK.min() >= 0 and not result_KK.diagonal().any()
    assert (result_KK == result_KK.T).all() and 0 <= left <= std
    assert result_KK.sum() / 2 == pytest.approx(max(votes, 1.0), rel=1e-6)


def test_a_table_without_noise_stays_and_one_of_noise_becomes_even() -> None:
    table_KK = counts(12, 5)
    result_KK, left = denoised(table_KK, table_KK.sum() / 2, 0.0)
    assert result_KK == pytest.approx(table_KK) and left == 0.0
    noise_KK = np.triu(np.random.default_rng(6).normal(0, 1e4, (12, 12)), 1)
    noisy_KK, left = denoised(table_KK + noise_KK + noise_KK.T, 660.0, 1e4)
    off_P = noisy_KK[np.triu_indices(12, 1)]
    raw_P = np.maximum((table_KK + noise_KK)[np.triu_indices(12, 1)], 0)
    assert left < 1e4 / 2
    assert np.square(off_P - 10).sum() < np.square(raw_P - 10).sum() / 100


def test_shrinking_brings_tables_nearer() -> None:
    """On average over noise, nearer to the counts than setting negative ones to zero."""
    table_KK, std, errors = counts(15, 7), 60.0, []
    rows_P, columns_P = np.triu_indices(15, 1)
    for seed in range(40):
        noise_KK = np.triu(np.random.default_rng(seed).normal(0, std, (15, 15)), 1)
        noisy_KK = table_KK + noise_KK + noise_KK.T
        result_KK, _ = denoised(noisy_KK, table_KK.sum() / 2, std)
        errors.append(
            [np.square(part - table_KK)[rows_P, columns_P].sum() for part in
             (result_KK, np.maximum(noisy_KK, 0))]
        )  # fmt: skip
    ours, plain = np.mean(errors, axis=0)
    assert ours < 0.5 * plain


def test_a_laplacian_is_the_sum_over_pairs() -> None:
    weights_KK = counts(4, 8)
    total_KK = np.zeros((4, 4))
    for i in range(4):
        for j in range(i):
            difference_K = np.eye(4)[i] - np.eye(4)[j]
            total_KK += weights_KK[i, j] * np.outer(difference_K, difference_K)
    assert laplacian(weights_KK) == pytest.approx(total_KK)
