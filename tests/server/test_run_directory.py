"""The run directory: whose it is, what is written whole, and what stays private."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from preference.judgements import InputError
from server.config import RunConfig
from server.run_directory import RunDirectory


@pytest.fixture
def config(tmp_path):
    return RunConfig(data="d.jsonl", seed=7, out=str(tmp_path / "run"))


def files(folder):
    return sorted(str(p.relative_to(folder.path)) for p in folder.path.rglob("*") if p.is_file())


def test_a_new_run(config):
    folder = RunDirectory(config)
    assert files(folder) == ["config.json", "private/seed.json"]
    assert json.loads((folder.path / "config.json").read_text()) == config.promise()
    assert folder.result is None
    assert folder.metrics() == []
    assert folder.load_checkpoint() is None


def test_private_is_private_and_holds_the_seed_alone(config):
    folder = RunDirectory(replace(config, seed=918273645))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert ("918273645" in path.read_text()) == (path.parent == folder.private)
    folder.private.chmod(0o755)
    RunDirectory(replace(config, seed=918273645, resume=True))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700


def test_public_files_have_the_modes_of_ordinary_files(config):
    folder = RunDirectory(config)
    before = os.umask(0o022)
    try:
        folder.write_json("result.json", {})
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
    (folder / ".config.json.abc").write_text("{")
    assert RunDirectory(config).split_seed == 7


def test_resuming(config):
    RunDirectory(config)
    again = replace(config, resume=True)
    assert RunDirectory(again).split_seed == 7
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
    (folder.path / "config.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))
    (folder.path / "config.json").write_text(json.dumps(config.promise()))
    (folder.private / "seed.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))


def test_who_is_held_out_is_drawn_once(config):
    unseeded = replace(config, seed=-1)
    first = RunDirectory(unseeded)
    assert RunDirectory(replace(unseeded, resume=True)).split_seed == first.split_seed
    other = RunDirectory(replace(unseeded, out=config.out + "2"))
    assert other.split_seed != first.split_seed
    assert RunDirectory(replace(config, out=config.out + "3")).split_seed == 7


def test_a_run_has_one_name_that_tells_nothing(config):
    unseeded = replace(config, seed=-1)
    first = RunDirectory(unseeded)
    assert RunDirectory(replace(unseeded, resume=True)).run_name == first.run_name
    other = RunDirectory(replace(unseeded, out=config.out + "2"))
    assert other.run_name != first.run_name
    assert first.run_name.isalnum()
    assert str(first.split_seed) not in first.run_name


def test_a_seeded_run_keeps_its_nodes(config):
    folder = RunDirectory(config)
    folder.keep_nodes(5)
    folder.keep_nodes(5)
    with pytest.raises(InputError, match="were on 5 nodes and are now on 1"):
        folder.keep_nodes(1)
    unseeded = RunDirectory(replace(config, seed=-1, out=config.out + "2"))
    unseeded.keep_nodes(5)
    unseeded.keep_nodes(6)


def test_discarding_what_was_not_used(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n')
    folder.discard_if_unused()
    assert not folder.path.exists()


def test_a_run_that_released_something_is_never_discarded(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n{"round": 1}\n')
    folder.discard_if_unused()
    assert folder.path.exists()
    folder.ledger_path.write_text('{"ledger": 1}\n')
    RunDirectory(replace(config, resume=True)).discard_if_unused()
    assert folder.path.exists(), "a resumed run made nothing that could be discarded"


def test_writing_is_all_or_nothing(config, monkeypatch):
    folder = RunDirectory(config)
    folder.write_json("result.json", {"a": 1})

    def full(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        folder.write_json("result.json", {"a": 2})
    assert folder.result == {"a": 1}
    assert files(folder) == ["config.json", "private/seed.json", "result.json"]
    monkeypatch.undo()
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("result.json", {"a": float("nan")})
    assert folder.result == {"a": 1}


def test_metrics_with_a_torn_line(config):
    folder = RunDirectory(config)
    for round_ in (1, 2, 3):
        folder.add_metrics({"round": round_})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "eps')
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(2)
    assert (folder.path / "metrics.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'
    folder.add_metrics({"round": 3})
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(0)
    assert folder.metrics() == []


def test_metrics_must_be_json(config):
    with pytest.raises(ValueError, match="JSON"):
        RunDirectory(config).add_metrics({"round": 1, "epsilon": float("inf")})


def test_checkpoint_round_trip(config):
    folder = RunDirectory(config)
    state = {"theta": np.linspace(0, 1, 5), "averaged": np.array([3])}
    folder.save_checkpoint(3, {"theta": np.zeros(5)})
    folder.save_checkpoint(4, state)
    round_, found = folder.load_checkpoint()
    assert round_ == 4
    assert set(found) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype
    assert [p.name for p in (folder.path / "checkpoint").iterdir()] == ["state.safetensors"]


def test_the_private_log(config):
    folder = RunDirectory(config)
    folder.log_private({"round": 1, "cohort": 4})
    folder.log_private({"round": 1, "left out": "line 1\nline 2"})
    lines = (folder.private / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"round": 1, "cohort": 4},
        {"round": 1, "left out": "line 1\nline 2"},
    ]


def test_what_is_released_once_is_kept(config):
    folder, asked = RunDirectory(config), []

    def release():
        asked.append(1)
        return 7

    assert [folder.once("group-size", release) for _ in range(2)] == [7, 7]
    assert RunDirectory(replace(config, resume=True)).once("group-size", release) == 7
    assert asked == [1]
    assert folder.once("other", lambda: 3) == 3
    assert folder.once("group-size", release) == 7
