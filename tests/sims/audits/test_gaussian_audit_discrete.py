"""Audit of discrete Gaussian noise."""

import pytest

import murmuration.sims.audits.gaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import Task
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.audits.gaussian import audit_discrete

TASK = Task(Adjacency.ADD_REMOVE, 2.0, 20_000, Randomness(0))


@pytest.mark.skipif(not installed(), reason="needs OpenDP")
def test_it_costs_about_what_a_gaussian_does():
    found = audit_discrete(TASK)
    assert 0.3 * found.claimed < found.lower <= found.claimed
    assert 0.7 * found.claimed < found.fit < 1.02 * found.claimed


def test_without_the_library_it_is_refused(monkeypatch):
    monkeypatch.setattr(murmuration.sims.audits.gaussian, "installed", lambda: False)
    with pytest.raises(ValueError, match="needs OpenDP"):
        audit_discrete(TASK)
