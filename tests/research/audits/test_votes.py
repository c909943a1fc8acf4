"""Audits of a board's release."""

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.votes import (
    LAYOUT,
    audit_votes,
    one_sided,
)


@pytest.mark.parametrize(
    # Whose votes turn round leaves the counts beside net scores as they were.
    ("adjacency", "share"),
    [(Adjacency.ADD_REMOVE, 0.9), (Adjacency.REPLACE, 0.75)],
)
def test_an_audit_comes_near_to_the_claim_and_not_above_it(adjacency, share):
    measured = audit_votes(Task(adjacency, 4.0, 50_000, Randomness(0)))
    assert measured.lower <= measured.claimed <= 4.0
    assert measured.fit is not None
    assert share * measured.claimed < measured.fit < 1.02 * measured.claimed


def test_the_canary_votes_more_often_than_counts():
    votes = one_sided(0, 1)
    assert int(votes.counts_U[0]) > LAYOUT.cap
    assert set(votes.better_R) == {0} and set(votes.worse_R) == {1}
