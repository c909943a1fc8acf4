"""Audits of the exponential mechanism over losses."""

import numpy as np
import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.selection.exponential import (
    JUDGEMENTS,
    TARGETS,
    audit_choice,
    neighbours,
)
from murmuration.research.strategies.choice.exponential_mechanism import ExponentialMechanism

COMES, SWAPPED = Adjacency.ADD_REMOVE, Adjacency.REPLACE


def exact_loss(mechanism, wide=1.0):
    losses_JP = np.tile([0.0, wide * mechanism.span], (JUDGEMENTS, 1))
    first_P, second_P = (mechanism.probabilities(s) for s in neighbours(mechanism, losses_JP))
    return float(np.abs(np.log(first_P / second_P)).max())


@pytest.mark.parametrize("adjacency", [COMES, SWAPPED])
@pytest.mark.parametrize("cap", [0, JUDGEMENTS])
def test_the_exact_loss_is_near_to_the_claim_and_not_above_it(adjacency, cap):
    for epsilon in (0.1, 1.0, 2.0):
        made = ExponentialMechanism(epsilon / max(1, cap), 3.0, 2, adjacency, cap)
        for wide in (1.0, 3.0):
            assert 0.75 * epsilon < exact_loss(made, wide) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", [COMES, SWAPPED])
@pytest.mark.parametrize("name", TARGETS)
def test_a_quick_audit_is_consistent(name, adjacency):
    found = TARGETS[name].measure(Task(adjacency, 2.0, 2000, Randomness(0)))
    assert 0.4 * 2.0 < found.lower <= found.claimed == 2.0
    assert found.delta == 0.0


def test_wide_losses_are_cut_off():
    found = audit_choice(Task(COMES, 1.0, 1500, Randomness(0)), wide=3.0)
    assert found.lower <= found.claimed


def test_a_broken_mechanism_that_charges_something_else_is_no_fault():
    class Cheaper(ExponentialMechanism):
        @property
        def event(self):
            return ExponentialMechanism(self.epsilon / 2, 1.0, 2, self.adjacency).event

    with pytest.raises(AssertionError, match="charged something else"):
        audit_choice(Task(COMES, 1.0, 20, Randomness(0)), make=Cheaper)
