"""What an audit is asked, and what it says."""

import pytest

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import (
    COMES_OR_GOES,
    Measured,
    Target,
    Task,
    derived,
    scratch_ledger,
)
from murmuration.privacy.mechanisms.randomness import Randomness

TASK = Task(Adjacency.ADD_REMOVE, 1.0, 100, Randomness(0))


def test_the_two_data_sets_never_share_a_draw():
    sides = [TASK.side(second).stream("noise").random() for second in (False, True)]
    assert sides[0] != sides[1]
    assert sides == [TASK.side(second).stream("noise").random() for second in (False, True)]
    fresh = Task(Adjacency.ADD_REMOVE, 1.0, 100, Randomness(None))
    assert not fresh.side(False).seeded


def test_trials_have_sources_of_their_own():
    found = {derived(Randomness(0), "trial", n).seed for n in range(100)}
    assert len(found) == 100
    assert derived(Randomness(None), "trial", 1).seed is None


def test_impossible_tasks_are_refused():
    with pytest.raises(ValueError, match="--trials"):
        Task(Adjacency.REPLACE, 1.0, 2, Randomness(0))
    with pytest.raises(ValueError, match="--epsilon"):
        Task(Adjacency.REPLACE, 0.0, 100, Randomness(0))


def test_verdicts():
    under, over = Measured(1.0, 0.9, 10, 0.0), Measured(1.0, 1.1, 10, 0.0)
    sound = Target("", lambda task: under)
    claimed_elsewhere = Target("", lambda task: over, sound=False)
    assert sound.verdict(under) == claimed_elsewhere.verdict(under) == "consistent"
    assert sound.verdict(over) == "violated"
    assert claimed_elsewhere.verdict(over) == "violated, as documented"


def test_the_usual_adjacency_is_one_that_has_a_claim():
    assert Target("", lambda task: None).usual is Adjacency.ADD_REMOVE
    assert (
        Target("", lambda task: None, adjacencies=frozenset(Adjacency) - COMES_OR_GOES).usual
        is Adjacency.REPLACE
    )
    assert Target("", lambda task: None, adjacencies=COMES_OR_GOES).usual is Adjacency.ADD_REMOVE


def test_a_scratch_ledger_is_a_real_one_and_leaves_nothing():
    with scratch_ledger(Adjacency.REPLACE) as ledger:
        ledger.charge(PoissonGaussian(0.5, 2.0), round_=1, covers="sum")
        assert ledger.path.read_bytes().count(b"\n") == 2
        assert ledger.epsilon() > 0
    assert not ledger.path.parent.exists()
