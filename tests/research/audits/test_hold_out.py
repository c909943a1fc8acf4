"""The audit of a run and its held-out users as a pair, and of what would give it away."""

import pytest

from murmuration.audits.auditing import Task
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.faults import trained_key
from murmuration.research.audits.hold_out import Attack, audit_hold_out


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_the_pair_costs_no_more_than_is_charged(adjacency):
    measured = audit_hold_out(Task(adjacency, 8.0, 400, Randomness(3)))
    assert 7.9 < measured.claimed <= 8.0
    assert 0.5 < measured.lower < measured.claimed


def test_coins_are_tossed_as_in_runs():
    held_N = Attack(share=0.2).coins(4000, Randomness(1))
    assert 700 < held_N.sum() < 900
    assert not Attack(0.9, trained_key(0.9)).coins(3, Randomness(1)).any()
