"""The run directory: whose it is, what is written whole, and what stays private."""

import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cards import RESULT
from damage import rewrite

from murmuration.api.config import make_config as settings
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.events import HoldOut, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, LedgerLoss
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure, Released
from murmuration.server import run_folder
from murmuration.server.result import Result
from murmuration.server.run_directory import RunDirectory
from murmuration.server.run_files import former_nodes, read_json
from murmuration.server.run_lock import RunLock

pytestmark = pytest.mark.settings(data="d.jsonl", delta=1e-5, seed=7)


def files(folder):
    return sorted(str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file())


def test_a_new_run(config):
    folder = RunDirectory(config)
    first = ["config.json", "private/keys.json", "private/lock", "private/seed.json"]
    assert files(folder) == first
    written = json.loads((folder.path / "config.json").read_text())
    assert len(written.pop("check")) == 64
    assert written == config.immutable_fields()
    assert Result.read(folder.path) is None
    assert folder.metrics() == []
    assert folder.load_checkpoint() is None


def test_private_is_private_and_holds_the_seed_alone(config):
    folder = RunDirectory(replace(config, seed=918273645))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    for path in folder.path.rglob("*"):
        if path.is_file():
            private = path == folder.private / "seed.json"
            assert ("918273645" in path.read_text()) == private
    keys = json.loads((folder.private / "keys.json").read_text())
    for path in folder.path.rglob("*"):
        if path.is_file() and path.parent != folder.private:
            assert not any(key in path.read_text() for key in keys.values())
    folder.private.chmod(0o755)
    folder.close()
    RunDirectory(replace(config, seed=918273645, resume=True))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700


def test_public_files_have_the_modes_of_ordinary_files(config):
    folder = RunDirectory(config)
    before = os.umask(0o022)
    try:
        folder.write_json("result.json", Disclosure.public({}))
        assert stat.S_IMODE((folder.path / "result.json").stat().st_mode) == 0o644
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_another_run_is_refused(config):
    RunDirectory(config)
    with pytest.raises(InputError, match="holds a run already; continue it with --resume"):
        RunDirectory(config)


def test_a_folder_with_other_things_is_refused(config, tmp_path):
    (tmp_path / "run").mkdir()
    RunDirectory(config)  # an empty folder will do
    (tmp_path / "other" / "private").mkdir(parents=True)
    (tmp_path / "other" / "private" / "diary.txt").write_text("…")
    with pytest.raises(InputError, match="is not empty"):
        RunDirectory(replace(config, out=str(tmp_path / "other")))
    assert [p.name for p in (tmp_path / "other").rglob("*")] == ["private", "diary.txt"]


def test_a_file_in_the_folders_place_is_refused(config, tmp_path):
    (tmp_path / "file").write_text("x")
    for out in ("file", "file/run"):
        with pytest.raises(InputError, match="--out"):
            RunDirectory(replace(config, out=str(tmp_path / out)))


def test_what_a_run_leaves_that_was_killed_in_its_first_step_is_no_run(config, tmp_path):
    folder = tmp_path / "run"
    (folder / "private").mkdir(parents=True)
    (folder / "private" / "seed.json").write_text("{}")
    (folder / "private" / ".seed.json.abc").write_text("{")
    (folder / "private" / "lock").write_text("")
    (folder / "private" / "keys.json").write_text("{}")
    (folder / "private" / ".keys.json.abc").write_text("{")
    (folder / ".config.json.abc").write_text("{")
    assert len(RunDirectory(replace(config, seed=-1)).secret("hold-out coins")) == 32


def test_resuming(config):
    name = RunDirectory(config).run_name
    again = replace(config, resume=True)
    assert RunDirectory(again).run_name == name
    RunDirectory(replace(again, timeout=5.0))  # decides neither result nor cost


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"epsilon": 2.0}, "--epsilon was 3.0 and is now 2.0"),
        ({"seed": 8}, "--seed was 7 and is now 8"),
        ({"seed": -1}, "--seed"),
        ({"data": "e.jsonl"}, "--data"),
        ({"group_size": 4}, "--group-size"),
        ({"test": "t.jsonl"}, "--test"),
    ],
)
def test_resuming_with_other_settings_names_the_option(config, change, option):
    RunDirectory(config)
    with pytest.raises(InputError, match="--resume with other settings") as caught:
        RunDirectory(replace(config, resume=True, **change))
    assert option in str(caught.value)


def test_nothing_to_resume(config):
    with pytest.raises(InputError, match="no run in"):
        RunDirectory(replace(config, resume=True))
    assert not Path(config.out).exists()


@pytest.mark.parametrize("damage", ["{", "[1]", "{}"])
def test_a_damaged_run_cannot_be_resumed(config, damage):
    folder = RunDirectory(config)
    folder.close()
    (folder.path / "config.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))
    (folder.path / "config.json").write_text(json.dumps(config.immutable_fields()))
    (folder.private / "seed.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))


def test_who_is_held_out_is_drawn_once(config):
    unseeded = replace(config, seed=-1)
    first = RunDirectory(unseeded)
    key = first.secret("hold-out coins")
    assert len(key) == 32
    first.close()
    assert RunDirectory(replace(unseeded, resume=True)).secret("hold-out coins") == key
    other = RunDirectory(replace(unseeded, out=config.out + "2"))
    assert other.secret("hold-out coins") != key
    # Every purpose has a key of its own, and none follows from a name or another key.
    found = {first.secret(purpose) for purpose in ("hold-out coins", "registry salt", "run name")}
    assert len(found) == 3
    seeded = [RunDirectory(replace(config, out=config.out + n)) for n in "34"]
    assert len({folder.secret("hold-out coins") for folder in seeded}) == 1  # it can be repeated
    assert len({folder.run_name for folder in seeded}) == 2


@pytest.mark.parametrize("damage", [None, "{", "{}", '{"hold-out coins": 3}'])
def test_a_run_without_its_keys_cannot_go_on(config, damage):
    folder = RunDirectory(replace(config, seed=-1))
    keys = folder.private / "keys.json"
    keys.unlink() if damage is None else keys.write_text(damage)
    with pytest.raises(InputError, match=r"keys\.json is (gone or )?damaged"):
        folder.secret("hold-out coins")


def one_digit(text):
    """A text with its last digit changed."""
    place = max(i for i, letter in enumerate(text) if letter.isdigit())
    return text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]


def edited_key(purpose):
    def edit(folder, other):
        path = folder / "private" / "keys.json"
        keys = json.loads(path.read_text())
        path.write_text(json.dumps({**keys, purpose: one_digit(keys[purpose])}))

    return edit


def edited_config(**changes):
    def edit(folder, other):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def swapped(name):
    def edit(folder, other):
        (folder / name).write_bytes((other / name).read_bytes())

    return edit


def edited_seed(folder, other):
    path = folder / "private" / "seed.json"
    path.write_text(json.dumps({"seed": json.loads(path.read_text())["seed"] + 1}))


@pytest.mark.parametrize("seed", [7, -1])
@pytest.mark.parametrize(
    "edit",
    [
        edited_key("hold-out coins"),
        edited_key("registry salt"),
        edited_key("run name"),
        edited_seed,
        edited_config(heldout=0.3),
        edited_config(clip_norm=0.5),
        edited_config(check=""),
        swapped("private/keys.json"),
        swapped("config.json"),
    ],
)
def test_keys_seed_and_settings_do_not_change_alone(config, seed, edit):
    """Else other users would be held out than before, or steps taken on other terms."""
    config = replace(config, seed=seed)
    folder, other = RunDirectory(config), RunDirectory(replace(config, out=config.out + "2"))
    folder.close()
    again = replace(config, resume=True)
    RunDirectory(again).close()
    edit(folder.path, other.path)
    # As the command line does it: what is not repeated is read from the folder.
    read = settings({"out": config.out, "resume": True})
    with pytest.raises(InputError, match=r"does not agree with seed\.json and keys\.json"):
        RunDirectory(read)
    assert RunLock(folder.path)  # the folder is free again


def test_discarding_what_was_not_used(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n')
    folder.discard_if_unused()
    folder.close()
    assert not folder.path.exists()
    folder = RunDirectory(config)
    with Ledger(
        folder.ledger_path, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, budget=3.0
    ) as ledger:
        ledger.charge(HoldOut(config.heldout), round_=0, covers="coins")  # which tell nothing
    folder.discard_if_unused()
    assert not folder.path.exists()


def test_discarding_through_a_link_leaves_no_folder_behind(config, tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    config = replace(config, out=str(tmp_path / "link"))
    with RunDirectory(config) as folder:
        assert folder.path == tmp_path / "place"
        folder.discard_if_unused()
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    assert RunDirectory(config).path.exists()  # and can be begun again


def test_a_run_that_released_something_is_never_discarded(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n{"round": 1}\n')
    folder.discard_if_unused()
    folder.close()
    assert folder.path.exists()
    folder.ledger_path.write_text('{"ledger": 2}\n')
    RunDirectory(replace(config, resume=True)).discard_if_unused()
    assert folder.path.exists(), "a resumed run made nothing that could be discarded"


def test_writing_is_all_or_nothing(config, monkeypatch):
    folder = RunDirectory(config)
    folder.write_json("result.json", Disclosure.public({"a": 1}))

    def full(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        folder.write_json("result.json", Disclosure.public({"a": 2}))
    assert read_json(folder.path / "result.json") == {"a": 1}
    kept = ["config.json", "private/keys.json", "private/lock", "private/seed.json", "result.json"]
    assert files(folder) == kept
    monkeypatch.undo()
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("result.json", Disclosure.public({"a": float("nan")}))
    assert read_json(folder.path / "result.json") == {"a": 1}


def test_metrics_with_a_torn_line(config):
    folder = RunDirectory(config)
    for round_ in (1, 2, 3):
        folder.add_metrics(Disclosure.public({"round": round_}))
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "eps')
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(2)
    assert (folder.path / "metrics.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'
    folder.add_metrics(Disclosure.public({"round": 3}))
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(0)
    assert folder.metrics() == []


def test_metrics_must_be_json(config):
    line = Disclosure.public({"round": 1, "epsilon": float("inf")})
    with pytest.raises(ValueError, match="JSON"):
        RunDirectory(config).add_metrics(line)


def test_the_private_log(config):
    folder = RunDirectory(config)
    folder.log_private({"round": 1, "cohort": 4})
    folder.log_private({"round": 1, "left out": "line 1\nline 2"})
    lines = (folder.private / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"round": 1, "cohort": 4},
        {"round": 1, "left out": "line 1\nline 2"},
    ]


def test_the_last_round_that_nodes_were_asked_in(config):
    folder = RunDirectory(config)
    assert folder.last_asked() == 0
    folder.log_private({"round": 1, "cohort": 4})
    folder.log_private({"round": 2, "cohort": 0})
    folder.log_private({"round": 3, "left out": "everybody"})
    with (folder.private / "log.jsonl").open("a") as file:
        file.write('{"round": 7, "coho')
    assert folder.last_asked() == 2


def test_a_run_that_goes_on_stands_on_no_fewer_private_runs(config):
    folder = RunDirectory(config)
    folder.keep_lineage(["b", "a"])
    folder.close()
    with RunDirectory(replace(config, resume=True)) as resumed:
        with pytest.raises(InputError, match=r"private run b had made.*privacy\.json"):
            resumed.keep_lineage(["a"])
        resumed.keep_lineage(["a", "b", "c"])
        with pytest.raises(InputError, match="private run c had made"):
            resumed.keep_lineage(["a", "b"])


def test_what_is_released_once_is_kept(config):
    folder, asked = RunDirectory(config), []

    def release():
        asked.append(1)
        return Released(7)

    assert [folder.once("group-size", release) for _ in range(2)] == [7, 7]
    folder.close()
    assert RunDirectory(replace(config, resume=True)).once("group-size", release) == 7
    assert asked == [1]
    assert folder.once("other", lambda: Released(3)) == 3
    assert folder.once("group-size", release) == 7


# One process at a time.


def test_a_folder_in_use_is_refused_and_left_alone(config, monkeypatch):
    monkeypatch.setattr(run_folder, "PATIENCE", 0.2)
    with RunDirectory(config) as first:
        before = {path: path.read_bytes() for path in first.path.rglob("*") if path.is_file()}
        for again in (replace(config, resume=True), replace(config, resume=True, seed=7)):
            with pytest.raises(InputError, match="in use by another run"):
                RunDirectory(again)
        assert {p: p.read_bytes() for p in first.path.rglob("*") if p.is_file()} == before
    RunDirectory(replace(config, resume=True))


def test_a_resumed_run_waits_a_little_for_the_one_before_it_to_end(config):
    first = RunDirectory(config)
    threading.Timer(0.3, first.close).start()
    RunDirectory(replace(config, resume=True))


def test_a_discarded_folder_is_not_taken_from_who_made_it_anew(config):
    """The loser of two runs that begin at once must not remove the winner's folder."""
    first = RunDirectory(config)
    first.discard_if_unused()
    second = RunDirectory(config)  # while the first still has the lock of what was there
    first.close()
    first = ["config.json", "private/keys.json", "private/lock", "private/seed.json"]
    assert files(second) == first
    with pytest.raises(InputError, match="holds a run already"):
        RunDirectory(config)
    assert not [path for path in second.path.parent.iterdir() if "discarded" in path.name]


def test_two_processes_at_once_on_one_folder(config, tmp_path):
    """Whoever is refused leaves what the other one wrote."""
    code = (
        "import sys; from murmuration.strategies.config import RunConfig; "
        "from murmuration.server.run_directory import *\n"
        "from murmuration.preference.data.judgements import InputError\n"
        "sys.stdin.readline()\n"
        "for turn in range(30):\n"
        "    try: folder = RunDirectory(RunConfig(data='d', seed=7, out=f'{sys.argv[1]}/{turn}'))\n"
        "    except InputError as error:\n"
        "        refused = 'in use', 'holds a run', 'not empty'\n"
        "        print(any(reason in str(error) for reason in refused)); continue\n"
        "    folder.write_json('result.json', Disclosure.public({'by': sys.argv[2]}))\n"
        "    print(read_json(folder.path / 'result.json') == {'by': sys.argv[2]})\n"
        "    if turn % 3 == 0: folder.discard_if_unused()\n"
        "    folder.close()\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in "ab"
    ]  # fmt: skip
    try:
        for process in both:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=120)[0].split() for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert said == [["True"] * 30] * 2
    for turn in range(30):
        if turn % 3:
            assert (tmp_path / str(turn) / "result.json").exists()


# What damaged files come to.


def test_damaged_json_is_one_line(config):
    folder = RunDirectory(replace(config, seed=-1))
    folder.write_private("nodes.json", {"nodes": 3})
    folder.once("group-size", lambda: Released(4))
    folder.write_result(Result(**RESULT))
    looks = {
        "result.json": lambda: Result.read(folder.path),
        "private/keys.json": lambda: folder.secret("hold-out coins"),
        "private/nodes.json": lambda: former_nodes(folder.path),
        "released.json": lambda: folder.once("group-size", lambda: Released(5)),
    }
    for name, look in looks.items():
        good = (folder.path / name).read_bytes()
        for damage in (b"", b"{", b"[1]", b"\xff", good[:-4], b"[" * 100_000):
            (folder.path / name).write_bytes(damage)
            with pytest.raises(InputError, match=f"{name} is damaged") as caught:
                look()
            assert "\n" not in str(caught.value)
        (folder.path / name).write_bytes(good)
        look()


def test_metrics_that_are_no_metrics_are_left_out(config):
    folder = RunDirectory(config)
    folder.add_metrics(Disclosure.public({"round": 1}))
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'7\n\xff\n{"round": "x"}\n[]\n')
    folder.add_metrics(Disclosure.public({"round": 2}))
    assert [line["round"] for line in folder.metrics()] == [1, 2]


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
