"""``murmuration run``: settings, the JSON contract, resuming, nodes."""

import json
import os
from pathlib import Path

import pytest

from preference.judgements import InputError
from preference.reward import RewardModel
from server.config import RunConfig
from sims import run_command
from sims.ray_grid import Workers
from sims.run_command import execute

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

    monkeypatch.setattr(run_command, "summary", lambda result: result["out"])
    monkeypatch.setattr(run_command, "execute", execute)
    return asked


def test_json_contract(murmuration, crowd, crowd_test, tmp_path):
    out = tmp_path / "a" / "run"
    code, stdout, _ = murmuration(
        "run", "--data", crowd, "--test", crowd_test, *SMALL, "--seed", 3, "--out", out, "--json"
    )
    assert code == 0
    result = json.loads(stdout.splitlines()[-1])
    assert set(result) >= CONTRACT
    assert result["out"] == str(out)
    assert (result["strategy"], result["rounds"], result["users"]) == ("uls", 3, 50)
    assert 0.495 < result["epsilon"] <= 0.5
    assert RewardModel.load(out / "model").score("What now?", "Save it.") != 0.0


def test_without_json_a_summary_goes_to_stdout(murmuration, crowd, tmp_path):
    code, stdout, _ = murmuration(
        "run", "--data", crowd, *SMALL, "--seed", 3, "--out", tmp_path / "run"
    )
    assert code == 0
    assert "0.50" in stdout  # epsilon
    assert "run" in stdout


def test_nonprivate(murmuration, crowd, tmp_path):
    code, stdout, _ = murmuration(
        "run", "--data", crowd, *SMALL, "--strategy", "nonprivate", "--seed", 3,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    result = json.loads(stdout.splitlines()[-1])
    assert (code, result["epsilon"], result["strategy"]) == (0, None, "nonprivate")


def test_judgements_over_several_responses(murmuration, crowd_of_four, tmp_path):
    command = ["run", "--data", crowd_of_four, *SMALL, "--seed", 3, "--json"]
    code, stdout, _ = murmuration(*command, "--model", "plackett-luce", "--out", tmp_path / "r")
    assert code == 0
    assert json.loads(stdout.splitlines()[-1])["model"] == "plackett-luce"
    for model in ([], ["--model", "thurstone"]):
        code, _, stderr = murmuration(*command, *model, "--out", tmp_path / "refused")
        assert code != 0
        assert len(stderr) == 1
        assert "over as many as 4 responses: use --model plackett-luce" in stderr[0]
        assert not (tmp_path / "refused").exists()


def test_every_option_reaches_its_setting(murmuration, executed, crowd, crowd_test, tmp_path):
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
        "clip": 0.3,
        "group_size": 5,
        "features": "hashing",
        "columns": "user_id=who",
        "on_bad_rows": "skip",
        "heldout": 0.3,
        "optimizer": "adam",
        "learning_rate": 0.6,
        "momentum": 0.4,
        "warmup": 0.1,
        "averaging": 0.5,
        "seed": 12,
    }
    options = [
        part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    murmuration(
        "run", *options, "--users-per-node", 9, "--runtime", "flower", "--out", tmp_path / "o"
    )
    ((config, more),) = executed
    assert {name: getattr(config, name) for name in given} == given
    assert config.out == str(tmp_path / "o")
    assert not config.resume
    assert more == {"runtime": "flower", "users_per_node": 9, "workers": Workers()}


def test_options_of_the_ray_runtime(murmuration, executed, tmp_path):
    asked = ["--workers", 3, "--cpus-per-worker", 2, "--gpus-per-worker", 0.25]
    murmuration("run", "--runtime", "ray", *asked, "--out", tmp_path / "o")
    ((_, more),) = executed
    assert more["runtime"] == "ray"
    assert more["workers"] == Workers(3, 2, 0.25)


def test_defaults(murmuration, executed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    murmuration("run")
    ((config, _),) = executed
    embedded = {"data": "sims.population:train", "test": "sims.population:test"}
    assert config == RunConfig(**embedded, out=config.out)
    assert Path(config.out).parent == tmp_path / "runs"


def test_own_data_has_no_embedded_test(murmuration, executed, crowd):
    murmuration("run", "--data", crowd)
    assert executed[0][0].test == ""


def test_paths_become_absolute(murmuration, executed, crowd, crowd_test, monkeypatch):
    monkeypatch.chdir(Path(crowd).parent)
    test = os.path.relpath(crowd_test, Path(crowd).parent)
    murmuration("run", "--data", "crowd.jsonl", "--test", test, "--out", "o")
    config = executed[0][0]
    assert config.data == crowd
    assert Path(config.test).is_absolute()
    assert Path(config.test).samefile(crowd_test)
    assert config.out == str(Path(crowd).parent / "o")


def crash_at(monkeypatch, round_):
    from server.run_directory import RunDirectory

    class Killed(BaseException):
        pass

    real = RunDirectory.save_checkpoint

    def save_checkpoint(self, done, state):
        if done == round_:
            raise Killed
        real(self, done, state)

    monkeypatch.setattr(RunDirectory, "save_checkpoint", save_checkpoint)
    return Killed


@pytest.mark.parametrize("users_per_node", [None, 7])
def test_resume_needs_no_other_option(murmuration, crowd, tmp_path, monkeypatch, users_per_node):
    """Not even the grouping of users: with another, replays would not be recognised."""
    nodes = [] if users_per_node is None else ["--users-per-node", users_per_node]
    common = ["run", "--data", crowd, *SMALL, "--seed", 3, *nodes, "--json"]
    _, stdout, _ = murmuration(*common, "--out", tmp_path / "whole")
    whole = json.loads(stdout.splitlines()[-1])
    with monkeypatch.context() as patched:
        killed = crash_at(patched, 3)
        with pytest.raises(killed):
            murmuration(*common, "--out", tmp_path / "run")
    code, stdout, _ = murmuration("run", "--resume", "--out", tmp_path / "run", "--json")
    assert code == 0
    result = json.loads(stdout.splitlines()[-1])
    assert (result["rounds"], result["stopped"]) == (3, None)
    for name in ("epsilon", "heldout_accuracy", "noise_multiplier", "seeded"):
        assert result[name] == whole[name]
    assert (tmp_path / "run" / "ledger.jsonl").read_text().count("\n") == 4


def test_resuming_a_finished_run_gives_its_result(murmuration, crowd, tmp_path):
    first = murmuration(
        "run", "--data", crowd, *SMALL, "--seed", 3, "--out", tmp_path / "run", "--json"
    )[1]
    again = murmuration("run", "--resume", "--out", tmp_path / "run", "--json")[1]
    assert json.loads(again.splitlines()[-1]) == json.loads(first.splitlines()[-1])


def test_bad_delta(murmuration, crowd, tmp_path):
    for delta in ("0", "1", "small"):
        code, _, lines = murmuration(
            "run", "--data", crowd, "--delta", delta, "--out", tmp_path / "run"
        )
        assert code == 2
        assert "--delta" in "".join(lines)
        assert not (tmp_path / "run").exists()


def test_resume_needs_a_place(murmuration):
    code, _, lines = murmuration("run", "--resume")
    assert (code, lines) == (2, ["error: --resume needs --out: which run is to be continued?"])


@pytest.mark.parametrize(
    ("config", "seed"),
    [("{", '{"seed": 1}'), ("[]", '{"seed": 1}'), ('{"lr": 1}', '{"seed": 1}'), ("{}", "{}"),
     ('{"rounds": "many"}', '{"seed": 1}'), ("{}", "[1]")],
)  # fmt: skip
def test_damaged_runs_are_not_resumed(murmuration, tmp_path, config, seed):
    (tmp_path / "private").mkdir()
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "private" / "seed.json").write_text(seed)
    code, _, lines = murmuration("run", "--resume", "--out", tmp_path)
    assert code == 2
    assert len(lines) == 1


def test_rows_set_aside_are_mentioned(murmuration, write_rows, make_rows, tmp_path):
    data = write_rows([*make_rows([2] * 20), {"user_id": "x"}])
    common = ["run", "--data", data, *SMALL, "--seed", 3]
    assert murmuration(*common, "--out", tmp_path / "a")[0] == 2
    code, _, lines = murmuration(*common, "--on-bad-rows", "skip", "--out", tmp_path / "b")
    assert code == 0
    assert "1 rows set aside, the first: " in "".join(lines)
    assert ":41: no column" in "".join(lines)


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_says_how_to_go_on(murmuration, monkeypatch, crowd, tmp_path, begun):
    out = tmp_path / "my run"

    def interrupted(*_, **__):
        if begun:
            out.mkdir()
            (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "run_local", interrupted)
    code, _, lines = murmuration("run", "--data", crowd, "--out", out)
    assert code == 130
    advice = f"; continue with: murmuration run --resume --out '{out}'" if begun else ""
    assert lines == [f"interrupted{advice}"]


def test_execute_from_python(crowd, tmp_path):
    config = RunConfig(
        data=crowd, epsilon=0.5, delta=1e-3, rounds=3, cohort=10, seed=3, out=str(tmp_path / "run")
    )
    assert execute(config, users_per_node=10)["rounds"] == 3
    assert json.loads((tmp_path / "run" / "private" / "nodes.json").read_text()) == {"nodes": 5}
    with pytest.raises(InputError, match="holds a run already"):
        execute(config)
