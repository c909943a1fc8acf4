"""Audits of AboveThreshold."""

import numpy as np
import pytest

from murmuration.audits.auditing import Task, scratch_ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.selection.threshold import (
    TARGETS,
    audit_threshold,
    ends,
    outcomes,
    questions,
)


def mechanism(epsilon=2.0, monotone=False, adjacency=Adjacency.ADD_REMOVE):
    return AboveThreshold(0.5, epsilon, 1.0, adjacency, monotone)


@pytest.mark.parametrize("monotone", [False, True])
def test_outcomes_are_as_likely_as_computed(monotone):
    made = mechanism(monotone=monotone)
    for values_K in questions(made, 1.0):
        expected = outcomes(made, values_K)
        assert expected.sum() == pytest.approx(1.0)
        with scratch_ledger(made.adjacency) as ledger:
            ended_N = ends(made, values_K, 2000, ledger, Randomness(0))
        counts = np.bincount(ended_N, minlength=len(expected))
        score = ((counts - 2000 * expected) ** 2 / (2000 * expected)).sum()
        assert score < 40, "chi-square of ten outcomes"


def test_no_outcome_costs_more_than_is_claimed_and_one_nearly_does():
    for monotone, share in ((False, 0.8), (True, 0.4)):
        made = mechanism(monotone=monotone)
        first, second = (outcomes(made, values_K) for values_K in questions(made, 1.0))
        loss = float(np.abs(np.log(first / second)).max())
        assert share * 2.0 < loss <= 2.0
    with_two = [outcomes(mechanism(1.0), values_K) for values_K in questions(mechanism(1.0), 2.0)]
    assert float(np.abs(np.log(with_two[0] / with_two[1])).max()) > 1.5


def test_monotone_answers_all_move_one_way():
    first_K, second_K = questions(mechanism(monotone=True), 1.0)
    np.testing.assert_allclose(first_K - second_K, 1.0)
    first_K, second_K = questions(mechanism(), 1.0)
    assert (first_K - second_K)[-1] == pytest.approx(-1.0)


def test_a_quick_audit_is_consistent():
    found = audit_threshold(Task(Adjacency.REPLACE, 4.0, 1500, Randomness(0)))
    assert 0.2 * 4.0 < found.lower <= found.claimed == 4.0
    assert found.delta == 0.0


@pytest.mark.slow
def test_power_and_the_fault_of_sensitivity_two():
    target = TARGETS["above-threshold"]
    found = target.measure(Task(Adjacency.REPLACE, 2.0, target.trials, Randomness(1)))
    assert 0.6 * 2.0 < found.lower <= 2.0
    broken = audit_threshold(Task(Adjacency.REPLACE, 1.0, 20_000, Randomness(1)), apart=2.0)
    assert broken.lower > broken.claimed
