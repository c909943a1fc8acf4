import json
import math
import re
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest
from damage import any_number
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant, chained_record, events
from murmuration.privacy.accounting.chained_record import ChainedRecord
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    ParallelEvent,
    PoissonGaussian,
    PureDp,
    Unprotected,
)
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.ledger import (
    BudgetExceeded,
    Ledger,
    LedgerError,
    LedgerLoss,
    read_account,
    read_charges,
    read_spent,
)
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency

ROOT = Path(__file__).parents[3]
EVENT = PoissonGaussian(0.1, 4.0)
OTHER = PoissonGaussian(0.2, 6.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def promise(path, **changes):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "budget": None}
    return Ledger(path, **{**terms, **changes})


def write(path, charges):
    with promise(path) as ledger:
        for round_ in range(1, charges + 1):
            ledger.charge(EVENT, round_=round_, covers="gradient")
    return path.read_bytes()


def test_one_line_of_json_for_the_promise_and_one_for_each_charge(path):
    write(path, 2)
    header, first, second = [json.loads(line) for line in path.read_text().splitlines()]
    chain = {"index", "before"}
    run, begun = header["run"], header["begun"]
    assert {name: header[name] for name in header.keys() - chain} == {
        "ledger": 3,
        "adjacency": "add-remove",
        "delta": 1e-5,
        "budget_epsilon": None,
        "run": run,
        "unit": "user",
        "trust": "unrecorded",
        "population": "",
        "disjoint_from": [],
        "caveats": ["caveats not recorded"],
        "begun": begun,
    }
    assert re.fullmatch(r"[0-9a-f]{32}", run)
    assert begun <= first["at"]
    assert first.keys() - chain == {"round", "covers", "attempt", "event", "at", "nonce"}
    assert (second["round"], second["attempt"], second["covers"]) == (2, 0, "gradient")
    # To the second: how long a round took depends on who was in it.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", second["at"])
    assert second["event"]["kind"] == "poisson-gaussian"


def test_a_ledger_reads_back_what_was_written(path):
    with promise(path) as ledger:
        ledger.charge(EVENT, round_=1, covers="gradient")
        ledger.charge(EVENT, round_=1, covers="gradient")
        ledger.charge(Unprotected(), round_=2, covers="cøunt\n\x1f")
        charges = ledger.charges
    assert [charge.attempt for charge in charges] == [0, 1, 0]
    with promise(path) as ledger:
        assert ledger.charges == charges
        assert ledger.spent() == {EVENT: 2, Unprotected(): 1}


def test_charges_can_be_read_without_opening_the_ledger(path):
    raw = write(path, 2) + b'{"torn'
    path.write_bytes(raw)
    assert [charge.round for charge in read_charges(path)] == [1, 2]
    assert path.read_bytes() == raw
    assert read_spent(path) == {EVENT: 2}
    path.write_bytes(raw.replace(b"4.0", b"9.0", 1))
    with pytest.raises(LedgerLoss, match=":2: edited"):
        read_charges(path)


GAUSSIAN = {"kind": "poisson-gaussian", "probability": 0.5}
CHARGE = {"round": 1, "covers": "", "attempt": 0, "event": {"kind": "unprotected"}}


@pytest.mark.parametrize(
    "line",
    [
        {"round": 1},
        {**CHARGE, "round": "x"},
        {**CHARGE, "event": {"kind": "laplace"}},
        {**CHARGE, "event": {"kind": ["a"]}},
        {**CHARGE, "event": None},
        {**CHARGE, "round": math.inf},
        {**CHARGE, "covers": "gradient"},  # another line's number: its noise would be the same
        {**CHARGE, "covers": "gradient", "attempt": 2},
        {**CHARGE, "attempt": -1},
        {**CHARGE, "event": {**GAUSSIAN, "noise_multiplier": 10**400}},
        {"caveat": ["a"]},
        {"caveat": "none\n\n# Nothing was spent"},
    ],
)  # fmt: skip
def test_a_line_that_means_nothing_is_refused_by_its_number(path, line):
    write(path, 2)
    with any_number():
        record = ChainedRecord(path, chained_record.read(path).lines[0])
        record.append(line)
        record.close()
    with pytest.raises(LedgerError, match=r"ledger\.jsonl:4: not a line of a ledger"):
        promise(path)


def test_a_file_whose_lines_are_not_chained_is_not_gone_on_with(path):
    text = '{"ledger": 1, "adjacency": "add-remove", "delta": 1e-05, "budget_epsilon": null}\n'
    path.write_text(text)
    with pytest.raises(LedgerError, match=r"lines are not chained.*choose another --out") as caught:
        promise(path)
    assert not isinstance(caught.value, LedgerLoss)
    assert path.read_text() == text


@given(data=st.data())
def test_after_any_damage_it_is_whole_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    write(path, 10)
    for file in (path, chained_record.head_path(path)):
        raw = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(0, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with suppress(LedgerError), promise(path, begun=True) as ledger:
        assert ledger.spent()[EVENT] == 10


@pytest.mark.parametrize("content", [b"precious", b"precious\nnotes, no newline at the end", b"\n"])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl"):
        promise(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [{"adjacency": Adjacency.REPLACE}, {"delta": 1e-6}, {"budget": 3.0}],
)
def test_a_ledger_for_another_promise_is_refused_and_left_alone(path, changes):
    raw = write(path, 1) + b'{"torn'
    path.write_bytes(raw)
    with pytest.raises(LedgerError, match="may not change its promise"):
        promise(path, **changes)
    assert path.read_bytes() == raw


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_limits_nothing_is_refused(path, budget):
    with pytest.raises(ValueError, match="budget must be a positive finite number"):
        promise(path, budget=budget)
    assert not path.exists()


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_out_of_range_is_refused(path, delta):
    with pytest.raises(ValueError, match="delta must be in"):
        promise(path, delta=delta)
    assert not path.exists()


def test_what_would_exceed_the_budget_is_refused_and_not_written(path):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    fits = accountant.epsilon([(EVENT, 3)], **terms)
    with promise(path, budget=fits) as ledger:
        for round_ in (1, 2, 3):
            ledger.charge(EVENT, round_=round_, covers="gradient")
        before = path.read_bytes()
        for event in (EVENT, OTHER, Unprotected()):
            with pytest.raises(BudgetExceeded, match="over the budget"):
                ledger.charge(event, round_=4, covers="gradient")
        assert path.read_bytes() == before
        assert len(ledger.charges) == 3
        assert ledger.epsilon() == fits <= ledger.budget
    with promise(path, budget=fits) as ledger, pytest.raises(BudgetExceeded):  # nor after a restart
        ledger.charge(EVENT, round_=4, covers="gradient")


def test_a_cleared_plan_needs_no_accounting_and_nothing_beyond_it_slips_through(path, monkeypatch):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    budget = accountant.epsilon([(EVENT, 5)], **terms)
    asked = []
    real = accountant.epsilon
    monkeypatch.setattr(accountant, "epsilon", lambda *a, **k: (asked.append(a), real(*a, **k))[1])
    with promise(path, budget=budget) as ledger:
        with pytest.raises(BudgetExceeded, match="the plan costs"):
            ledger.clear({EVENT: 6})
        ledger.clear({EVENT: 5})
        asked.clear()
        for round_ in range(1, 6):
            ledger.charge(EVENT, round_=round_, covers="gradient")
        assert asked == []
        with pytest.raises(BudgetExceeded):
            ledger.charge(EVENT, round_=6, covers="gradient")
    with promise(path, budget=budget) as ledger:  # clearing anew does not forget what was spent
        ledger.clear({EVENT: 5})
        with pytest.raises(BudgetExceeded):
            ledger.charge(EVENT, round_=6, covers="gradient")
        with pytest.raises(BudgetExceeded):
            ledger.charge(OTHER, round_=6, covers="gradient")
        assert len(ledger.charges) == 5


@pytest.mark.parametrize("seeded", [False, True])
def test_every_charge_has_a_number_of_its_own(path, seeded):
    """Numbers key the noise: none comes twice, before and after a restart."""
    charged = []
    for _ in range(2):
        with promise(path) as ledger:
            for round_, covers in (
                (1, "gradient"),
                (1, "gradient"),
                (2, "gradient"),
                (1, "radius"),
            ):
                one = ledger.charge(EVENT, round_=round_, covers=covers, seeded=seeded)
                charged.append((one.round, one.covers, one.attempt))
            ledger.note_unprotected(1, "gradient")
    assert len(set(charged)) == 8
    with promise(path) as ledger:
        assert ledger.spent() == {EVENT: 8, Unprotected(): 2}
        assert [ledger.draws(round_) for round_ in (0, 1, 2, 3)] == [0, 6, 2, 0]


def test_a_seed_is_said_once_and_before_what_follows_from_it(path):
    with promise(path) as ledger:
        ledger.charge(EVENT, round_=1, covers="gradient")
        assert Caveat.SEEDED not in ledger.terms.caveats
        for round_ in (2, 3):
            ledger.charge(EVENT, round_=round_, covers="gradient", seeded=True)
        assert Caveat.SEEDED in ledger.terms.caveats
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("caveat", line.get("round")) for line in lines[1:]] == [1, Caveat.SEEDED, 2, 3]


def test_what_is_told_once_is_charged_once(path):
    budget = accountant.epsilon([(EVENT, 1)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    for _ in range(2):  # after a restart as well
        with promise(path, budget=budget) as ledger:
            one = ledger.charge_once(EVENT, round_=1, covers="labels")
            assert ledger.charge_once(EVENT, round_=1, covers="labels") == one
            assert ledger.granted == [one, one]
            for event, round_, covers in (
                (OTHER, 1, "labels"),
                (EVENT, 2, "labels"),
                (EVENT, 1, ""),
            ):
                with pytest.raises(BudgetExceeded):
                    ledger.charge_once(event, round_=round_, covers=covers)
            assert ledger.charges == [one]


def test_what_is_planned_counts_as_spent(path):
    """How much of a plan comes to pass may depend on data: what is left of it buys nothing else."""
    planned, more = {EVENT: 4, PureDp(0.2): 2}, PoissonGaussian(0.1, 8.0)
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    budget = accountant.epsilon(planned.items(), **terms)
    assert accountant.epsilon([(EVENT, 2), (PureDp(0.2), 1), (more, 1)], **terms) < budget
    with promise(path, budget=budget) as ledger:
        ledger.clear(planned)
        for round_, event in enumerate([EVENT, PureDp(0.2), EVENT], start=1):
            ledger.charge(event, round_=round_, covers="planned")
        before = path.read_bytes()
        for seeded in (False, True):
            with pytest.raises(BudgetExceeded):
                ledger.charge(more, round_=4, covers="not planned", seeded=seeded)
        assert path.read_bytes() == before
        for round_, event in enumerate([EVENT, PureDp(0.2), EVENT], start=4):
            ledger.charge(event, round_=round_, covers="planned")
        assert ledger.epsilon() == budget


def test_what_was_spent_composes_events_of_every_kind(path):
    with promise(path) as ledger:
        assert ledger.epsilon() == 0.0
        for round_ in range(1, 8):
            ledger.charge(EVENT if round_ % 2 else OTHER, round_=round_, covers="gradient")
        expected = accountant.epsilon(
            [(EVENT, 4), (OTHER, 3)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5
        )
        assert ledger.epsilon() == pytest.approx(expected, rel=1e-9)
        ledger.charge(Unprotected(), round_=8, covers="gradient")
        assert ledger.epsilon() == math.inf


def test_a_refused_opening_does_not_keep_the_file(path):
    write(path, 1)
    with pytest.raises(LedgerError):
        promise(path, delta=1e-7)
    promise(path).close()


WHOLE = PoissonGaussian(1.0, 4.0)
RUN, NEXT = BufferedGaussian(3, 2, 4.0), BufferedLater(3, 2, 4.0)
BANDED, TWO_BANDS = BandedGaussian(3, 0.3, 2.0), BandedGaussian(2, 0.3, 2.0)


def test_groups_that_take_turns_are_charged_and_read(path):
    with promise(path) as ledger:
        for round_ in (1, 2, 3, 3, 4):  # one of them again
            event = ParallelEvent((round_ - 1) % 3, BANDED)
            ledger.charge(event, round_=round_, covers="sum")
        ledger.charge(EVENT, round_=1, covers="of everybody")
        expected = accountant.epsilon(
            [(BANDED, 2), (EVENT, 1)], adjacency=ledger.adjacency, delta=ledger.delta
        )
        assert ledger.epsilon() == expected
    assert [charge.round for charge in read_charges(path)] == [1, 2, 3, 3, 4, 1]


@pytest.mark.parametrize(
    ("charges", "message"),
    [
        # Noise in bands is of the group whose turn it is, and of the same groups all along.
        ([(BANDED, 1, "sum")], "is of a group, and names none"),
        ([(ParallelEvent(1, BANDED), 1, "sum")], "not of group 1 of 3"),
        ([(ParallelEvent(3, BANDED), 4, "sum")], "not of group 3 of 3"),
        ([(ParallelEvent(0, BANDED), 1, "sum"), (ParallelEvent(0, BANDED), 2, "sum")], "group 0"),
        (
            [(ParallelEvent(0, BANDED), 1, "sum"), (ParallelEvent(1, TWO_BANDS), 2, "sum")],
            "otherwise than those before",
        ),
        (
            [(ParallelEvent(0, BANDED), 1, "sum"), (ParallelEvent(1, EVENT), 2, "other")],
            "otherwise than those before",
        ),
        (
            [(ParallelEvent(0, EVENT), 1, "sum"), (ParallelEvent(1, BANDED), 2, "other")],
            "otherwise than those before",
        ),
        # Later rounds of buffered noise follow on the first, one after the other, as one release.
        ([(NEXT, 2, "sum")], "without the first"),
        ([(RUN, 1, "votes"), (NEXT, 2, "sum")], "without the first"),
        ([(RUN, 1, "sum"), (NEXT, 3, "sum")], "without the one before"),
        ([(RUN, 1, "sum"), (NEXT, 1, "sum")], "without the one before"),
        ([(RUN, 1, "sum"), (NEXT, 2, "sum"), (NEXT, 2, "sum")], "without the one before"),
        ([(RUN, 1, "sum"), (BufferedLater(3, 2, 0.1), 2, "sum")], "without the first"),
        ([(RUN, 1, "sum"), (BufferedLater(3, 1, 4.0), 2, "sum")], "without the first"),
        ([(RUN, 1, "sum"), (BufferedLater(9, 2, 4.0), 2, "sum")], "without the first"),
        ([(RUN, 1, "sum"), (EVENT, 2, "sum"), (NEXT, 3, "sum")], "without the first"),
        ([(WHOLE, 1, "sum"), (NEXT, 2, "sum")], "without the first"),
        (
            [(RUN, 1, "sum"), (NEXT, 2, "sum"), (NEXT, 3, "sum"), (NEXT, 4, "sum")],
            "round 4 of a run",
        ),
        ([(ParallelEvent(0, RUN), 1, "sum")], "not of a part"),
        ([(RUN, 1, "sum"), (ParallelEvent(1, NEXT), 2, "sum")], "not of a part"),
    ],
)
def test_what_costs_nothing_was_paid_for(path, charges, message):
    """Nobody hides a release behind an event of no cost: neither by charging it nor by hand."""
    *before, (event, round_, label) = charges
    with promise(path) as ledger:
        for each, number, name in before:
            ledger.charge(each, round_=number, covers=name)
        with pytest.raises(ValueError, match=message):
            ledger.charge(event, round_=round_, covers=label)
        assert len(ledger.charges) == len(before)
        line = {"event": events.to_json(event), "round": round_, "covers": label}
    with closing(ChainedRecord(path, read_account(path)[1].lines[0])) as record:
        record.append({**line, "attempt": 0})
    with pytest.raises(LedgerError, match=message):
        read_charges(path)


def test_what_was_paid_for_costs_nothing(path):
    with promise(path) as ledger:
        ledger.charge(RUN, round_=1, covers="sum")
        for number in (2, 3):
            ledger.charge(NEXT, round_=number, covers="sum")
        paid = accountant.epsilon([(WHOLE, 1)], adjacency=ledger.adjacency, delta=ledger.delta)
        assert ledger.epsilon() == pytest.approx(paid, abs=2e-4)
    assert read_spent(path) == Counter({RUN: 1, NEXT: 2})


def test_reading_takes_so_much_for_each_line_however_many_there_are(path, monkeypatch):
    """No line is compared with all before it to see whether its round is paid for."""
    lookups = []
    paid_by = BufferedLater.paid_by
    monkeypatch.setattr(
        BufferedLater, "paid_by", lambda self, event: lookups.append(1) or paid_by(self, event)
    )
    with promise(path) as ledger:
        ledger.charge(BufferedGaussian(40, 2, 4.0), round_=1, covers="sum")
        for number in range(2, 41):
            ledger.charge(BufferedLater(40, 2, 4.0), round_=number, covers="sum")
    lookups.clear()
    assert len(read_charges(path)) == 40
    assert len(lookups) <= 40


def test_noise_that_was_broken_off_is_paid_for_again(path):
    with promise(path) as ledger:
        for event, round_ in ((RUN, 1), (NEXT, 2), (RUN, 2), (NEXT, 3), (NEXT, 4)):
            ledger.charge(event, round_=round_, covers="sum")
        expected = accountant.epsilon(
            [(PoissonGaussian(1.0, 4.0), 2)], adjacency=ledger.adjacency, delta=ledger.delta
        )
        assert ledger.epsilon() == pytest.approx(expected, rel=1e-7)
    assert read_spent(path) == Counter({RUN: 2, NEXT: 3})


@pytest.mark.parametrize(
    ("charged", "planned", "same"),
    [
        (ParallelEvent(0, BANDED), {ParallelEvent(0, BANDED): 2, ParallelEvent(1, BANDED): 2}, 1),
        (ParallelEvent(0, BANDED), {ParallelEvent(0, BandedGaussian(3, 0.3, 2.1)): 2}, 0),
        (ParallelEvent(0, BANDED), {ParallelEvent(0, TWO_BANDS): 2}, 0),
        (ParallelEvent(0, EVENT), {ParallelEvent(0, EVENT): 2}, 1),
        (EVENT, {EVENT: 2}, 1),
        (RUN, {RUN: 1, NEXT: 2}, 1),
        (RUN, {BufferedGaussian(3, 2, 4.1): 1, BufferedLater(3, 2, 4.1): 2}, 0),
        (RUN, {ParallelEvent(0, BANDED): 2}, 0),
    ],
)
def test_a_plan_with_other_shared_noise_is_refused_before_anything_is_charged(
    path, charged, planned, same
):
    """When a run is resumed, before nodes have anything to do."""
    with promise(path) as ledger:
        ledger.charge(charged, round_=1, covers="sum")
        if same:
            ledger.clear(planned)
            return
        with pytest.raises(LedgerError, match="a run may not change its noise"):
            ledger.clear(planned)


def test_noise_in_bands_is_on_no_grid(path):
    """Nobody hides whose turn it was, or how often it came, behind a grid."""
    with pytest.raises(ValueError, match="no discrete form"):
        DiscretizedGaussian(BANDED, 10, 20)
    hidden = {"kind": "on-grid", "event": events.to_json(BANDED), "dimension": 10, "precision": 20}
    hidden["parties"] = 1
    with promise(path):
        pass
    line = {"event": {"kind": "on-part", "part": 1, "event": hidden}, "round": 1, "covers": "sum"}
    with closing(ChainedRecord(path, read_account(path)[1].lines[0])) as record:
        record.append({**line, "attempt": 0})
    with pytest.raises(LedgerError, match="no discrete form"):
        read_charges(path)
