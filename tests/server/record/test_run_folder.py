"""The folder of a run: whose it is, one process at a time, and written whole."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.disclosure import Disclosure
from murmuration.server.record import run_folder
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.record.run_files import read_json

pytestmark = pytest.mark.settings(data="d.jsonl", delta=1e-5, seed=7)

#: What a run writes first.
FIRST = ["config.json", "private/keys.json", "private/lock", "private/seed.json"]


def files(folder):
    return sorted(str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file())


def test_a_new_run(config):
    folder = RunDirectory(config)
    assert files(folder) == FIRST
    written = json.loads((folder.path / "config.json").read_text())
    assert len(written.pop("check")) == 64
    assert written == config.immutable_fields()
    assert Result.read(folder.path) is None
    assert folder.metrics() == []
    assert folder.load_checkpoint() is None


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


def test_nothing_to_resume(config):
    with pytest.raises(InputError, match="no run in"):
        RunDirectory(replace(config, resume=True))
    assert not Path(config.out).exists()


def test_writing_is_all_or_nothing(config, monkeypatch):
    folder = RunDirectory(config)
    folder.write_json("result.json", Disclosure.public({"a": 1}))

    def full(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        folder.write_json("result.json", Disclosure.public({"a": 2}))
    assert read_json(folder.path / "result.json") == {"a": 1}
    assert files(folder) == [*FIRST, "result.json"]
    monkeypatch.undo()
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("result.json", Disclosure.public({"a": float("nan")}))
    assert read_json(folder.path / "result.json") == {"a": 1}


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
    assert files(second) == FIRST
    with pytest.raises(InputError, match="holds a run already"):
        RunDirectory(config)
    assert not [path for path in second.path.parent.iterdir() if "discarded" in path.name]


def test_two_processes_at_once_on_one_folder(config, tmp_path):
    """Whoever is refused leaves what the other one wrote."""
    code = (
        "import sys; from murmuration.strategies.config import RunConfig; "
        "from murmuration.server.record.run_directory import *\n"
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
