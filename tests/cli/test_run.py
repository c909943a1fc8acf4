"""``murmuration run``: options, the JSON contract, what is learnt."""

import inspect
import json
import os
from pathlib import Path

import pytest

from murmuration.api.config import make_config as settings
from murmuration.cli import run
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.reporting.comparison import read_run
from murmuration.reporting.facts import facts
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig, read_settings
from murmuration.strategies.spec import NodeHalf, clip_norm

pytestmark = pytest.mark.usefixtures("quick_runs")

CONTRACT = {
    "strategy",
    "adjacency",
    "epsilon",
    "epsilon_target",
    "delta",
    "noise_multiplier",
    "rounds",
    "users",
    "cohort",
    "heldout_accuracy",
    "heldout_accuracy_by_user",
    "heldout_users",
    "test_users",
    "users_per_second",
    "seconds_training",
    "out",
}
SMALL = ["--epsilon", 0.5, "--delta", 1e-3, "--rounds", 3, "--cohort", 10]


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


def test_json_contract(cli, crowd, crowd_test, tmp_path):
    out = tmp_path / "a" / "run"
    code, stdout, _ = cli(
        "run", "--data", crowd, "--test", crowd_test, *SMALL, "--seed", 3, "--out", out, "--json"
    )
    assert code == 0
    result = json.loads(stdout.splitlines()[-1])
    assert set(result) >= CONTRACT
    assert result["out"] == str(out)
    assert (result["strategy"], result["rounds"], result["users"]) == ("uls", 3, 50)
    assert 0.495 < result["epsilon"] <= 0.5
    assert RewardModel.load(out / "model").score("What now?", "Save it.") != 0.0


def test_every_option_reaches_its_setting(cli, executed, crowd, crowd_test, tmp_path):
    given = {
        "data": crowd,
        "test": crowd_test,
        "strategy": "nonprivate",
        "model": "thurstone",
        "epsilon": 2.5,
        "delta": 1e-4,
        "adjacency": "replace",
        "rounds": 7,
        "cohort": 8,
        "users": 90,
        "clip_norm": 0.3,
        "group_size": 5,
        "features": "hashing",
        "columns": "user_id=who",
        "on_bad_rows": "skip",
        "heldout": 0.3,
        "optimizer": "adam",
        "learning_rate": 0.6,
        "momentum": 0.4,
        "seed": 12,
    }
    of_models = {
        "base": str(tmp_path),
        "task": "sft",
        "train": "full",
        "lora_rank": 3,
        "max_tokens": 7,
        "lora_targets": "a,b",
        "batch_tokens": 8,
    }
    ray = ["--runtime", "ray", "--users-per-node", 9]
    ray += ["--workers", 3, "--cpus-per-worker", 2, "--gpus-per-worker", 0.25]
    for settings_ in (given, of_models):
        pairs = [(f"--{name.replace('_', '-')}", value) for name, value in settings_.items()]
        options = [part for pair in pairs for part in pair]
        cli("run", *options, *ray, "--user-passes", "shared", "--out", tmp_path / "o")
        config, more = executed.pop()
        assert {name: getattr(config, name) for name in settings_} == settings_
        assert config.shared_passes and not config.resume
        assert config.out == str(tmp_path / "o")
    here = {"runtime": "ray", "users_per_node": 9, "workers": Workers(3, 2, 0.25)}
    assert more == {**here, "quiet": False, "on_note": None, "advice": None}


def test_every_option_is_a_setting_or_known_not_to_be_one():
    options = set(inspect.signature(run.run).parameters)
    fields = {*SETTINGS}
    beside = {"config", "runtime", "users_per_node", "workers", "as_json"}
    beside |= {"cpus_per_worker", "gpus_per_worker"}
    beside |= {"user_column"}  # short for --columns
    beside |= {"report_to"}  # about files that a run wrote
    assert options - beside == fields - {"min_nodes", "registration"}


def test_defaults(cli, executed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("run")
    ((config, _),) = executed
    embedded = {"data": "murmuration.population:train", "test": "murmuration.population:test"}
    assert config == RunConfig(**embedded, out=config.out)
    assert Path(config.out).parent == tmp_path / "runs"


def test_a_base_that_is_of_no_use_is_refused_before_there_is_a_run(
    refusal, crowd, crowd_texts, language_model, tmp_path
):
    gpt2, bert, out = language_model("gpt2"), language_model("bert"), tmp_path / "run"
    for data, options, why in (
        (crowd_texts, ["--task", "text", "--base", bert], "its tokens see what follows"),
        (crowd, ["--task", "text", "--base", gpt2], "no column 'text'"),
        (crowd, ["--base", gpt2, "--system", "Be brief."], "the base has no chat template"),
    ):
        assert why in refusal("run", "--data", data, *options, "--out", out)
        assert not out.exists()


def test_a_node_that_fails_is_one_line_and_no_success(cli, crowd, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyError("grads")

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setitem(registry.node_halves(), "uls", NodeHalf(fail, clip_norm))
        code, stdout, lines = cli(
            "run", "--data", crowd, *SMALL, "--seed", 3, "--out", out, "--json"
        )
    assert (code, stdout) == (1, "")
    assert lines[-2] == f"aborted; continue with: murmuration run --resume --out {out}"
    assert lines[-1].startswith("error: the run was aborted, a node failed: a node of this simul")
    assert "KeyError" in lines[-1]
    assert not (out / "result.json").exists()
    assert cli("run", "--resume", "--out", out)[0] == 0
    assert (out / "result.json").exists()
    assert not (out / "aborted.json").exists()


def test_what_is_promised_to_rows_says_so(cli, crowd, tmp_path):
    """In the result, the report and the card: no word of whole users."""
    out = tmp_path / "run"
    code, _, _ = cli(
        "run", "--data", crowd, "--one-user-per-row", *SMALL, "--seed", 1, "--out", out
    )
    assert code == 0 and cli("report", out)[0] == 0
    result = json.loads((out / "result.json").read_text())
    assert result["one_user_per_row"] is True
    assert any(text.startswith("EACH ROW COUNTED AS A USER") for text in result["warnings"])
    assert "differ in whether one row takes part" in facts(result)["sentence"]
    card = next((out / "model").glob("*.md")).read_text()
    report = (out / "report.html").read_text()
    assert "**Row-level DP: " in card
    for page in (card, report):
        assert "EACH ROW COUNTED" in page
        assert "with all their judgements" not in page and "whole users" not in page
        assert "Row-level DP: " in page and "for single rows, not for people" in page
    assert read_run(out).unit == "row"
    (out / "result.json").unlink()
    assert read_run(out).unit == "row"


# From options to settings: defaults, paths, and what a resumed run had.


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
    cli("run", "--data", "o/n#c/s", "--user-column", "who")
    cli("run", "--data", ".#test", "--columns", "chosen=a", "--one-user-per-row")
    first, second = executed[0][0], executed[1][0]
    assert (first.data, first.columns, first.one_user_per_row) == ("o/n#c/s", "user_id=who", False)
    assert second.data == f"{Path(crowd).parent}#test"
    assert (second.columns, second.schema.one_user_per_row) == ("chosen=a", True)


def test_resume_needs_a_place(refusal):
    assert "--resume needs --out" in refusal("run", "--resume")


@pytest.mark.parametrize(
    ("config", "seed"),
    [("{", '{"seed": 1}'), ("[]", '{"seed": 1}'), ('{"lr": 1}', '{"seed": 1}'), ("{}", "{}"),
     ('{"rounds": "many"}', '{"seed": 1}'), ("{}", "[1]"),
     ('{"data": "sims.population:train", "rounds": 20}', '{"seed": 0}')],
)  # fmt: skip
def test_damaged_runs_are_not_resumed(refusal, tmp_path, config, seed):
    (tmp_path / "private").mkdir()
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "private" / "seed.json").write_text(seed)
    assert refusal("run", "--resume", "--out", tmp_path)


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = ", "cannot be used"),
        ("epsylon = 3.0", "unknown setting 'epsylon'"),
        ("rounds = 3.5", "'rounds' must be a int; got 3.5"),
        ("resume = 1", "'resume' must be a bool; got 1"),
        ('registration = "x"', "unknown setting"),
        ("delta = 0", "--delta must be"),
        ('delta = "much"', "--delta must be a number"),
    ],
)
def test_files_that_are_none(refusal, tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    options = ("--config", tmp_path / "run.toml", "--out", tmp_path / "o")
    assert message in refusal("run", *options)
    assert not (tmp_path / "o").exists()


def test_help_of_a_strategy_shows_what_it_can_use(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, everything, _ = cli("run", "--help-all")
    _, own, _ = cli("run", "--strategy", "els", "--help")
    for option in ("--sampling-probability", "--clip-norm", "--epsilon", "--runtime"):
        assert option in everything
        assert option in own
    for option in ("--variant", "--estimator", "--local-steps", "--pairing"):
        assert option in everything
        assert option not in own
    _, solved, _ = cli("run", "--strategy", "label-moment", "--help")
    for option in ("--learning-rate", "--group-size", "--cohort", "--optimizer"):
        assert option in own
        assert option not in solved
    assert "--ridge" in solved
    _, board, _ = cli("run", "--strategy", "ranking", "--help")
    assert "--group-size" in board and "--learning-rate" not in board
    for panel in ("Data", "Privacy", "Training", "Model", "Runtime", "Output", "Only for els"):
        assert f"─ {panel}" in everything


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"heldout": 0.3},
        {"delta": 0.0},
        {"strategy": "label-moment", "adjacency": "replace-labels"},
        {"strategy": "els", "group_size": 4, "sampling_probability": 0.1},
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


def test_what_is_of_other_strategies_is_no_part_of_a_run():
    mine = settings({"strategy": "els", "group_size": 4, "out": "o"}).immutable_fields()
    assert "sampling_probability" in mine
    assert not {"variant", "estimator", "local_steps"} & set(mine)
