"""Releases of votes in arrays: exact sums by hand, caps, and noise as large as it says."""

import numpy as np
import pytest

from murmuration.ranking.arena import Votes
from murmuration.ranking.layout import VoteLayout
from murmuration.research.reproductions.ranking.released import (
    NO_BOUND,
    exact_sums,
    item_votes,
    noise_multiplier,
    with_noise,
)

VOTES = Votes(
    voter_V=np.array([0, 0, 1]),
    first_V=np.array([0, 2, 1]),
    second_V=np.array([1, 0, 2]),
    outcome_V=np.array([1, -1, 0]),
)


def test_sums_by_hand() -> None:
    layout = VoteLayout(items=3, cap=5, pairing="voters")
    rng = np.random.default_rng(0)
    exact = exact_sums(item_votes(VOTES, 3), layout, NO_BOUND, rng)
    one = with_noise(exact, ("a", "b", "c"), layout, None, rng)
    assert one.net_BK.tolist() == [[2.0, -1.0, -1.0]]
    assert one.variance_BK[0] == pytest.approx([4, 1, 1])
    assert one.votes_B[0] == pytest.approx(3) and one.squares_B[0] == pytest.approx(5)
    assert one.ties_B[0] == pytest.approx(1) and one.voters_B[0] == pytest.approx(2)
    assert one.pair_counts_BKK is not None
    assert one.pair_counts_BKK[0] == pytest.approx(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]))


def test_no_more_than_the_cap_counts_and_by_chance() -> None:
    layout, rng = VoteLayout(items=3, cap=1), np.random.default_rng(0)
    votes = item_votes(VOTES, 3)
    sums = [layout.read(exact_sums(votes, layout, NO_BOUND, rng)) for _ in range(40)]
    assert {round(float(s["votes_B"][0]), 9) for s in sums} == {2.0}  # type: ignore[index]
    assert len({tuple(s["net_BK"][0]) for s in sums}) == 2  # type: ignore[index]


def test_noise_is_as_large_as_the_release_says() -> None:
    layout, rng = VoteLayout(items=50, cap=10), np.random.default_rng(0)
    one = with_noise(np.zeros(layout.size), [str(n) for n in range(50)], layout, 1.0, rng)
    assert one.noise.net == pytest.approx(noise_multiplier(1.0) * layout.clip_norm)
    assert one.net_BK.std() == pytest.approx(one.noise.net, rel=0.35)
    assert one.variance_BK.std() == pytest.approx(one.noise.variance, rel=0.35)
    assert noise_multiplier(1.0) == pytest.approx(3.73, abs=0.01) and noise_multiplier(None) == 0
