"""Audits of strategies of one round."""

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.moments import TARGETS, audit_everything


@pytest.mark.parametrize("name", ["label-moment", "objective-perturbation"])
def test_a_flipped_label_moves_the_sum_by_all_that_is_accounted_for(name):
    task = Task(Adjacency.REPLACE_LABELS, 1.0, 300_000, Randomness(0))
    found = TARGETS[name].measure(task)
    assert 0.4 * found.claimed < found.lower <= found.claimed
    assert 0.85 * found.claimed < found.fit < 1.02 * found.claimed
    assert found.claimed == pytest.approx(1.0, rel=1e-3)


def test_the_perturbed_minimiser_is_consistent():
    found = audit_everything(Task(Adjacency.REPLACE, 8.0, 40, Randomness(0)))
    assert found.lower <= found.claimed == 8.0
