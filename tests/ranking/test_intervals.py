"""Intervals and ranges of ranks cover what they should, with noise and without, and not by being
wide."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from made_up_votes import made_up_release
from scipy import stats

from murmuration.ranking.arena import Arena
from murmuration.ranking.board import Board, fit_board
from murmuration.ranking.bradley_terry import PRIOR_STD, Strengths, curvature
from murmuration.ranking.intervals import (
    count_doubt,
    design_effects,
    difference_std,
    independent_covariance,
    noise_covariance,
    rank_ranges,
    simultaneous_multiple,
    told_apart,
)
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import Pairing, RankingRelease
from murmuration.research.reproductions.ranking.released import item_votes, release


def ring() -> np.ndarray:
    pairing_KK = np.zeros((15, 15))
    for item in range(15):
        for step in (1, 4):
            pairing_KK[item, (item + step) % 15] = pairing_KK[(item + step) % 15, item] = 1
    return pairing_KK


def skewed() -> np.ndarray:
    often_K = 1 / np.arange(1.0, 9.0)
    return np.outer(often_K, often_K) * (1 - np.eye(8))


@dataclass(frozen=True)
class Case:
    """An arena, and who chose its pairs."""

    arena: dict[str, Any]
    pairing: Pairing = "public"


CASES = {
    "small": Case({"voters": 200, "items": 6}),
    "uneven": Case({"voters": 2000, "items": 8, "pairing_KK": skewed()}, "voters"),
    "sparse": Case({"voters": 2000, "items": 15, "pairing_KK": ring()}, "voters"),
}


def board_of(arena: Arena, pairing: Pairing, epsilon: float | None, draw: int) -> Board:
    cap = 10 if epsilon else arena.most_votes
    layout = VoteLayout(items=arena.items, cap=cap, pairing=pairing)
    votes = item_votes(arena.votes(draw), arena.items)
    rng = np.random.default_rng([draw, 3])
    return fit_board(release(votes, arena.names, layout, epsilon, rng).board(0))


def coverage(case: Case, epsilon: float | None, tie: float, draws: int) -> float:
    """Return the share of 95 % intervals, over items and draws of voters, that hold the truth."""
    arena = Arena(**case.arena, tie=tie, most_votes=50)
    truth_K = arena.truth().elo_K
    boards = [board_of(arena, case.pairing, epsilon, draw) for draw in range(draws)]
    return float(np.mean([np.abs(board.elo_K - truth_K) < board.error_K for board in boards]))


@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("name", CASES)
def test_intervals_of_500_boards_cover(name: str, epsilon: float | None) -> None:
    assert 0.93 <= coverage(CASES[name], epsilon, 0.0, 500) <= 0.97


def test_intervals_with_ties_cover() -> None:
    assert 0.93 <= coverage(CASES["small"], 3.0, 0.2, 500) <= 0.97


def test_intervals_cover_where_noise_inflates_the_number_of_votes() -> None:
    """The twentieth of 500 boards whose number of votes is most too large."""
    arena = Arena(voters=60, items=6, most_votes=50)
    truth_K = arena.truth().elo_K
    boards = [board_of(arena, "public", 0.5, draw) for draw in range(500)]
    most = sorted(boards, key=lambda board: -board.votes)[:25]
    held = np.mean([np.abs(board.elo_K - truth_K) < board.error_K for board in most])
    assert 0.92 <= held <= 0.99


def test_a_number_of_votes_that_is_mostly_noise_widens_intervals_up_to_the_prior() -> None:
    small_K, large_K = np.full(3, 0.01), np.full(3, 2 * PRIOR_STD**2)
    assert count_doubt(1000.0, 0.0, small_K) == 1.0
    assert count_doubt(1000.0, 50.0, small_K) == pytest.approx(1.01**2)
    assert 1.0 < count_doubt(1000.0, 100.0, small_K) < count_doubt(1000.0, 500.0, small_K)
    assert count_doubt(1.0, 1e6, small_K) * 0.01 == pytest.approx(PRIOR_STD**2)
    assert count_doubt(1.0, 1e6, large_K) == 1.0


@pytest.mark.parametrize("epsilon", [1.0, None])
def test_intervals_of_few_boards_cover(epsilon: float | None) -> None:
    """40 boards of 6 items: a standard error of about .02, as errors of a board go together."""
    assert 0.89 <= coverage(CASES["small"], epsilon, 0.0, 40) <= 0.995


def two_sums(voters: int, each: int) -> RankingRelease:
    """Return sums of two items of which each voter always prefers the same, half of them each."""
    votes = float(voters * each)
    return made_up_release(
        VoteLayout(items=2, cap=each),
        variance_BK=np.full((1, 2), votes * each),
        votes_B=np.array([votes]),
        squares_B=np.array([votes * each]),
        voters_B=np.array([float(voters)]),
    )


def test_votes_of_one_voter_count_as_one() -> None:
    """Who always says the same ten times is one vote of ten times the size: an interval from 100
    voters with ten votes is that from 100 votes."""
    ten, one = fit_board(two_sums(100, 10)), fit_board(two_sums(100, 1))
    assert ten.error_K == pytest.approx(one.error_K, rel=0.02)
    pairs_KK = np.array([[0.0, 1000], [1000, 0]])
    effects_K = design_effects(Strengths(np.zeros(2)), two_sums(100, 10), pairs_KK)
    assert effects_K == pytest.approx([10, 10])


def test_noise_has_the_covariance_that_trials_have() -> None:
    """The equations, with noise on all sums, against 20,000 draws."""
    rng = np.random.default_rng(1)
    fitted = Strengths(np.array([0.8, 0.1, -0.9]), 0.4)
    rows_P, columns_P = np.triu_indices(3, 1)
    for pairing in ("public", "voters"):
        layout = VoteLayout(items=3, cap=5, pairing=pairing)
        noise = layout.noise(10.0)
        pairs_KK = 1000.0 * (1 - np.eye(3))
        sums = made_up_release(
            layout,
            10.0,
            votes_B=np.array([3000.0]),
            squares_B=np.array([9000.0]),
            ties_B=np.array([500.0]),
            voters_B=np.array([1000.0]),
            pair_counts_BKK=None if pairing == "public" else pairs_KK[None],
        )
        equations = np.zeros((20_000, 4))
        equations[:, :3] = rng.normal(0, noise.net / 2, (20_000, 3))
        equations[:, 3] = rng.normal(0, noise.ties, 20_000)
        if pairing == "public":
            drawn_SP = np.repeat(rng.normal(0, noise.votes / 3, (20_000, 1)), 3, axis=1)
        else:
            drawn_SP = rng.normal(0, noise.pair_counts, (20_000, 3))
        for p, (i, j) in enumerate(zip(rows_P, columns_P, strict=True)):
            moved_S = drawn_SP[:, p]
            equations[:, i] -= moved_S * fitted.margin_KK[i, j] / 2
            equations[:, j] += moved_S * fitted.margin_KK[i, j] / 2
            equations[:, 3] -= moved_S * fitted.tie_KK[i, j]
        trial_EE = np.cov(equations.T)
        result_EE = noise_covariance(fitted, sums, pairs_KK, noise.pair_counts)
        scale_E = np.sqrt(trial_EE.diagonal())
        assert (result_EE - trial_EE) / np.outer(scale_E, scale_E) == pytest.approx(0, abs=0.04)


def test_independent_votes_have_the_covariance_that_trials_have() -> None:
    rng = np.random.default_rng(2)
    fitted = Strengths(np.array([0.8, 0.1, -0.9]), 0.4)
    shares_P = np.array([0.5, 0.3, 0.2])
    rows_P, columns_P = np.triu_indices(3, 1)
    pair_S = rng.choice(3, 200_000, p=shares_P)
    i_S, j_S = rows_P[pair_S], columns_P[pair_S]
    coin_S, win_S = rng.random(200_000), fitted.win_KK[i_S, j_S]
    outcome_S = np.where(
        coin_S < win_S, 1, np.where(coin_S < win_S + fitted.win_KK[j_S, i_S], -1, 0)
    )
    vote_SE = np.zeros((200_000, 4))
    vote_SE[np.arange(200_000), i_S] = outcome_S / 2
    vote_SE[np.arange(200_000), j_S] = -outcome_S / 2
    vote_SE[:, 3] = outcome_S == 0
    pairs_KK = np.zeros((3, 3))
    pairs_KK[rows_P, columns_P] = 700 * shares_P
    pairs_KK += pairs_KK.T
    assert independent_covariance(fitted, pairs_KK, True) == pytest.approx(
        700 * np.cov(vote_SE.T), abs=3
    )
    assert independent_covariance(fitted, pairs_KK, False) == pytest.approx(
        curvature(fitted, pairs_KK)
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
