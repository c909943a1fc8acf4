"""Audits of AUP: what is published does not hold, what is corrected does."""

import numpy as np
import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.aup import (
    TARGETS,
    audit_corrected,
    audit_published,
    audit_published_mean,
    audit_published_test,
    concentration_scores,
)
from murmuration.research.audits.selection.threshold import outcomes


def task(adjacency=Adjacency.REPLACE, epsilon=1.0, trials=600):
    return Task(adjacency, epsilon, trials, Randomness(0))


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.slow
def test_the_published_mean_step_costs_more_than_is_claimed(adjacency):
    found = audit_published_mean(task(adjacency))
    assert 0.3 < found.claimed < 0.5
    assert found.lower > 5 * found.claimed
    assert TARGETS["aup:published:mean"].verdict(found) == "violated, as documented"


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.slow
def test_a_published_round_costs_more_than_is_claimed(adjacency):
    found = audit_published(task(adjacency))
    assert 0.9 < found.claimed <= 1.0
    assert found.lower > 2 * found.claimed


@pytest.mark.parametrize(
    ("adjacency", "moves", "cost"),
    [(Adjacency.ADD_REMOVE, (1.99, 0.01), 1.35), (Adjacency.REPLACE, (1.98, -1.98), 1.7)],
)
def test_the_score_moves_by_more_than_the_published_test_has_noise_for(adjacency, moves, cost):
    first_K, second_K = concentration_scores(adjacency)
    np.testing.assert_allclose((first_K - second_K)[:-1], moves[0])
    assert (first_K - second_K)[-1] == pytest.approx(moves[1])
    test = AboveThreshold(80.0, 1.0, 1.0, adjacency)
    first_J, second_J = outcomes(test, first_K), outcomes(test, second_K)
    assert np.log(first_J / second_J).max() > cost
    assert first_J[np.log(first_J / second_J) > cost].sum() > 0.02, "too rare to be seen"


@pytest.mark.parametrize(
    ("adjacency", "trials"), [(Adjacency.ADD_REMOVE, 100_000), (Adjacency.REPLACE, 10_000)]
)
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_published_test_costs_more_than_half_of_epsilon(adjacency, trials):
    target = TARGETS["aup:published:test"]
    found = audit_published_test(Task(adjacency, target.epsilon, trials, Randomness(1)))
    assert found.claimed == 1.0
    assert target.verdict(found) == "violated, as documented"


def test_the_corrected_filter_is_consistent():
    found = audit_corrected(task(epsilon=8.0, trials=300))
    assert found.lower <= found.claimed
    assert found.claimed == pytest.approx(8.0, rel=1e-3)
