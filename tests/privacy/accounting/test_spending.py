from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    Unprotected,
)
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.spending import Spending
from murmuration.privacy.adjacency import Adjacency

ROUND, TEST, CHOICE = PoissonGaussian(0.1, 4.0), PureDp(0.2), PureChoice(0.1)
TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}


class Charged:
    """As much of a ledger as is asked for, without a disk."""

    adjacency, delta = TERMS["adjacency"], TERMS["delta"]

    def __init__(self):
        self.counts = Counter()

    def spent(self):
        return self.counts.copy()


@settings(max_examples=6, phases=[Phase.generate])
@given(st.lists(st.integers(1, 60), min_size=2, max_size=2), st.integers(0, 4), st.integers(0, 2))
def test_never_less_than_the_ledger_composes_to(rounds, again, choices):
    planned = {ROUND: rounds[0], TEST: 2}
    ledger = Charged()
    spending = Spending(ledger, planned)
    ledger.counts[CHOICE] += choices
    shown, at_plan = 0.0, None

    def composed():
        # What tests are planned counts, needed or not.
        return accountant.epsilon((ledger.counts | Counter({TEST: 2})).items(), **TERMS)

    for round_ in range(1, rounds[0] + again + 1):
        ledger.counts[ROUND] += 1
        if round_ in (1, rounds[1]):
            ledger.counts[TEST] += 1
        last, shown = shown, spending()
        assert shown >= composed() >= accountant.epsilon(ledger.counts.items(), **TERMS)
        assert shown >= last
        if ledger.counts[ROUND] == rounds[0]:
            at_plan = shown, composed()
        if round_ <= 8:
            assert shown == composed()
    assert at_plan is not None
    assert at_plan[0] == at_plan[1]
    assert spending(exactly=True) == composed()


def test_few_compositions_for_many_rounds(monkeypatch):
    computed = []
    real = accountant.epsilon
    monkeypatch.setattr(accountant, "epsilon", lambda *a, **k: computed.append(1) or real(*a, **k))
    ledger = Charged()
    spending = Spending(ledger, {ROUND: 500})
    shown = []
    for _ in range(500):
        ledger.counts[ROUND] += 1
        shown.append(spending())
    assert len(computed) <= 8 + 4 * 6
    # A level is a fifth more rounds, about a tenth more epsilon.
    assert all(later <= 1.15 * sooner for sooner, later in pairwise(shown[8:]))


@pytest.mark.parametrize("before", [0, 3])
def test_what_is_prepared_is_not_computed_between_rounds(monkeypatch, before):
    ledger = Charged()
    ledger.counts[ROUND], ledger.counts[CHOICE] = before, 1
    planned = {ROUND: 60, TEST: 2}
    plain, prepared = (Spending(ledger, planned) for _ in range(2))
    prepared.prepare()
    computed = []
    real = accountant.epsilon
    for round_ in range(before, 62):
        ledger.counts[ROUND] += 1
        expected = plain()
        monkeypatch.setattr(
            accountant, "epsilon", lambda *a, **k: computed.append(1) or real(*a, **k)
        )
        assert prepared() == expected
        monkeypatch.setattr(accountant, "epsilon", real)
        assert bool(computed) == (round_ >= 60), "only what is beyond the plan"


def test_rounds_that_are_charged_again_count(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, budget=None, **TERMS) as ledger:
        for round_ in (1, 2, 3, 2, 3, 4):  # a crash after round 3, and one round was saved
            ledger.charge(ROUND, round_=round_, covers="gradient sum")
        assert Spending(ledger, {ROUND: 4})() == ledger.epsilon()
        assert ledger.epsilon() == accountant.epsilon([(ROUND, 6)], **TERMS)


def test_a_run_without_protection():
    ledger = Charged()
    spending = Spending(ledger, {Unprotected(): 10})
    assert spending() == 0.0
    ledger.counts[Unprotected()] += 1
    assert spending() == float("inf")


def test_groups_that_take_turns_are_shown_as_the_dearest_and_composed_seldom(monkeypatch):
    event, ledger = BandedGaussian(5, 0.2, 4.0), Charged()
    planned = {ParallelEvent(group, event): 20 for group in range(5)}
    composed = []
    whole = accountant.epsilon

    def counting(*runs, **terms):
        composed.append(1)
        return whole(*runs, **terms)

    spending = Spending(ledger, planned)
    spending.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(accountant, "epsilon", counting)
        for round_ in range(1, 101):
            ledger.counts[ParallelEvent((round_ - 1) % 5, event)] += 1
            shown = spending()
            assert shown >= whole(ledger.counts.items(), **TERMS) if round_ % 13 == 0 else True
    assert composed == []  # all levels were computed before
    assert shown == whole(planned.items(), **TERMS) == spending(exactly=True)
