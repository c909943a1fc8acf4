"""Trials on both sides: who is asked what, and what is claimed."""

import numpy as np

from murmuration.audits.auditing import Task
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.trials import both_sides


def test_each_side_has_its_ledger_and_draws_and_the_dearer_one_is_the_claim():
    task, drawn = Task(Adjacency.ADD_REMOVE, 1.0, 8, Randomness(3)), {}

    def one(second, ledger, source):
        drawn[second] = source.stream("noise").random()
        for round_ in range(4 if second else 2):
            ledger.charge(PoissonGaussian(1.0, 5.0), round_=round_, covers="sum")
        return np.full(task.trials, float(second))

    found = both_sides(task, one)
    assert (found.scores.first_N == 0.0).all() and (found.scores.second_N == 1.0).all()
    assert drawn[False] != drawn[True]
    cheap, dear = (ledger.epsilon() for ledger in found.ledgers)
    assert cheap < dear == found.claimed
    assert found.measured(task).claimed == dear
    assert found.measured(task).fit is None
