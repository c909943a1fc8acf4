"""Tests of where things stand in a voter's vector, and how long it can be."""

import math

import numpy as np
import pytest

from murmuration.ranking.layout import VoteLayout, ballot_weight


@pytest.mark.parametrize("k", [2, 3, 5, 9])
def test_no_ballot_moves_net_scores_by_more_than_a_vote_does(k):
    ranked_K = ballot_weight("ranking", k) * (k - 1 - 2 * np.arange(k))
    best_K = ballot_weight("top-1", k) * np.array([k - 1] + [-1] * (k - 1))
    assert np.linalg.norm(ranked_K) == pytest.approx(math.sqrt(2))
    assert np.linalg.norm(best_K) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("items", [2, 3, 20])
@pytest.mark.parametrize("cap", [1, 10, 40])
def test_the_bound_is_that_of_votes_or_less(items, cap):
    layout = VoteLayout(items=items, cap=cap)
    assert layout.net_norm <= math.sqrt(2) * cap + 1e-9
    assert layout.net_norm < layout.clip_norm < 1.13 * layout.net_norm
    if items == 2 or cap == 1:  # whoever votes alike is not weighed less for it
        assert layout.net_norm == pytest.approx(math.sqrt(2) * cap)


def test_a_voter_with_one_order_comes_to_what_is_expected_of_them():
    """2M + M(M − 1)‖μ‖², by simulation."""
    items, cap, rng = 6, 12, np.random.default_rng(0)
    first = rng.integers(0, items, (20_000, cap))
    second = (first + rng.integers(1, items, first.shape)) % items
    net = np.zeros((20_000, items))
    for better, worse in zip(np.minimum(first, second).T, np.maximum(first, second).T, strict=True):
        np.add.at(net, (np.arange(20_000), better), 1)
        np.add.at(net, (np.arange(20_000), worse), -1)
    usual = math.sqrt((net**2).sum(axis=1).mean())
    assert VoteLayout(items=items, cap=cap).net_norm == pytest.approx(1.2 * usual, rel=0.01)


@pytest.mark.parametrize("pairing", ["public", "voters"])
def test_what_is_written_is_read(pairing):
    layout = VoteLayout(items=4, cap=5, boards=2, pairing=pairing)
    sum_V = np.random.default_rng(0).standard_normal(layout.size)
    numbers = layout.read(sum_V)
    assert numbers["net_BK"].ravel() == pytest.approx(sum_V[:8])
    weight = layout.weights["votes"]
    assert numbers["votes_B"] == pytest.approx(sum_V[layout.places["votes"]] / weight)
    assert (numbers["pair_counts_BKK"] is None) == (pairing == "public")
    if pairing == "voters":
        counts_KK = numbers["pair_counts_BKK"][1]
        assert (counts_KK == counts_KK.T).all() and not np.diag(counts_KK).any()
        place = layout.places["pair_counts"].start + layout.pairs
        place += int(layout.pair_place(np.array(3), np.array(1)))
        assert counts_KK[1, 3] == pytest.approx(sum_V[place] / layout.weights["pair_counts"])


def test_noise_grows_as_weights_fall():
    layout = VoteLayout(items=4, cap=5)
    noise = layout.noise(6.0)
    assert noise.net == 6.0 and noise.pair_counts == 0.0
    assert noise.votes == pytest.approx(6.0 / layout.weights["votes"])
    assert VoteLayout(items=4, cap=5, pairing="voters").noise(6.0).pair_counts == 12.0


def test_pairs_have_places_of_their_own():
    layout = VoteLayout(items=7, cap=1)
    first, second = np.triu_indices(7, 1)
    assert layout.pair_place(first, second).tolist() == list(range(21))
    assert layout.pair_place(second, first).tolist() == list(range(21))
