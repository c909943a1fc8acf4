"""Audit of discrete Gaussian noise."""

import pytest

import privacy.audit_discrete
from privacy.adjacency import Adjacency
from privacy.audit import Task
from privacy.audit_discrete import audit_discrete
from privacy.discrete import installed
from privacy.randomness import Randomness

TASK = Task(Adjacency.ADD_REMOVE, 2.0, 20_000, Randomness(0))


@pytest.mark.skipif(not installed(), reason="needs OpenDP")
def test_it_costs_about_what_a_gaussian_does():
    found = audit_discrete(TASK)
    assert 0.3 * found.claimed < found.lower <= found.claimed
    assert 0.7 * found.claimed < found.fit < 1.02 * found.claimed


def test_without_the_library_it_is_refused(monkeypatch):
    monkeypatch.setattr(privacy.audit_discrete, "installed", lambda: False)
    with pytest.raises(ValueError, match="needs OpenDP"):
        audit_discrete(TASK)
