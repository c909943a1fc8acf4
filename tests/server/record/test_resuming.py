"""A run that was broken off goes on where everything it left agrees, or says what is wrong."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cards import RESULT
from damage import rewrite
from local_runs import run

from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import LedgerLoss
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure, Released
from murmuration.reporting import run_end
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.record.run_files import read_metrics
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.config import RunConfig

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(epsilon=0.5, rounds=5, cohort=10),
]


def ledger_lines(config):
    lines = Path(config.out, "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


class Killed(BaseException):
    """The process ends here."""


def raising(error):
    """A function that raises it, whatever it is asked."""

    def raise_it(*_, **__):
        raise error

    return raise_it


# What is left of the ledger when a run is resumed.


@pytest.mark.parametrize("kept", [0, 3])
def test_a_ledger_rolled_back_with_checkpoint_and_metrics_deleted_is_a_loss_by_the_private_log(
    config, crowd_test, broken_off, kept
):
    """Ledger and head fitted together, and nothing but private/ was newer: it was resumed."""
    unseeded = replace(config, seed=-1, test=crowd_test, rounds=6, epsilon=3.0)
    broken_off(unseeded, after=5)
    out = Path(config.out)
    path = out / "ledger.jsonl"
    contents = chained_record.read(path)
    rewrite(path, [line for line in contents.lines if line.get("round", 0) <= kept])
    shutil.rmtree(out / "checkpoint")
    (out / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match=f"no charge for round {kept + 1}.*begin anew"):
        run(replace(unseeded, resume=True))


def test_another_history_of_as_many_rounds_is_a_loss_by_the_private_log(
    config, crowd_test, broken_off
):
    unseeded = replace(config, seed=-1, test=crowd_test, rounds=6, epsilon=3.0)
    broken_off(unseeded, after=3)
    out = Path(config.out)
    path = out / "ledger.jsonl"
    lines = [dict(line) for line in chained_record.read(path).lines]
    lines[-1]["at"] = "2020-01-01T00:00:00+00:00"
    rewrite(path, lines)
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(InputError, match=r"private/log\.jsonl knows it with \d+ lines, and other"):
        run(replace(unseeded, resume=True))


def test_a_private_log_that_was_torn_or_removed_is_no_loss(config, crowd_test, broken_off):
    unseeded = replace(config, seed=-1, test=crowd_test, rounds=6, epsilon=3.0)
    broken_off(unseeded, after=3)
    log = Path(config.out) / "private" / "log.jsonl"
    log.write_text(log.read_text() + '{"round": 9, "ledger": "what?"}\n{"round": 4, "led')
    broken_off(replace(unseeded, resume=True), after=4)
    log.unlink()
    assert run(replace(unseeded, resume=True))["rounds"] == 6


def test_a_group_size_that_is_not_on_file_any_more_is_charged_anew(config, broken_off):
    els = replace(config, seed=-1, strategy="els", epsilon=8.0, adjacency="zero-out")
    broken_off(els, after=2)
    (Path(config.out) / "released.json").unlink()
    run(replace(els, resume=True))
    choices = [line for line in ledger_lines(config) if line["event"]["kind"] == "pure-choice"]
    assert [line["attempt"] for line in choices] == [0, 1]


@pytest.mark.parametrize("lost", ["value", "check"])
def test_what_was_released_and_then_edited_is_not_believed(config, broken_off, lost):
    els = replace(config, seed=-1, strategy="els", epsilon=8.0, adjacency="zero-out")
    broken_off(els, after=2)
    path = Path(config.out) / "released.json"
    kept = json.loads(path.read_text())
    (name,) = {*kept} - {"check"}
    kept[name] += 1
    if lost == "check":
        kept.pop("check")
    path.write_text(json.dumps(kept))
    with pytest.raises(InputError, match=r"released\.json was edited"):
        run(replace(els, resume=True))


def test_coins_do_not_pay_for_what_was_released_before_the_first_round(config, monkeypatch):
    """A ledger of coins alone was complete: the group size was taken for nothing."""
    els = replace(config, seed=-1, strategy="els", epsilon=8.0, adjacency="zero-out")
    with monkeypatch.context() as patched:
        patched.setattr(CohortStrategy, "start", raising(Killed))
        with pytest.raises(Killed):
            run(els)
    path = Path(config.out) / "ledger.jsonl"
    kinds = [line["event"]["kind"] for line in ledger_lines(config)]
    assert sorted(kinds) == ["hold-out", "pure-choice"]
    lines = chained_record.read(path).lines
    coins = [line for line in lines if line.get("event", {}).get("kind") != "pure-choice"]
    rewrite(path, coins)
    with pytest.raises(InputError, match=r"no charge for what stands in released\.json"):
        run(replace(els, resume=True))
    rewrite(path, lines)
    assert run(replace(els, resume=True))["rounds"] == 5


# Disks.


@pytest.mark.parametrize("file", ["checkpoint", "metrics.jsonl", "result.json", "report", "model"])
def test_a_full_disk_ends_a_run_in_one_line_and_it_goes_on(config, monkeypatch, file):
    def full(*_, **__):
        raise OSError(28, "No space left on device", f"{config.out}/{file}")

    targets = {
        "checkpoint": (RunDirectory, "save_checkpoint"),
        "metrics.jsonl": (RunDirectory, "add_metrics"),
        "report": (run_end, "write_report"),
        "model": (RewardModel, "save"),
    }
    with monkeypatch.context() as patched:
        if file == "result.json":
            real = RunDirectory.write_json
            patched.setattr(
                RunDirectory,
                "write_json",
                lambda self, name, data: full() if name == file else real(self, name, data),
            )
        else:
            patched.setattr(*targets[file], full)
        with pytest.raises(InputError, match=r"cannot be written.*No space left.*--resume") as it:
            run(config)
    assert "\n" not in str(it.value)
    if file == "checkpoint":  # written while the next round is asked: that one is not charged
        assert [line["round"] for line in ledger_lines(config)] == [0, 1]
    resumed = run(replace(config, resume=True))
    whole = run(replace(config, out=config.out + "-whole"))
    # A round that was charged and could not be stored is charged again, and the budget ends it.
    rounds = 4 if file in ("checkpoint", "metrics.jsonl") else 5
    assert (resumed["rounds"], resumed["epsilon"]) == (rounds, whole["epsilon"])


def test_a_disk_that_is_full_for_the_ledger_releases_nothing(config, monkeypatch):
    real, seen = os.write, []

    def write(descriptor, data):
        if b'"round"' in data:
            seen.append(data)
            if len(seen) == 4:  # the coins, and three rounds
                return real(descriptor, data[:20])
        return real(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(InputError, match=r"ledger\.jsonl cannot be written.*disk full"):
            run(config)
    assert [line["round"] for line in read_metrics(Path(config.out))] == [1, 2]
    assert run(replace(config, resume=True))["rounds"] == 5


def test_a_damaged_checkpoint_ends_in_one_line(config, broken_off):
    broken_off(replace(config, seed=-1), after=2)
    path = Path(config.out) / "checkpoint" / "state.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    with pytest.raises(InputError, match=r"state\.safetensors is damaged .*remove it"):
        run(replace(config, seed=-1, resume=True))
    path.unlink()  # then from the first round again, charged again
    result = run(replace(config, seed=-1, resume=True))
    assert result["stopped"] is not None
    assert [line["round"] for line in ledger_lines(config)][:4] == [0, 1, 2, 1]


def test_held_out_figures_that_were_lost_are_charged_again_or_not_told(tmp_path, crowd):
    config = RunConfig(
        data=crowd, heldout=0.4, epsilon=4.0, delta=1e-3, rounds=2, cohort=15, seed=3,
        out=str(tmp_path / "run"),
    )  # fmt: skip
    first = run(config)
    assert first["heldout_accuracy"] is not None
    for name in ("result.json", "released.json"):
        (Path(config.out) / name).unlink()
    result = run(replace(config, resume=True))
    assert result["heldout_accuracy"] is None  # there was no budget to tell it twice
    assert result["epsilon"] == first["epsilon"]


# The run directory and its ledger: a run goes on only where they agree.


EVENT = PoissonGaussian(0.5, 4.0)
TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": None}


@pytest.fixture
def unseeded(config):
    return replace(config, seed=-1)


def eight_rounds(config):
    """A run that ended after eight rounds; its folder, closed."""
    with RunDirectory(config) as folder:
        ledger = folder.open_ledger(**TERMS)
        for round_ in range(1, 9):
            ledger.charge(EVENT, round_=round_, covers="gradient")
            folder.add_metrics(Disclosure.public({"round": round_}))
            folder.save_checkpoint(round_, {"theta": np.zeros(2)})
    return folder


def on_with(config, **changes):
    """The ledger of a resumed run; its folder is left open with it."""
    folder = RunDirectory(replace(config, resume=True, **changes))
    return folder.open_ledger(**TERMS), folder


def test_a_checkpoint_knows_the_ledger(unseeded):
    folder = eight_rounds(unseeded)
    ledger, again = on_with(unseeded)
    checkpoint = again.load_checkpoint()
    assert checkpoint.head == ledger.head == chained_record.read(folder.ledger_path).head
    ledger.charge(EVENT, round_=9, covers="gradient")  # and then the process is killed
    again.close()
    on_with(unseeded)[1].close()


def delete(*names):
    def damage(folder):
        for name in names:
            (folder.path / name).unlink()

    return damage


def shortened(folder):
    """An older copy of ledger and head, which fit together."""
    contents = chained_record.read(folder.ledger_path)
    rewrite(folder.ledger_path, contents.lines[:7])


def rewritten(folder):
    """As many lines, others: the history of another run."""
    contents = chained_record.read(folder.ledger_path)
    lines = [{**line, "at": "2020-01-01T00:00:00+00:00"} for line in contents.lines[1:]]
    rewrite(folder.ledger_path, [contents.lines[0], *lines])


BOTH = ("ledger.jsonl", "ledger.jsonl.head")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (delete("ledger.jsonl"), "was deleted"),
        (delete(*BOTH), "was deleted, and its head with it"),
        (delete(*BOTH, "checkpoint/state.safetensors"), "was deleted, and its head with it"),
        (delete(*BOTH, "private/lock"), "the checkpoint after round 8 knows it"),
        (delete(*BOTH, "private/lock", "checkpoint/state.safetensors"), "8 rounds were done"),
        (shortened, "the checkpoint after round 8 knows it with 9 lines"),
        (rewritten, "the checkpoint after round 8 knows it with 9 lines, and other ones"),
    ],
)
def test_a_ledger_that_lost_something_is_refused_by_name(unseeded, damage, said):
    folder = eight_rounds(unseeded)
    damage(folder)
    with pytest.raises(LedgerLoss, match=f"ledger.jsonl.*{said}.*begin anew"):
        on_with(unseeded)
    with pytest.raises(LedgerLoss, match=said):  # and again: nothing was mended by looking
        on_with(unseeded)


def test_metrics_that_go_on_after_the_ledger_are_evidence(unseeded):
    folder = eight_rounds(unseeded)
    folder.add_metrics(Disclosure.public({"round": 9}))
    with pytest.raises(LedgerLoss, match="no charge for round 9, and 9 rounds were done"):
        on_with(unseeded)
    folder.add_metrics(Disclosure.public({"round": 10**15}))
    with pytest.raises(LedgerLoss, match="no charge for round 9"):
        on_with(unseeded)


def test_what_was_released_before_the_first_round_is_evidence(unseeded):
    with RunDirectory(unseeded) as folder:
        folder.open_ledger(**TERMS)
        folder.once("group-size", lambda: Released(7))
    with pytest.raises(LedgerLoss, match=r"no charge for what stands in released\.json"):
        on_with(unseeded)


@pytest.mark.parametrize(
    "edit", ["another's head", "earlier head", "no head", "rolled back ledger", "no ledger"]
)
def test_a_result_that_is_not_of_this_ledger_is_refused(config, edit):
    with RunDirectory(config) as folder:
        with folder.open_ledger(**TERMS) as ledger:
            before = {p: p.read_bytes() for p in folder.path.glob("ledger.jsonl*")}
            earlier = ledger.head
            ledger.charge(PoissonGaussian(0.1, 4.0), round_=1, covers="gradient sum")
            head = ledger.head
        assert folder.finished() is None
        result = Result(**RESULT | {"ledger_head": str(head)})
        folder.write_result(result)
        assert folder.finished() == result
        if edit == "another's head":
            folder.write_result(replace(result, ledger_head=f"{head.index}:{64 * 'a'}"))
        elif edit == "earlier head":
            folder.write_result(replace(result, ledger_head=str(earlier)))
        elif edit == "no head":
            folder.write_result(replace(result, ledger_head=""))
        elif edit == "no ledger":
            folder.ledger_path.unlink()
        else:
            for path, content in before.items():
                path.write_bytes(content)
        with pytest.raises(InputError, match=r"result\.json"):
            folder.finished()
