"""From options to settings: defaults, paths, and what a resumed run had."""

import json
import os
from pathlib import Path

import pytest

from murmuration.api.config import make_config as settings
from murmuration.preference.data.judgements import InputError
from murmuration.strategies.config import read_settings


@pytest.fixture
def executed(monkeypatch):
    """What a command line asks for: (config, more), instead of running it."""
    asked = []

    def execute(config, **more):
        asked.append((config, more))
        return {"out": config.out}

    monkeypatch.setattr(
        "murmuration.reporting.live.live_view.summary", lambda result: result["out"]
    )
    monkeypatch.setattr("murmuration.sims.runtimes.execute.execute", execute)
    return asked


def test_own_data_has_no_embedded_test(cli, executed, crowd):
    cli("run", "--data", crowd)
    assert executed[0][0].test == ""


def test_paths_become_absolute(cli, executed, crowd, crowd_test, monkeypatch):
    monkeypatch.chdir(Path(crowd).parent)
    test = os.path.relpath(crowd_test, Path(crowd).parent)
    cli("run", "--data", "crowd.jsonl", "--test", test, "--out", "o")
    config = executed[0][0]
    assert config.data == crowd
    assert Path(config.test).is_absolute()
    assert Path(config.test).samefile(crowd_test)
    assert config.out == str(Path(crowd).parent / "o")


def test_what_is_said_of_the_data_becomes_settings(cli, executed, crowd, monkeypatch):
    monkeypatch.chdir(Path(crowd).parent)
    cli("run", "--data", "o/n", "--split", "s", "--data-config", "c", "--user-column", "who")
    cli("run", "--data", ".", "--split", "test", "--columns", "chosen=a", "--one-user-per-row")
    first, second = executed[0][0], executed[1][0]
    assert (first.data, first.columns, first.one_user_per_row) == ("o/n#c/s", "user_id=who", False)
    assert second.data == f"{Path(crowd).parent}#test"
    assert (second.columns, second.schema.one_user_per_row) == ("chosen=a", True)
    code, _, lines = cli("run", "--split", "train")
    assert (code, lines) == (2, ["error: --split and --data-config are about --data: name it"])


def test_resume_needs_a_place(cli):
    code, _, lines = cli("run", "--resume")
    assert (code, lines) == (2, ["error: --resume needs --out, the folder of the run to continue"])


@pytest.mark.parametrize(
    ("config", "seed"),
    [("{", '{"seed": 1}'), ("[]", '{"seed": 1}'), ('{"lr": 1}', '{"seed": 1}'), ("{}", "{}"),
     ('{"rounds": "many"}', '{"seed": 1}'), ("{}", "[1]")],
)  # fmt: skip
def test_damaged_runs_are_not_resumed(cli, tmp_path, config, seed):
    (tmp_path / "private").mkdir()
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "private" / "seed.json").write_text(seed)
    code, _, lines = cli("run", "--resume", "--out", tmp_path)
    assert code == 2
    assert len(lines) == 1


def test_each_task_has_its_embedded_population(tmp_path):
    found = {}
    for task in (None, "reward", "text", "sft"):
        base = {} if task in (None, "reward") else {"base": str(tmp_path)}
        config = settings({"task": task, **base, "out": str(tmp_path / "o")})
        found[task] = (config.data, config.test)
    assert found[None] == found["reward"] == found["sft"]
    assert found["text"] == (
        "murmuration.population:texts_train",
        "murmuration.population:texts_test",
    )
    with pytest.raises(InputError, match="--task must be one of"):
        settings({"task": "write", "out": str(tmp_path / "o")})


def test_a_file_gives_settings_and_options_override_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('strategy = "els"\ngroup-size = 4\nepsilon = 1\ndelta = "n^-1.1"\nrounds = 7\n')
    found = settings({**read_settings(file), "rounds": 9, "out": str(tmp_path / "o")})
    assert (found.strategy, found.group_size, found.epsilon, found.delta) == ("els", 4, 1.0, 0.0)
    assert found.rounds == 9


def test_the_config_of_any_run_is_such_a_file(cli, crowd, crowd_test, tmp_path):
    options = ["--data", crowd, "--test", crowd_test, "--rounds", 2, "--cohort", 20]
    options += ["--epsilon", 8, "--delta", 1e-3, "--seed", 3, "--json"]
    code, first, _ = cli("run", *options, "--out", tmp_path / "a", "--clip-norm", 0.2)
    assert code == 0
    code, second, lines = cli(
        "run", "--config", tmp_path / "a" / "config.json", "--seed", 3, "--out", tmp_path / "b",
        "--json",
    )  # fmt: skip
    assert code == 0, lines
    same = ("clip_norm", "noise_multiplier", "epsilon", "heldout_accuracy")
    assert [json.loads(first)[n] for n in same] == [json.loads(second)[n] for n in same]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = ", "cannot be used"),
        ("epsylon = 3.0", "unknown setting 'epsylon'"),
        ("rounds = 3.5", "'rounds' must be a int; got 3.5"),
        ("resume = 1", "'resume' must be a bool; got 1"),
        ('delta = "much"', "--delta must be a number"),
    ],
)
def test_files_that_are_none(cli, tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    code, _, lines = cli("run", "--config", tmp_path / "run.toml", "--out", tmp_path / "o")
    assert code == 2
    assert message in lines[-1]
    assert not (tmp_path / "o").exists()


def test_unfinished_runs_of_earlier_versions_are_refused_in_a_line(cli, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "seed.json").write_text('{"seed": 0}')
    (tmp_path / "config.json").write_text('{"data": "sims.population:train", "rounds": 20}')
    code, _, lines = cli("run", "--resume", "--out", tmp_path)
    assert code == 2
    assert "begun by an earlier version" in lines[-1]


def test_names_are_not_taken_for_pictures(cli, tmp_path):
    code, _, lines = cli("run", "--data", "nowhere.at.all:train", "--out", tmp_path / "o")
    assert code == 2
    assert "nowhere.at.all:train" in lines[-1]


def test_help_of_a_strategy_shows_what_it_can_use(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, everything, _ = cli("run", "--help-all")
    _, own, _ = cli("run", "--strategy", "els", "--help")
    for option in ("--sampling-probability", "--normalized", "--epsilon", "--runtime"):
        assert option in everything
        assert option in own
    for option in ("--quantile", "--estimator", "--local-steps", "--retain"):
        assert option in everything
        assert option not in own
    _, solved, _ = cli("run", "--strategy", "label-moment", "--help")
    for option in ("--learning-rate", "--group-size", "--cohort", "--optimizer"):
        assert option in own
        assert option not in solved
    assert "--ridge" in solved
    for panel in ("Data", "Privacy", "Training", "Model", "Runtime", "Output", "Only for els"):
        assert f"─ {panel}" in everything


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"heldout": 0.3},
        {"delta": 0.0},
        {"strategy": "label-moment", "adjacency": "replace-labels"},
        {"strategy": "els", "group_size": 4, "normalized": True},
    ],
)
def test_the_config_of_a_run_sets_the_same_run(tmp_path, monkeypatch, given):
    """In whatever folder: an empty name of a test file is no folder, and holds users out."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "d.jsonl"
    data.touch()
    first = settings({"data": str(data), "out": str(tmp_path / "a"), **given})
    (tmp_path / "config.json").write_text(json.dumps({**first.immutable_fields(), "check": "x"}))
    again = settings({**read_settings(tmp_path / "config.json"), "out": str(tmp_path / "b")})
    assert again.immutable_fields() == first.immutable_fields()
    assert again.hold_out == first.hold_out


def test_the_config_of_a_run_of_an_earlier_version_counts_length_as_it_did(tmp_path):
    """Which had no such setting; of a language model there is none to be repeated."""
    file = tmp_path / "config.json"
    for base, length in ({"base": ""}, "log"), ({"base": "b"}, None):
        file.write_text(json.dumps({"epsilon": 1.0, "check": "x", **base}))
        assert read_settings(file).get("length") == length
    file.write_text(json.dumps({"epsilon": 1.0}))  # somebody's own, not of a run
    assert "length" not in read_settings(file)


def test_what_is_of_other_strategies_is_no_part_of_a_run():
    mine = settings({"strategy": "els", "group_size": 4, "out": "o"}).immutable_fields()
    assert "sampling_probability" in mine
    assert not {"quantile", "estimator", "local_steps"} & set(mine)


@pytest.mark.parametrize(
    "text", ['registration = "x"', "refresh = 3", "least-nodes = 3", "delta = 0"]
)
def test_what_is_no_option_is_no_line_of_a_file(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(InputError, match=r"unknown setting|--delta must be"):
        read_settings(tmp_path / "run.toml")
