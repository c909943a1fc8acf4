"""Boards where length is held alike: strengths come back that length had hidden; intervals cover;
no voter exceeds the bound."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmuration.preference.ranking.board import Board, fit_board
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.release import RankingRelease
from murmuration.preference.ranking.votes import ItemVotes
from murmuration.research.reproductions.ranking.released import item_votes, release
from murmuration.sims.population.arena import Arena

POINTS = 60.0
ARENA = Arena(voters=1500, items=8, length_points=POINTS, most_votes=50)
FEW = Arena(voters=200, items=6, length_points=POINTS, most_votes=50)


def board_of(arena: Arena, epsilon: float | None, draw: int = 0, covariates: int = 1) -> Board:
    cap = 10 if epsilon else arena.most_votes
    layout = VoteLayout(items=arena.items, cap=cap, covariates=covariates)
    votes = item_votes(arena.votes(draw), arena.items)
    rng = np.random.default_rng([draw, 4])
    return fit_board(release(votes, arena.names, layout, epsilon, rng).board(0))


def error(board: Board, arena: Arena) -> float:
    return float(np.sqrt(np.mean((board.elo_K - arena.truth().elo_K) ** 2)))


@pytest.mark.parametrize("epsilon", [1.0, None])
def test_it_finds_what_length_had_hidden(epsilon: float | None) -> None:
    held, ignored = board_of(ARENA, epsilon), board_of(ARENA, epsilon, covariates=0)
    assert error(held, ARENA) < 0.6 * error(ignored, ARENA)
    (effect,) = held.effects
    assert effect.name == "length"
    # Voters who disagree make every effect smaller, that of length as that of strengths.
    flatter = ARENA.truth().theta_K.std() / ARENA.crowd_K.std()
    assert abs(effect.points - flatter * POINTS) < 1.5 * effect.error
    assert "Twice as much length" in str(effect)
    assert ignored.effects == ()


def test_where_length_is_nothing_it_takes_nothing_away() -> None:
    nobody_looks = replace(ARENA, length_points=1e-9)
    held, ignored = board_of(nobody_looks, None), board_of(nobody_looks, None, covariates=0)
    assert np.abs(held.elo_K - ignored.elo_K).max() < 8.0
    assert abs(held.effects[0].points) < 2.0 * held.effects[0].error


def test_where_noise_drowns_the_votes_it_is_no_worse_than_without() -> None:
    few = replace(FEW, voters=100)
    held = np.mean([error(board_of(few, 0.5, draw), few) for draw in range(20)])
    ignored = np.mean([error(board_of(few, 0.5, draw, 0), few) for draw in range(20)])
    assert held < 1.1 * ignored


@pytest.mark.parametrize("draw", range(5))
def test_of_two_voters_it_says_nothing_that_could_not_be(draw: int) -> None:
    board = board_of(replace(FEW, voters=2), 0.25, draw)
    assert np.abs(board.elo_K - 1000.0).max() < 2500.0
    assert 500.0 < board.error_K.max() < 2500.0
    assert abs(board.effects[0].points) < 500.0


def coverage(arena: Arena, epsilon: float | None, draws: int) -> tuple[float, float]:
    """Return the shares of 95 % intervals, of items and of the effect, that hold the truth."""
    truth_K = arena.truth().elo_K
    many = board_of(replace(arena, voters=40_000), None, draw=10**6)
    boards = [board_of(arena, epsilon, draw) for draw in range(draws)]
    items = [np.abs(board.elo_K - truth_K) < board.error_K for board in boards]
    effects = [
        abs(board.effects[0].points - many.effects[0].points) < board.effects[0].error
        for board in boards
    ]
    return float(np.mean(items)), float(np.mean(effects))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, None])
@pytest.mark.parametrize("arena", [FEW, ARENA], ids=["small", "larger"])
def test_intervals_of_500_boards_cover(arena: Arena, epsilon: float | None) -> None:
    items, effects = coverage(arena, epsilon, 500)
    assert 0.93 <= items <= 0.98
    assert 0.92 <= effects <= 0.99


def test_intervals_of_few_boards_cover() -> None:
    items, effects = coverage(FEW, 3.0, 40)
    assert 0.88 <= items <= 0.995
    assert effects >= 0.85


def votes_of(better, worse, covariates, tied=None) -> ItemVotes:
    """Return the votes of one voter."""
    count = len(better)
    return ItemVotes(
        torch.tensor([0, count]),
        np.arange(count + 1),
        np.array(better, dtype=np.int32),
        np.array(worse, dtype=np.int32),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=bool) if tied is None else np.array(tied),
        np.zeros(count, dtype=np.int32),
        4,
        1,
        covariates_RZ=np.array(covariates, dtype=np.float64).reshape(count, -1),
    )


def vector(votes: ItemVotes, layout: VoteLayout) -> np.ndarray:
    """Return what the voter adds."""
    count = len(votes.board_J)
    (chunk,) = votes.vectors(layout, layout.clip_norm, np.arange(count), np.array([count]))
    return chunk[0]


def test_sums_against_a_loop() -> None:
    layout = VoteLayout(items=4, cap=20, covariates=2)
    z = [[0.1, -0.2], [0.3, 0.1], [-0.2, 0.05]]
    votes = votes_of([0, 1, 2], [1, 3, 0], z, [False, False, True])
    read = layout.read(vector(votes, layout))
    q, items, squares = np.zeros(2), np.zeros((4, 2)), np.zeros((2, 2))
    for b, w, cov, tie in zip([0, 1, 2], [1, 3, 0], np.array(z), [0, 0, 1], strict=True):
        q += cov * (not tie)
        items[b] += cov
        items[w] -= cov
        squares += np.outer(cov, cov)
    assert read["covariate_net_BC"][0] == pytest.approx(q)
    assert read["covariate_items_BKC"][0] == pytest.approx(items)
    assert read["covariate_squares_BCC"][0] == pytest.approx(squares)
    assert read["covariate_variance_BC"][0] == pytest.approx(q**2)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.floats(-1e6, 1e6), st.floats(-1, 1)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 12),
    st.sampled_from(["public", "voters"]),
)
@settings(max_examples=60, deadline=None)
def test_no_voter_exceeds_the_bound(drawn, cap, pairing) -> None:
    layout = VoteLayout(items=4, cap=cap, pairing=pairing, covariates=2)
    drawn = drawn[:cap]
    better = [b for b, *_ in drawn]
    worse = [(b + step) % 4 for b, step, *_ in drawn]
    votes = votes_of(better, worse, [z for *_, x, y in drawn for z in (x, y)])
    assert np.linalg.norm(vector(votes, layout)) <= layout.clip_norm * (1 + 1e-9)


@pytest.mark.parametrize("pairing", ["public", "voters"])
def test_a_voter_who_always_votes_alike_attains_the_bound(pairing) -> None:
    layout = VoteLayout(items=4, cap=10, pairing=pairing, covariates=1)
    there = vector(votes_of([0] * 10, [1] * 10, [1.0] * 10), layout)
    assert np.linalg.norm(there) == pytest.approx(layout.clip_norm, rel=1e-9)


def test_covariates_beyond_the_bound_count_as_at_it() -> None:
    layout = VoteLayout(items=4, cap=3, covariates=1)
    outside, at = (vector(votes_of([0], [1], [z]), layout) for z in (50.0, 1.0))
    assert np.array_equal(outside, at)


def test_a_layout_says_what_it_is_for() -> None:
    for wrong in ({"kind": "ranking", "responses": 3}, {"boards": 2}, {"norm_order": 1}):
        with pytest.raises(ValueError, match="covariates are of pairs"):
            VoteLayout(items=4, cap=3, covariates=1, **wrong)  # type: ignore[arg-type]


def test_a_release_keeps_them() -> None:
    layout = VoteLayout(items=FEW.items, cap=10, covariates=1)
    rng = np.random.default_rng(0)
    released = release(item_votes(FEW.votes(), FEW.items), FEW.names, layout, 1.0, rng)
    again = RankingRelease.from_json(released.to_json())
    assert again.covariates == ("length",)
    one, other = fit_board(released.overall()), fit_board(again.overall())
    assert one.effects == other.effects
    assert np.array_equal(one.scores_K, other.scores_K)
