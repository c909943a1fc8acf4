"""The user's own ledger: on disk before an answer leaves, the same after any end."""

import errno
import json
import os
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.client.agent import ledger as own_ledger
from murmuration.client.agent.ledger import OwnLedger
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.chained_record import ChainedRecord
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol.stated_plan import StatedPlan

PLAN = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "own-ledger.jsonl"


def filled(path):
    ledger = OwnLedger(path)
    ledger.open_run(PLAN, 1.25)
    ledger.answer_work("train", range(2), run="run1", round_=1)
    ledger.answer_work("train", range(2), run="run1", round_=1)
    ledger.answer_work("evaluate", range(1), run="r")
    ledger.refuse("train", "no")
    return ledger


def state(ledger):
    return ledger.plans, ledger.answered, ledger.rounds


def test_what_was_written_is_read_again(path):
    first = filled(path)
    before = state(first)
    first.close()
    again = OwnLedger(path)
    assert state(again) == before
    assert again.plans == {"run1": PLAN}
    assert again.answered == {"train": 2, "evaluate": 1}
    assert again.rounds["run1", 1] == 2


@pytest.mark.parametrize("days", [-4000, 4000])
def test_a_clock_that_jumps_changes_nothing_that_counts(path, monkeypatch, days):
    class Jumped:
        @staticmethod
        def now(zone):
            return datetime.now(zone) + timedelta(days=days)

    first = filled(path)
    monkeypatch.setattr(own_ledger, "datetime", Jumped)
    first.answer_work("train", range(2), run="run1", round_=2)
    before = state(first)
    first.close()
    assert json.loads(path.read_text().splitlines()[-1])["at"][:4] != str(datetime.now(UTC).year)
    monkeypatch.undo()
    again = OwnLedger(path)
    again.answer_work("train", range(2), run="run1", round_=2)
    assert again.plans == before[0]
    assert again.answered == {"train": 4, "evaluate": 1}
    assert again.rounds["run1", 2] == 2


def test_who_was_asked_for_what_is_known_again(path):
    ledger = OwnLedger(path)
    for users in ([3, 2**64 - 1], [3], [5, 3]):
        ledger.answer_work("train", np.array(users, dtype=np.uint64), run="a")
    ledger.answer_work("evaluate", [7], run="a")
    ledger.answer_work("evaluate", [3], run="b")
    names = [line.get("new") for line in map(json.loads, path.read_text().splitlines())]
    assert names[1:4] == [["0000000000000003", "f" * 16], [], ["0000000000000005"]]
    ledger.close()
    for found in (ledger, OwnLedger(path), OwnLedger.read(path)):
        assert found.asked("train", "a") == {3, 5, 2**64 - 1}
        assert (found.asked("evaluate", "a"), found.asked("evaluate", "b")) == ({7}, {3})
        assert found.asked("train", "b") == set()
        assert found.evaluations == {"a": 1, "b": 1}


def test_which_sums_left_under_masks_is_known_again(path):
    ledger = OwnLedger(path)
    ledger.answer_work("train", [1], run="a", round_=1, masked="ab")
    ledger.answer_work("train", [1], run="a", round_=2)
    ledger.answer_work("evaluate", [2], run="a", masked="cd")
    ledger.close()
    for found in (ledger, OwnLedger.read(path)):
        assert found.sums == {"ab", "cd"}
        assert found.masked == {("train", "a", 1), ("evaluate", "a", 0)}
        told = [found.told(*of) for of in (("train", "a", 1), ("train", "a", 3))]
        assert [*told, found.told("evaluate", "a", 0)] == [1, 0, 1]


def test_answers_that_rules_count_name_their_users(path):
    with pytest.raises(ValueError, match="name their users"):
        OwnLedger(path).answer("evaluate", users=1)


def test_it_can_be_read_while_an_agent_writes_it(path):
    ledger = filled(path)
    assert state(OwnLedger.read(path)) == state(ledger)
    path.write_bytes(path.read_bytes() + b'{"answered": "tr')
    assert state(OwnLedger.read(path)) == state(ledger)
    assert OwnLedger.read(path).head == ledger.head
    with pytest.raises(InputError, match="cannot be read"):
        OwnLedger.read(path.parent / "none")


def test_nobody_else_can_read_it(path):
    OwnLedger(path)
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage",
    [{}, {"answered": "train"}, {"plan": {"run": "x"}}, {"unknown": 1}],
)
def test_a_line_that_says_nothing_is_refused(path, damage):
    filled(path).close()
    record = ChainedRecord(path, own_ledger._HEADER)
    record.append(damage)
    record.close()
    with pytest.raises(InputError, match=r"own-ledger\.jsonl:7: not a line of a user's ledger"):
        OwnLedger(path)


def cut(path, lines):
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    path.write_bytes(b"".join(kept))


#: What else may happen to it is tried with chained records.
LOSSES = {"deleted": lambda path: path.unlink(), "cut": lambda path: cut(path, 3)}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_ledger_that_is_not_what_was_written_is_refused(path, loss):
    filled(path).close()
    LOSSES[loss](path)
    with pytest.raises(InputError, match=r"bring back .*\.jsonl and .*\.jsonl\.head"):
        OwnLedger(path)
    with pytest.raises(InputError, match="bring back"):
        OwnLedger.read(path)


@given(data=st.data())
def test_no_damage_gives_more_answers(tmp_path_factory, data):
    """``max_rounds`` counts what the ledger shows: refused, or no less than was answered."""
    path = tmp_path_factory.mktemp("state") / "own-ledger.jsonl"
    filled(path).close()
    raw = path.read_bytes()
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        path.write_bytes(raw[:place])
    else:
        changed = bytes([raw[place] ^ 1 << data.draw(st.integers(0, 7))])
        path.write_bytes(raw[:place] + changed + raw[place + 1 :])
    with pytest.raises(InputError):
        OwnLedger(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"own-ledger": 1}\n', "something else.*lower the limits of the policy"),
        ('{"ledger": 1}\n', "something else"),
        ("judgements\n", "something else: move it aside"),
    ],
)
def test_another_kind_of_file_is_refused(path, text, said):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        OwnLedger(path)
    assert path.read_text() == text


def test_a_servers_ledger_is_refused(path):
    path.parent.mkdir()
    ChainedRecord(path, {"ledger": 2}).close()
    with pytest.raises(InputError, match="not a user's ledger"):
        OwnLedger(path)


def test_one_agent_at_a_time(path):
    first = OwnLedger(path)
    with pytest.raises(InputError, match="in use"):
        OwnLedger(path)
    first.close()
    OwnLedger(path)


def test_refusals_do_not_fill_the_disk(path, monkeypatch):
    monkeypatch.setattr(own_ledger, "MOST_REFUSALS", 3)
    ledger = OwnLedger(path)
    for _ in range(10):
        ledger.refuse("k" * 10_000, "r" * 10_000)
        ledger.answer("query.registry", users=1)
    assert len(path.read_text().splitlines()) == 7
    assert path.stat().st_size < 4_000
    for round_ in range(10):
        ledger.answer_work("train", range(1), run="r", round_=round_)
    assert len(path.read_text().splitlines()) == 17


@pytest.mark.parametrize("call", ["write", "fsync", "pwrite"])
def test_after_a_full_disk_it_goes_on(path, monkeypatch, call):
    ledger, full = filled(path), True
    honest = getattr(os, call)

    def refusing(*arguments):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return honest(*arguments)

    monkeypatch.setattr(os, call, refusing)
    for _ in range(2):
        with pytest.raises(InputError, match=r"cannot be written|cannot be used"):
            ledger.answer_work("train", range(2), run="run1", round_=2)
    full = False
    ledger.answer_work("train", range(2), run="run1", round_=3)
    before = state(ledger)
    assert before[2]["run1", 3] == 1
    ledger.close()
    assert state(OwnLedger(path)) == before
    with pytest.raises(InputError, match="is closed"):
        ledger.refuse("train", "no")
