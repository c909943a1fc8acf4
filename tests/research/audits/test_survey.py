"""Audits of a survey's release, and of its seeded faults."""

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.survey import audit_survey, one_answer


@pytest.mark.parametrize(
    # Two vectors without negative numbers are apart by √2 of their lengths, and noise is for 2.
    ("adjacency", "least", "most"),
    [(Adjacency.ADD_REMOVE, 0.9, 1.02), (Adjacency.REPLACE, 0.5, 0.75)],
)
def test_an_audit_comes_as_near_to_the_claim_as_answers_do(adjacency, least, most):
    measured = audit_survey(Task(adjacency, 4.0, 30_000, Randomness(0)))
    assert measured.lower <= measured.claimed <= 4.0
    assert measured.fit is not None
    assert least * measured.claimed < measured.fit < most * measured.claimed


def test_the_canary_always_answers_alike():
    answers = one_answer(0, 7)
    assert answers.counts_U.tolist() == [7]
    assert (answers.place_JQ == answers.place_JQ[0]).all()
