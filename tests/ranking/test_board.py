"""Boards from releases: right where votes say enough, finite and modest where they say nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_votes import made_up_release
from scipy import stats

from murmuration.ranking.arena import Arena
from murmuration.ranking.board import fit_board
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import RankingRelease
from murmuration.research.reproductions.ranking.released import item_votes, release


def released(arena: Arena, epsilon: float | None, pairing: str = "public", seed: int = 0):
    layout = VoteLayout(items=arena.items, cap=10, pairing=pairing)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    votes = item_votes(arena.votes(), arena.items)
    return release(votes, arena.names, layout, epsilon, rng).board(0)


@pytest.mark.parametrize("pairing", ["public", "voters"])
@pytest.mark.parametrize("tie", [0.0, 0.3])
def test_a_private_board_is_near_the_truth(pairing: str, tie: float) -> None:
    arena = Arena(voters=3000, items=8, tie=tie)
    board, truth = fit_board(released(arena, 1.0, pairing)), arena.truth()
    assert stats.spearmanr(board.scores_K, truth.theta_K).statistic > 0.9
    assert np.abs(board.elo_K - truth.elo_K).max() < 2 * board.error_K.max() < 120
    assert board.tie == pytest.approx(truth.tie, abs=0.1)


def test_ties_of_which_noise_may_be_all_are_none() -> None:
    assert fit_board(released(Arena(voters=300, items=5, tie=0.0), 1.0)).tie == 0.0


def test_a_board_is_a_function_of_its_release() -> None:
    one = released(Arena(voters=300, items=5), 1.0)
    first, second = fit_board(one), fit_board(RankingRelease.from_json(one.to_json()))
    assert (first.scores_K == second.scores_K).all()
    assert (first.covariance_KK == second.covariance_KK).all()
    assert [part.tolist() for part in first.ranks] == [part.tolist() for part in second.ranks]


def test_who_would_win_between_two() -> None:
    board = fit_board(released(Arena(voters=3000, items=6, tie=0.3), 1.0))
    strong, weak = (board.items[board.order[place]] for place in (0, -1))
    meeting, back = board.between(strong, weak), board.between(weak, strong)
    assert meeting.low < meeting.win < meeting.high and meeting.win > 0.7 and meeting.apart
    assert meeting.win + back.win == pytest.approx(1) and meeting.low + back.high == pytest.approx(
        1
    )
    assert meeting.points == pytest.approx(board.elo_K.max() - board.elo_K.min())
    assert 0 < meeting.tie < 0.15 and meeting.tie == back.tie
    win_KK, low_KK, _ = board.wins()
    i, j = board.items.index(strong), board.items.index(weak)
    assert (win_KK[i, j], low_KK[i, j]) == (meeting.win, meeting.low)
    assert meeting.win == pytest.approx(1 / (1 + 10 ** (-meeting.points / 400)))
    with pytest.raises(KeyError):
        board.between(strong, "nobody")


def test_one_voter_moves_nothing_by_more_than_is_said() -> None:
    """Exactly released boards with and without a voter, of the worst voters that there can be."""
    arena = Arena(voters=400, items=5, tie=0.0)
    votes = item_votes(arena.votes(), 5)
    layout = VoteLayout(items=5, cap=10)
    before = release(votes, arena.names, layout, None, np.random.default_rng(0)).board(0)
    board = fit_board(before)
    for best in range(5):
        net_K = np.where(np.arange(5) == best, 1.0, -0.25)
        net_K *= layout.clip_norm / np.linalg.norm(net_K)
        after = RankingRelease.from_json({**before.to_json(), "net_BK": before.net_BK + net_K})
        moved_K = np.abs(fit_board(after).elo_K - board.elo_K)
        assert moved_K.max() < 1.05 * board.sway
    assert moved_K.max() > 0.3 * board.sway


def swept(pairing: str, noise: float, seed: int = 0) -> RankingRelease:
    """Return the release of 600 votes, all of which `a` is in, and wins."""
    layout = VoteLayout(items=4, cap=1, pairing=pairing)  # type: ignore[arg-type]
    exact = layout.read(np.zeros(layout.size))
    exact["net_BK"] = np.array([[600.0, -200.0, -200.0, -200.0]])
    exact["variance_BK"] = np.array([[600.0, 200.0, 200.0, 200.0]])
    exact["votes_B"] = exact["squares_B"] = exact["voters_B"] = np.array([600.0])
    if pairing == "voters":
        exact["pair_counts_BKK"] = np.zeros((1, 4, 4))
        exact["pair_counts_BKK"][0, 0, 1:] = exact["pair_counts_BKK"][0, 1:, 0] = 200.0
    drawn = layout.read(noise * np.random.default_rng(seed).standard_normal(layout.size))
    numbers = {n: value if value is None else value + drawn[n] for n, value in exact.items()}
    return made_up_release(layout, noise, **numbers)


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_more_wins_than_meetings_are_said_and_tell_nobody_apart(noise: float) -> None:
    board = fit_board(swept("public", noise))
    assert board.impossible == ("a",)
    assert not board.better_KK.any()
    chosen = fit_board(swept("voters", noise))
    assert chosen.impossible == ()
    for each in (board, chosen):
        assert np.abs(each.elo_K - 1000).max() < 1200


def test_pairs_that_are_drawn_alike_are_not_said_to_be_impossible() -> None:
    for seed in range(5):
        for epsilon in (None, 0.3, 3.0):
            arena = Arena(voters=200, items=10, seed=seed)
            assert fit_board(released(arena, epsilon, seed=seed)).impossible == ()


def test_an_item_that_nobody_voted_on_is_marked() -> None:
    release_ = swept("voters", 2.0)
    net_BK, counts_BKK = release_.net_BK.copy(), release_.pair_counts_BKK.copy()  # type: ignore[union-attr]
    net_BK[0, 3], counts_BKK[0, 3], counts_BKK[0, :, 3] = 1.0, 1.0, 1.0
    counts_BKK[0, 3, 3] = 0.0
    board = fit_board(replace(release_, net_BK=net_BK, pair_counts_BKK=counts_BKK))
    assert board.voted_K.tolist() == [True, True, True, False]
    assert fit_board(swept("public", 2.0)).voted_K.all()


@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e7]),
    items=st.integers(2, 7),
    pairing=st.sampled_from(["public", "voters"]),
)
def test_noise_alone_gives_a_finite_board(seed, size, items, pairing) -> None:
    rng = np.random.default_rng(seed)
    layout = VoteLayout(items=items, cap=3, pairing=pairing)
    sums = layout.read(size * rng.standard_normal(layout.size))
    sums["votes_B"] = np.array([3.0])
    board = fit_board(made_up_release(layout, size, **sums))
    assert np.isfinite(board.scores_K).all() and abs(board.scores_K.sum()) < 1e-6
    assert np.isfinite(board.error_K).all() and (board.error_K >= 0).all()
    best_K, worst_K = board.ranks
    assert (best_K >= 1).all() and (best_K <= worst_K).all() and (worst_K <= items).all()
    assert np.linalg.eigvalsh(board.covariance_KK).min() > -1e-6 * board.covariance_KK.max() - 1e-9
    if size == 1e7:  # then the prior alone is left: 980 points, less what the mean takes
        assert board.error_K.min() > 600


def test_several_boards_are_taken_one_by_one() -> None:
    arena = Arena(voters=50, items=3)
    votes = item_votes(arena.votes(), 3, boards=2)
    both = release(
        votes, arena.names, VoteLayout(items=3, cap=5, boards=2), 1.0, np.random.default_rng(0)
    )
    with pytest.raises(ValueError, match="choose one"):
        fit_board(both)
    assert fit_board(both.board(1)).name == "board 1"
