"""The private median: its exact distribution, its ratios between neighbours, and its charge."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting.events import PureChoice
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.median import GRID, histogram, probabilities, release_median
from murmuration.privacy.mechanisms.randomness import Randomness

COUNTS = st.lists(st.integers(1, 700), min_size=1, max_size=40)


@pytest.fixture
def make_ledger(tmp_path):
    def make(adjacency=Adjacency.ADD_REMOVE, budget=None):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        return Ledger(path, adjacency=adjacency, delta=1e-5, budget=budget)

    return make


def test_histogram():
    counts = [1, 1, 2, 5, 6, 7, 512, 513, 10**6]
    found = histogram(np.array(counts))
    assert found.sum() == len(counts)
    expected = dict.fromkeys(GRID, 0) | {1: 2, 2: 1, 6: 2, 8: 1, 512: 3}
    assert found.tolist() == list(expected.values())
    assert histogram(np.array([], dtype=np.int64)).tolist() == [0.0] * len(GRID)


def largest_log_ratio(one_J, other_J):
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nanmax(np.abs(np.log(one_J) - np.log(other_J))))


@given(COUNTS, st.integers(1, 700), st.floats(0.01, 3.0))
def test_a_user_who_comes_or_goes_changes_odds_by_epsilon_at_most(counts, more, epsilon):
    adjacency = Adjacency.ZERO_OUT
    one = probabilities(histogram(np.array(counts)), epsilon, adjacency)
    other = probabilities(histogram(np.array([*counts, more])), epsilon, adjacency)
    assert largest_log_ratio(one, other) <= epsilon * (1 + 1e-9)
    assert one.sum() == pytest.approx(1.0)


@given(COUNTS, st.integers(1, 700), st.floats(0.01, 3.0))
def test_a_replaced_user_too(counts, other_count, epsilon):
    adjacency = Adjacency.REPLACE
    one = probabilities(histogram(np.array(counts)), epsilon, adjacency)
    replaced = [other_count, *counts[1:]]
    other = probabilities(histogram(np.array(replaced)), epsilon, adjacency)
    assert largest_log_ratio(one, other) <= epsilon * (1 + 1e-9)


def test_the_bound_is_nearly_attained_so_nothing_is_wasted():
    one = probabilities(histogram(np.array([1] * 30 + [100] * 30)), 1.0, Adjacency.ADD_REMOVE)
    other = probabilities(histogram(np.array([1] * 30 + [100] * 31)), 1.0, Adjacency.ADD_REMOVE)
    assert largest_log_ratio(one, other) > 0.5
    # Without the half that a swap needs, replacing would cost more than it says.
    full = [
        probabilities(histogram(np.array(c)), 2.0, Adjacency.REPLACE)
        for c in ([1] * 31 + [100] * 30, [1] * 30 + [100] * 31)
    ]
    assert 1.0 < largest_log_ratio(*full) <= 2.0


@given(COUNTS)
def test_with_much_to_spend_it_is_the_median(counts):
    found = probabilities(histogram(np.array(counts)), 400.0, Adjacency.ADD_REMOVE)
    best = GRID[int(found.argmax())]
    bucket = int(histogram(np.array(counts)).cumsum().searchsorted(len(counts) / 2))
    ties = np.flatnonzero(found > found.max() * 0.999)
    assert best == GRID[bucket] or bucket in ties


def test_near_the_median_of_a_thousand_users(make_ledger):
    counts = np.random.default_rng(0).geometric(0.15, size=1000)
    users_J = histogram(counts)
    ranks = []
    for seed in range(40):
        with make_ledger() as ledger:
            size = release_median(
                users_J, 0.02, adjacency=ledger.adjacency, ledger=ledger, source=Randomness(seed)
            )
            assert ledger.spent() == {PureChoice(0.02): 1}
        ranks.append(float((counts <= size).mean()))
    assert all(0.2 < rank < 0.8 for rank in ranks)
    assert len(set(ranks)) > 1


def test_every_release_is_charged_and_drawn_anew(make_ledger):
    users_J = histogram(np.arange(1, 41))
    with make_ledger() as ledger:
        terms = {"adjacency": ledger.adjacency, "ledger": ledger, "source": Randomness(3)}
        told = [release_median(users_J, 0.1, **terms) for _ in range(20)]
        assert [charge.attempt for charge in ledger.charges] == [*range(20)]
        assert len(set(told)) > 1
    with make_ledger(budget=0.05) as ledger:
        terms = {"adjacency": ledger.adjacency, "ledger": ledger, "source": Randomness(3)}
        with pytest.raises(BudgetExceeded):
            release_median(users_J, 0.1, **terms)


def test_public_counts_are_free_and_exact(make_ledger):
    with make_ledger(Adjacency.REPLACE_LABELS) as ledger:
        terms = {"adjacency": ledger.adjacency, "ledger": ledger, "source": Randomness(None)}
        assert release_median(histogram(np.array([1, 5, 5, 6, 90])), 0.1, **terms) == 6
        assert release_median(histogram(np.array([1, 1, 1, 600])), 0.1, **terms) == 1
        assert ledger.charges == []


def test_the_released_value_follows_the_distribution(make_ledger):
    users_J = histogram(np.array([1] * 3 + [4] * 4 + [30] * 3))
    expected_J = probabilities(users_J, 0.5, Adjacency.ADD_REMOVE)
    with make_ledger() as ledger:
        draws = [
            release_median(
                users_J, 0.5, adjacency=ledger.adjacency, ledger=ledger, source=Randomness(seed)
            )
            for seed in range(600)
        ]
    found_J = np.array([draws.count(size) for size in GRID])
    errors = (found_J - 600 * expected_J) / np.sqrt(600 * expected_J * (1 - expected_J))
    assert np.abs(errors).max() < 5.0
    assert math.isclose(found_J.sum(), 600)
