"""Audits of the exponential mechanism."""

import numpy as np
import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.median import GRID, probabilities
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.selection.median import TARGETS, audit_median, neighbours


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_the_exact_loss_is_near_to_the_claim_and_not_above_it(adjacency):
    for epsilon in (0.1, 1.0, 3.0):
        first_J, second_J = (probabilities(h, epsilon, adjacency) for h in neighbours(adjacency))
        loss = np.abs(np.log(first_J / second_J)).max()
        assert 0.75 * epsilon < loss <= epsilon * (1 + 1e-12)


def test_neighbours_differ_in_one_user():
    for adjacency, difference in ((Adjacency.ADD_REMOVE, 1), (Adjacency.REPLACE, 2)):
        first_J, second_J = neighbours(adjacency)
        assert len(first_J) == len(GRID)
        assert np.abs(first_J - second_J).sum() == difference


def test_a_quick_audit_is_consistent():
    found = audit_median(Task(Adjacency.ADD_REMOVE, 2.0, 1000, Randomness(0)))
    assert 0.4 * 2.0 < found.lower <= found.claimed == 2.0


def test_where_counts_are_public_nothing_is_claimed():
    assert Adjacency.REPLACE_LABELS not in TARGETS["median"].adjacencies
