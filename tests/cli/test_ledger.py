"""``murmuration ledger``: shows, verifies and explains a ledger."""

import json
import subprocess
import sys

import pytest
from damage import any_number, rewrite

from murmuration.client.agent.ledger import OwnLedger
from murmuration.privacy.accounting import accountant, chained_record
from murmuration.privacy.accounting.events import (
    ParallelEvent,
    PoissonGaussian,
    PureDp,
    Unprotected,
)
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol.stated_plan import StatedPlan

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
EVENT, TEST = PoissonGaussian(0.1, 4.0), PureDp(0.1)


@pytest.fixture
def folder(tmp_path):
    """A run's folder with a ledger only: six rounds, one of them run again, and a test."""
    with Ledger(tmp_path / "ledger.jsonl", budget=3.0, **TERMS) as ledger:
        for round_ in (1, 2, 3, 4, 4, 5, 6):
            ledger.charge(EVENT, round_=round_, covers="gradient sum")
        ledger.charge(TEST, round_=6, covers="radius test 1")
    return tmp_path


def shown(cli, *arguments):
    code, stdout, lines = cli("ledger", *arguments, "--json")
    assert lines == []
    return code, json.loads(stdout)


def test_what_it_holds_and_comes_to(cli, folder):
    code, found = shown(cli, folder)
    assert (code, found["whole"], found["wrong"]) == (0, True, [])
    head = chained_record.read(folder / "ledger.jsonl").head
    assert (found["lines"], found["head"]) == (9, str(head))
    assert (found["adjacency"], found["delta"], found["budget_epsilon"]) == (
        "add-remove",
        1e-5,
        3.0,
    )
    sums, test = found["events"]
    assert (sums["covers"], sums["times"], sums["rounds"], sums["again"]) == (
        "gradient sum", 7, "1–6", 1
    )  # fmt: skip
    assert test["epsilon"] == pytest.approx(0.1, rel=1e-3)
    total = accountant.epsilon([(EVENT, 7), (TEST, 1)], **TERMS)
    assert found["epsilon"] == total
    assert found["budget_left"] == pytest.approx(3.0 - total)


@pytest.mark.parametrize(
    "first",
    [
        {"adjacency": "near"},
        {"adjacency": []},
        {"delta": "x"},
        {"delta": 0.0},
        {"budget_epsilon": "x"},
        {"budget_epsilon": float("inf")},
    ],
)
def test_a_first_line_that_promises_nothing_is_said_in_one_line(cli, tmp_path, first):
    promise = {"ledger": 2, "adjacency": "replace", "delta": 1e-5, "budget_epsilon": 3.0}
    with any_number():
        chained_record.ChainedRecord(tmp_path / "ledger.jsonl", {**promise, **first}).close()
    code, found = shown(cli, tmp_path)
    assert (code, found["whole"]) == (1, False)
    assert "not the first line of a ledger" in found["wrong"][0]


def test_a_ledger_that_a_crash_has_left_empty(cli, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(self, payload):
        raise Killed

    monkeypatch.setattr(chained_record.ChainedRecord, "append", killed)
    with pytest.raises(Killed):
        Ledger(tmp_path / "ledger.jsonl", budget=3.0, **TERMS)
    code, found = shown(cli, tmp_path)
    assert (code, found["whole"]) == (1, False)
    assert "nothing is written in it yet" in found["wrong"][0]


def test_a_seed_that_was_known_is_said_beside_epsilon(cli, tmp_path):
    with Ledger(tmp_path / "ledger.jsonl", budget=3.0, **TERMS) as ledger:
        ledger.charge(EVENT, round_=1, covers="gradient sum", seeded=True)
    caveats = shown(cli, tmp_path)[1]["caveats"]
    assert "simulation, seed known" in caveats
    (line,) = (line for line in cli("ledger", tmp_path)[1].splitlines() if " of 3 (" in line)
    assert "(simulation, seed known) of 3" in line
    assert line.endswith(f"; caveats: {', '.join(caveats)}")


def test_a_file_will_do_and_may_be_in_use(cli, folder):
    with Ledger(folder / "ledger.jsonl", budget=3.0, **TERMS) as ledger:
        ledger.charge(EVENT, round_=7, covers="gradient sum")
        assert shown(cli, folder / "ledger.jsonl")[1]["lines"] == 10


def test_parts_and_no_privacy(cli, tmp_path):
    with Ledger(tmp_path / "ledger.jsonl", budget=None, **TERMS) as ledger:
        ledger.charge(ParallelEvent(1, EVENT), round_=1, covers="sum")
        ledger.charge(ParallelEvent(2, PoissonGaussian(0.1, 2.0)), round_=2, covers="sum")
    _, found = shown(cli, tmp_path)
    assert found["parts"]["1"] < found["parts"]["2"] == found["epsilon"]
    with Ledger(tmp_path / "ledger.jsonl", budget=None, **TERMS) as ledger:
        ledger.charge(Unprotected(), round_=3, covers="exact gradient sum")
    _, found = shown(cli, tmp_path)
    assert found["epsilon"] == "infinite"


def test_an_expected_head(cli, refusal, folder):
    older = chained_record.read(folder / "ledger.jsonl").heads[4]
    newest = shown(cli, folder)[1]["head"]
    for head in (older, newest):
        assert shown(cli, folder, "--expect", head)[0] == 0
    contents = chained_record.read(folder / "ledger.jsonl")
    rewrite(folder / "ledger.jsonl", contents.lines[:6])  # both rolled back
    assert shown(cli, folder, "--expect", older)[0] == 0
    code, found = shown(cli, folder, "--expect", newest)
    assert code == 1
    assert "the expected head, of 9 lines, is not on its chain" in found["wrong"][0]
    assert "--expect" in refusal("ledger", folder, "--expect", "abc")


def test_one_that_is_not_whole(cli, folder):
    path = folder / "ledger.jsonl"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"4.0", b"9.0", 1))
    code, found = shown(cli, folder)
    assert (code, found["whole"]) == (1, False)
    assert "ledger.jsonl:2: edited after it was written" in found["wrong"][0]
    code, stdout, _ = cli("ledger", folder)
    assert code == 1
    assert "NOT INTACT" in stdout
    path.unlink()
    assert "was deleted" in shown(cli, folder)[1]["wrong"][0]
    path.write_text('{"ledger": 1}\n')
    assert "its lines are not chained" in shown(cli, folder)[1]["wrong"][0]


def test_it_must_agree_with_metrics_and_result(cli, refusal, folder):
    metrics, result = folder / "metrics.jsonl", folder / "result.json"
    metrics.write_text('{"round": 6}\n')
    head = str(chained_record.read(folder / "ledger.jsonl").heads[3])
    result.write_text(json.dumps({"ledger_head": head}))
    assert shown(cli, folder)[0] == 0
    metrics.write_text('{"round": 7}\n')
    result.write_text(json.dumps({"ledger_head": head[:-1] + ("0" if head[-1] != "0" else "1")}))
    code, found = shown(cli, folder)
    assert code == 1
    assert "no charge for round 7" in found["wrong"][0]
    assert "result.json knows another head" in found["wrong"][1]
    result.write_text("{")
    assert "result.json is damaged" in refusal("ledger", folder)


def test_an_owners(cli, tmp_path):
    ledger = OwnLedger(tmp_path / "state" / "own-ledger.jsonl")
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})
    ledger.open_run(plan, plan.epsilon())
    ledger.answer_work("train", range(2), run="run1", round_=1)
    ledger.refuse("train", "no")
    for place in (tmp_path, tmp_path / "state", ledger.path):
        code, found = shown(cli, place, "--expect", ledger.head)
        assert (code, found["kind"], found["answered"]) == (0, "owner", {"train": 1})
        assert (found["refused"], found["plans"][0]["answered"]) == (1, 1)
        assert found["epsilon"] == pytest.approx(plan.epsilon())
    assert "run1" in cli("ledger", tmp_path)[1]
    ledger.close()
    ledger.path.unlink()
    assert shown(cli, tmp_path)[0] == 1


@pytest.mark.parametrize("made", [False, True])
def test_nothing_there(refusal, tmp_path, made):
    place = tmp_path if made else tmp_path / "none"
    assert ("neither" if made else "cannot be read") in refusal("ledger", place)


def test_its_events_are_recomputed_without_us(cli, folder, tmp_path):
    """By the script that is written beside them, where no module of ours can be imported."""
    code, found = shown(cli, folder, "--events")
    events, script = folder / "events.json", folder / "recompute.py"
    assert (code, found["written"]) == (0, [str(events), str(script)])
    away = tmp_path / "elsewhere"
    away.mkdir()
    for path in (events, script):
        path.rename(away / path.name)
    guarded = away / "guarded.py"
    guarded.write_text(
        "import runpy, sys\n"
        "sys.modules['murmuration'] = None\n"
        "sys.argv = ['recompute.py', 'events.json']\n"
        "runpy.run_path('recompute.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "guarded.py"], cwd=away, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    total = accountant.epsilon([(EVENT, 7), (TEST, 1)], **TERMS)
    assert told["training_epsilon"]["murmuration"] == told["whole_epsilon_by_murmuration"] == total
    assert told["training_epsilon"]["dp-accounting"] == pytest.approx(total, abs=1e-6)
    # And it notices what does not agree.
    data = json.loads((away / "events.json").read_text())
    (away / "events.json").write_text(json.dumps({**data, "training_epsilon": total + 2e-4}))
    again = subprocess.run(
        [sys.executable, "guarded.py"], cwd=away, capture_output=True, timeout=120
    )
    assert again.returncode == 1


def test_an_owners_ledger_has_no_events_to_write(refusal, tmp_path):
    OwnLedger(tmp_path / "own-ledger.jsonl").close()
    assert "--events is about a run's ledger" in refusal("ledger", tmp_path, "--events")
