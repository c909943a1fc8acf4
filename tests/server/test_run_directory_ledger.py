"""The run directory and its ledger: a run goes on only where they agree."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import LedgerLoss
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure, Released
from murmuration.server.run_directory import RunDirectory
from murmuration.strategies.config import RunConfig

EVENT = PoissonGaussian(0.5, 4.0)
TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": None}


@pytest.fixture
def config(tmp_path):
    return RunConfig(data="d.jsonl", seed=7, out=str(tmp_path / "run"))


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
    accept_loss = changes.get("accept_ledger_loss", False)
    return folder.open_ledger(**TERMS, accept_loss=accept_loss), folder


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
    chained_record.rewrite(folder.ledger_path, contents.lines[:7])


def rewritten(folder):
    """As many lines, others: the history of another run."""
    contents = chained_record.read(folder.ledger_path)
    lines = [{**line, "at": "2020-01-01T00:00:00+00:00"} for line in contents.lines[1:]]
    chained_record.rewrite(folder.ledger_path, [contents.lines[0], *lines])


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
    with pytest.raises(LedgerLoss, match=f"ledger.jsonl.*{said}.*--accept-ledger-loss"):
        on_with(unseeded)
    with pytest.raises(LedgerLoss, match=said):  # and again: nothing was mended by looking
        on_with(unseeded)
    ledger, again = on_with(unseeded, accept_ledger_loss=True)
    assert ledger.unsettled
    again.settle({EVENT: 10})
    assert ledger.spent()[EVENT] >= 10
    ledger.charge(EVENT, round_=9, covers="gradient")
    head = ledger.head
    again.close()
    ledger, last = on_with(unseeded)  # what was accepted is not asked again
    assert (ledger.head, len(ledger.lost)) == (head, 1)
    last.close()


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


def test_a_second_loss_costs_more_than_the_first(unseeded):
    folder = eight_rounds(unseeded)
    for times in (1, 2):
        delete(*BOTH)(folder)
        ledger, folder = on_with(unseeded, accept_ledger_loss=True)
        folder.settle({EVENT: 10})
        assert ledger.spent()[EVENT] == 10 * times
        folder.close()


def test_a_run_of_an_earlier_version_is_not_resumed(config):
    folder = RunDirectory(config)
    folder.close()
    folder.ledger_path.write_text('{"ledger": 1, "adjacency": "add-remove"}\n{"round": 1}\n')
    with pytest.raises(InputError, match=r"made by an earlier version.*another --out"):
        RunDirectory(replace(config, resume=True))


@pytest.mark.parametrize("edit", ["another's head", "no head", "rolled back ledger", "no ledger"])
def test_a_result_that_is_not_of_this_ledger_is_refused(config, edit):
    with RunDirectory(config) as folder:
        with folder.open_ledger(**TERMS) as ledger:
            before = {p: p.read_bytes() for p in folder.path.glob("ledger.jsonl*")}
            ledger.charge(PoissonGaussian(0.1, 4.0), round_=1, covers="gradient sum")
            head = ledger.head
        assert folder.finished() is None
        folder.write_json(
            "result.json", Disclosure.public({"epsilon": 1.0, "ledger_head": str(head)})
        )
        assert folder.finished() == {"epsilon": 1.0, "ledger_head": str(head)}
        if edit == "another's head":
            folder.write_json(
                "result.json",
                Disclosure.public({"epsilon": 0.1, "ledger_head": f"{head.index}:{64 * 'a'}"}),
            )
        elif edit == "no head":
            folder.write_json("result.json", Disclosure.public({"epsilon": 0.1}))
        elif edit == "no ledger":
            folder.ledger_path.unlink()
        else:
            for path, content in before.items():
                path.write_bytes(content)
        with pytest.raises(InputError, match=r"result\.json"):
            folder.finished()
