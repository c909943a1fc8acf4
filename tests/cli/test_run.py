"""``murmuration run``: options, the JSON contract, what is learnt."""

import inspect
import json
from pathlib import Path

import pytest

from murmuration.cli import run
from murmuration.preference.reward import RewardModel
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig
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


def test_without_json_a_summary_goes_to_stdout(cli, crowd, tmp_path):
    code, stdout, _ = cli("run", "--data", crowd, *SMALL, "--seed", 3, "--out", tmp_path / "run")
    assert code == 0
    assert "0.50" in stdout  # epsilon
    assert "run" in stdout


def test_nonprivate(cli, crowd, tmp_path):
    code, stdout, _ = cli(
        "run", "--data", crowd, *SMALL, "--strategy", "nonprivate", "--seed", 3,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    result = json.loads(stdout.splitlines()[-1])
    assert (code, result["epsilon"], result["strategy"]) == (0, None, "nonprivate")


def test_judgements_over_several_responses(cli, crowd_of_four, of_four, tmp_path):
    declared = ["--kind", of_four["kind"], "--responses", 4]
    command = ["run", "--data", crowd_of_four, *SMALL, "--seed", 3, "--json", *declared]
    code, stdout, _ = cli(*command, "--model", "plackett-luce", "--out", tmp_path / "r")
    assert code == 0
    assert json.loads(stdout.splitlines()[-1])["model"] == "plackett-luce"
    for model in ([], ["--model", "thurstone"]):
        code, _, stderr = cli(*command, *model, "--out", tmp_path / "refused")
        assert code != 0
        assert len(stderr) == 1
        assert "over as many as 4 responses: use --model plackett-luce" in stderr[0]
        assert not (tmp_path / "refused").exists()


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
        "warmup": 0.1,
        "averaging": 0.5,
        "seed": 12,
    }
    options = [
        part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    cli("run", *options, "--users-per-node", 9, "--runtime", "flower", "--out", tmp_path / "o")
    ((config, more),) = executed
    assert {name: getattr(config, name) for name in given} == given
    assert config.out == str(tmp_path / "o")
    assert not config.resume
    here = {"runtime": "flower", "users_per_node": 9, "workers": Workers()}
    assert more == {**here, "quiet": False}


def test_every_option_is_a_setting_or_known_not_to_be_one():
    options = set(inspect.signature(run.run).parameters)
    fields = {*SETTINGS}
    beside = {"config", "runtime", "users_per_node", "workers", "as_json"}
    beside |= {"cpus_per_worker", "gpus_per_worker"}
    beside |= {"user_column", "split", "data_config"}  # short for --columns and --data
    beside |= {"report_to", "run_name"}  # about files that a run wrote
    assert options - beside == fields - {"min_nodes", "refresh", "registration"}


def test_the_help_tells_defaults(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, stdout, _ = cli("run", "--help-all")
    assert code == 0
    for said in ("Algorithm. [default: uls]", "[default: lora]", "[default: reward]", "--task"):
        assert said in " ".join(stdout.split())


def test_options_about_a_language_model(cli, executed, tmp_path):
    given = {
        "base": str(tmp_path), "task": "sft", "train": "full", "lora_rank": 3, "max_tokens": 7,
        "lora_targets": "a,b", "batch_tokens": 8, "user_memory": 9,
    }  # fmt: skip
    options = [p for name, v in given.items() for p in (f"--{name.replace('_', '-')}", v)]
    cli("run", *options, "--as-published", "--batch-users", "--out", tmp_path / "o")
    ((config, _),) = executed
    assert {name: getattr(config, name) for name in given} == given
    assert config.as_published
    assert config.batch_users


def test_options_of_the_ray_runtime(cli, executed, tmp_path):
    asked = ["--workers", 3, "--cpus-per-worker", 2, "--gpus-per-worker", 0.25]
    cli("run", "--runtime", "ray", *asked, "--out", tmp_path / "o")
    ((_, more),) = executed
    assert more["runtime"] == "ray"
    assert more["workers"] == Workers(3, 2, 0.25)


def test_defaults(cli, executed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("run")
    ((config, _),) = executed
    embedded = {"data": "murmuration.population:train", "test": "murmuration.population:test"}
    assert config == RunConfig(**embedded, out=config.out)
    assert Path(config.out).parent == tmp_path / "runs"


def test_bad_delta(cli, crowd, tmp_path):
    for delta in ("0", "1", "small"):
        code, _, lines = cli("run", "--data", crowd, "--delta", delta, "--out", tmp_path / "run")
        assert code == 2
        assert "--delta" in "".join(lines)
        assert not (tmp_path / "run").exists()


LM = {"heldout_loss", "heldout_perplexity", "task", *CONTRACT}


@pytest.mark.parametrize("task", ["text", "sft"])
def test_next_tokens(cli, crowd, crowd_texts, language_model, tmp_path, task):
    data = crowd_texts if task == "text" else crowd
    options = ["--task", task, "--base", language_model("gpt2"), "--lora-rank", 2, "--seed", 3]
    code, stdout, _ = cli(
        "run", "--data", data, *SMALL, *options, "--out", tmp_path / "run", "--json"
    )
    assert code == 0
    result = json.loads(stdout.splitlines()[-1])
    assert set(result) >= LM
    assert result["task"] == task
    asked = ["--prompt", "What now?", "--response", "Save it.", "--response", "Bet on it."]
    code, stdout, _ = cli("score", tmp_path / "run" / "model", *asked, "--json")
    assert code == 0
    assert all(score < 0 for score in json.loads(stdout)["scores"])


def test_a_summary_of_next_tokens_has_no_judgements(cli, crowd_texts, language_model, tmp_path):
    options = ["--task", "text", "--base", language_model("gpt2"), "--lora-rank", 2, "--seed", 3]
    code, stdout, _ = cli(
        "run", "--data", crowd_texts, *SMALL, *options, "--exact-heldout", "--out", tmp_path / "run"
    )
    assert code == 0
    assert "nats a token" in stdout
    assert "OUTSIDE THE GUARANTEE" in stdout
    assert "of next tokens" in stdout
    assert "judgements" not in stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "text"], "--task text trains a language model: name one with --base"),
        (["--task", "sft", "--base", "GPT2", "--train", "head"], "use --train lora"),
        (["--task", "sft", "--base", "GPT2", "--strategy", "local-label"], "from labels"),
        (["--task", "sft", "--base", "GPT2", "--adjacency", "replace-labels"], "no label"),
        (["--task", "text", "--base", "BERT"], "its tokens see what follows"),
        (["--task", "text", "--base", "GPT2"], "no column 'text'"),
        (["--as-published"], "--as-published is about --task sft"),
    ],
)
def test_refusals_are_one_line(cli, crowd, language_model, tmp_path, options, said):
    folders = {"GPT2": language_model("gpt2"), "BERT": language_model("bert")}
    options = [folders.get(option, option) for option in options]
    data = crowd
    if "BERT" in said or "see what follows" in said:
        data = tmp_path / "texts.jsonl"
        data.write_text('{"user_id": "a", "text": "Save it."}\n')
    code, _, lines = cli("run", "--data", data, *options, "--out", tmp_path / "run")
    assert code == 2
    assert len([line for line in lines if line.startswith("error: ")]) == 1
    assert said in lines[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("error", [MemoryError(), KeyError("grads")])
def test_a_node_that_fails_is_one_line_and_no_success(cli, crowd, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setitem(registry.node_halves(), "uls", NodeHalf(fail, clip_norm))
        code, stdout, lines = cli(
            "run", "--data", crowd, *SMALL, "--seed", 3, "--out", out, "--json"
        )
    assert (code, stdout) == (1, "")
    assert lines[-2] == f"aborted; continue with: murmuration run --resume --out {out}"
    assert lines[-1].startswith("error: the run was aborted, a node failed: a node of this simul")
    assert type(error).__name__ in lines[-1]
    assert not (out / "result.json").exists()
    assert cli("run", "--resume", "--out", out)[0] == 0
    assert (out / "result.json").exists()
    assert not (out / "aborted.json").exists()
