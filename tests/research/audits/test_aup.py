"""Audits of AUP: what is published does not hold, what is corrected does."""

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.aup import (
    TARGETS,
    audit_corrected,
    audit_published,
    audit_published_mean,
    audit_published_test,
)


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


@pytest.mark.slow
def test_the_published_test_costs_more_than_half_of_epsilon():
    target = TARGETS["aup:published:test"]
    found = audit_published_test(task(epsilon=target.epsilon, trials=target.trials))
    assert found.claimed == 1.0
    assert found.lower > found.claimed


def test_the_corrected_filter_is_consistent():
    found = audit_corrected(task(epsilon=8.0, trials=300))
    assert found.lower <= found.claimed
    assert found.claimed == pytest.approx(8.0, rel=1e-3)
