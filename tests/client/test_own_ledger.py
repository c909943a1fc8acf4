"""The user's own ledger: on disk before an answer leaves, the same after any end."""

import json

import pytest

from client import own_ledger
from client.own_ledger import OwnLedger
from preference.judgements import InputError
from privacy.adjacency import Adjacency
from privacy.events import PoissonGaussian
from strategies.stated import StatedPlan

PLAN = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "own-ledger.jsonl"


def filled(path):
    ledger = OwnLedger(path)
    ledger.open_run(PLAN, 1.25)
    ledger.answer("train", users=2, run="run1", round_=1)
    ledger.answer("train", users=2, run="run1", round_=1)
    ledger.answer("evaluate", users=1)
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


def test_it_can_be_read_while_an_agent_writes_it(path):
    ledger = filled(path)
    assert state(OwnLedger.read(path)) == state(ledger)
    path.write_bytes(path.read_bytes() + b'{"answered": "tr')
    assert state(OwnLedger.read(path)) == state(ledger)
    with pytest.raises(InputError, match="cannot be read"):
        OwnLedger.read(path.parent / "none")


def test_nobody_else_can_read_it(path):
    OwnLedger(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_is_on_disk_when_the_call_returns(path, monkeypatch):
    flushed = []
    ledger = OwnLedger(path)
    monkeypatch.setattr(own_ledger.os, "fsync", lambda fd: flushed.append(path.read_text()))
    ledger.answer("train", users=1, run="r", round_=7)
    assert json.loads(flushed[-1].splitlines()[-1])["round"] == 7


def test_a_torn_last_line_is_forgotten(path):
    filled(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"answered": "train", "ru')
    ledger = OwnLedger(path)
    assert ledger.answered["train"] == 2
    ledger.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "damage",
    [b"junk\n", b"{}\n", b'{"answered": "train"}\n', b'{"plan": {"run": "x"}}\n'],
)
def test_a_damaged_ledger_is_refused(path, damage):
    filled(path).close()
    path.write_bytes(path.read_bytes() + damage)
    with pytest.raises(InputError, match="damaged"):
        OwnLedger(path)


def test_another_kind_of_file_is_refused(path):
    path.parent.mkdir()
    path.write_text('{"ledger": 1}\n')
    with pytest.raises(InputError, match="damaged"):
        OwnLedger(path)


def test_one_agent_at_a_time(path):
    first = OwnLedger(path)
    with pytest.raises(InputError, match="in use"):
        OwnLedger(path)
    first.close()
    OwnLedger(path)


def test_after_a_failed_write_nothing_is_noted(path, monkeypatch):
    ledger = OwnLedger(path)
    with monkeypatch.context() as patch:
        patch.setattr(own_ledger.os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(InputError, match="cannot be written"):
            ledger.answer("train", users=1)
    with pytest.raises(InputError, match="start the agent again"):
        ledger.answer("train", users=1)
    assert ledger.answered["train"] == 0


def test_refusals_do_not_fill_the_disk(path, monkeypatch):
    monkeypatch.setattr(own_ledger, "MOST_REFUSALS", 3)
    ledger = OwnLedger(path)
    for _ in range(10):
        ledger.refuse("k" * 10_000, "r" * 10_000)
        ledger.answer("query.registry", users=1)
    assert len(path.read_text().splitlines()) == 7
    assert path.stat().st_size < 4_000
    for round_ in range(10):
        ledger.answer("train", users=1, run="r", round_=round_)
    assert len(path.read_text().splitlines()) == 17
