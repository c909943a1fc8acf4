"""Audits of a board's release."""

import pytest

from murmuration.audits.votes import LAYOUT, audit_votes, one_sided
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import Task
from murmuration.privacy.mechanisms.randomness import Randomness


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_a_quick_audit_is_tight_and_consistent(adjacency):
    measured = audit_votes(Task(adjacency, 1.0, 20_000, Randomness(0)))
    assert measured.lower <= measured.claimed <= 1.0
    assert measured.fit is not None and 0.85 < measured.fit < 1.05


def test_the_canary_votes_more_often_than_counts():
    votes = one_sided(0, 1)
    assert int(votes.counts_U[0]) > LAYOUT.cap
    assert set(votes.better_R) == {0} and set(votes.worse_R) == {1}
