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


@pytest.mark.usefixtures("quick_runs")
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


@pytest.mark.usefixtures("quick_runs")
def test_without_json_a_summary_goes_to_stdout(cli, crowd, tmp_path):
    code, stdout, _ = cli("run", "--data", crowd, *SMALL, "--seed", 3, "--out", tmp_path / "run")
    assert code == 0
    assert "0.50" in stdout  # epsilon
    assert "run" in stdout


@pytest.mark.usefixtures("quick_runs")
def test_nonprivate(cli, crowd, tmp_path):
    code, stdout, _ = cli(
        "run", "--data", crowd, *SMALL, "--strategy", "nonprivate", "--seed", 3,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    result = json.loads(stdout.splitlines()[-1])
    assert (code, result["epsilon"], result["strategy"]) == (0, None, "nonprivate")


@pytest.mark.usefixtures("quick_runs")
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


@pytest.mark.usefixtures("quick_runs")
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
    options = [
        part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    cli("run", *options, "--users-per-node", 9, "--runtime", "ray", "--out", tmp_path / "o")
    ((config, more),) = executed
    assert {name: getattr(config, name) for name in given} == given
    assert config.out == str(tmp_path / "o")
    assert not config.resume
    here = {"runtime": "ray", "users_per_node": 9, "workers": Workers()}
    assert more == {**here, "quiet": False, "on_note": None}


@pytest.mark.usefixtures("quick_runs")
def test_every_option_is_a_setting_or_known_not_to_be_one():
    options = set(inspect.signature(run.run).parameters)
    fields = {*SETTINGS}
    beside = {"config", "runtime", "users_per_node", "workers", "as_json"}
    beside |= {"cpus_per_worker", "gpus_per_worker"}
    beside |= {"user_column"}  # short for --columns
    beside |= {"report_to"}  # about files that a run wrote
    assert options - beside == fields - {"min_nodes", "registration"}


@pytest.mark.usefixtures("quick_runs")
def test_the_help_tells_defaults(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, stdout, _ = cli("run", "--help-all")
    assert code == 0
    for said in (
        "Algorithm. One of uls,",
        "[default: uls]",
        "[default: lora]",
        "[default: reward]",
        "--task",
    ):
        assert said in " ".join(stdout.split())


@pytest.mark.usefixtures("quick_runs")
def test_options_about_a_language_model(cli, executed, tmp_path):
    given = {
        "base": str(tmp_path), "task": "sft", "train": "full", "lora_rank": 3, "max_tokens": 7,
        "lora_targets": "a,b", "batch_tokens": 8,
    }  # fmt: skip
    options = [p for name, v in given.items() for p in (f"--{name.replace('_', '-')}", v)]
    cli("run", *options, "--batch-users", "--out", tmp_path / "o")
    ((config, _),) = executed
    assert {name: getattr(config, name) for name in given} == given
    assert config.batch_users


@pytest.mark.usefixtures("quick_runs")
def test_options_of_the_ray_runtime(cli, executed, tmp_path):
    asked = ["--workers", 3, "--cpus-per-worker", 2, "--gpus-per-worker", 0.25]
    cli("run", "--runtime", "ray", *asked, "--out", tmp_path / "o")
    ((_, more),) = executed
    assert more["runtime"] == "ray"
    assert more["workers"] == Workers(3, 2, 0.25)


@pytest.mark.usefixtures("quick_runs")
def test_defaults(cli, executed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("run")
    ((config, _),) = executed
    embedded = {"data": "murmuration.population:train", "test": "murmuration.population:test"}
    assert config == RunConfig(**embedded, out=config.out)
    assert Path(config.out).parent == tmp_path / "runs"


@pytest.mark.usefixtures("quick_runs")
def test_bad_delta(cli, crowd, tmp_path):
    for delta in ("0", "1", "small"):
        code, _, lines = cli("run", "--data", crowd, "--delta", delta, "--out", tmp_path / "run")
        assert code == 2
        assert "--delta" in "".join(lines)
        assert not (tmp_path / "run").exists()


LM = {"heldout_loss", "heldout_perplexity", "task", *CONTRACT}


@pytest.mark.usefixtures("quick_runs")
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


@pytest.mark.usefixtures("quick_runs")
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


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--task", "text"],
            "--task text trains a language model",
        ),
        (["--task", "sft", "--base", "GPT2", "--train", "head"], "use --train lora"),
        (["--task", "sft", "--base", "GPT2", "--strategy", "local-label"], "from labels"),
        (["--task", "sft", "--base", "GPT2", "--adjacency", "replace-labels"], "no label"),
        (["--task", "text", "--base", "BERT"], "its tokens see what follows"),
        (["--task", "text", "--base", "GPT2"], "no column 'text'"),
        (
            ["--system", "Be brief."],
            "--system is about a language model",
        ),
        (["--base", "GPT2", "--system", "Be brief."], "--system: the base has no chat template"),
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


@pytest.mark.usefixtures("quick_runs")
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


# Files as a stranger brings them, through the command: what is read, and what is said.


QUESTIONS = ["What shall I do with 100 euros?", "How do I plan for rent?", "Is a loan wise?"]
GOOD = ["Save a little each month.", "Keep a reserve first.", "Pay the debt before you invest."]
BAD = ["Put all on one share.", "Borrow and bet.", "Spend it now."]
FEW = ("--rounds", 2, "--cohort", 8, "--users", 20, "--delta", 1e-3, "--seed", 1)


def judged(number=60, users=20):
    """Who judged, what was asked, and the better and the worse answer."""
    return [
        (f"u{at % users}", QUESTIONS[at % 3], GOOD[at % 3], BAD[at // 3 % 3])
        for at in range(number)
    ]


def turn(role, content):
    return [{"role": role, "content": content}]


BROUGHT = {
    "TRL, implicit prompt": (
        lambda u, q, g, b: {
            "annotator_id": u,
            "chosen": turn("user", q) + turn("assistant", g),
            "rejected": turn("user", q) + turn("assistant", b),
        },
        [],
        ["'annotator_id' (60 rows)", "no column 'prompt'"],
    ),
    "TRL, explicit prompt": (
        lambda u, q, g, b: {
            "worker_id": u,
            "prompt": turn("user", q),
            "chosen": turn("assistant", g),
            "rejected": turn("assistant", b),
        },
        [],
        ["'worker_id' (60 rows)"],
    ),
    "a prompt as text": (
        lambda u, q, g, b: {
            "participant": u,
            "prompt": q,
            "chosen": turn("user", q) + turn("assistant", g),
            "rejected": turn("user", q) + turn("assistant", b),
            "score_chosen": 7.5,
            "score_rejected": 3,
        },
        [],
        ["'participant' (60 rows)"],
    ),
    "names before the turns": (
        lambda u, q, g, b: {
            "chosen": f"\n\nHuman: {q}\n\nAssistant: {g}",
            "rejected": f"\n\nHuman: {q}\n\nAssistant: {b}",
        },
        ["--one-user-per-row"],
        ["no column 'prompt'"],
    ),
    "scores": (
        lambda u, q, g, b: {
            "user": u,
            "prompt": q,
            "responses": [b, g, "No."],
            "scores": [2, 4, 1],
        },
        ["--kind", "top-1", "--responses", 3, "--model", "plackett-luce"],
        ["'user' (60 rows)"],
    ),
    "ranks": (
        lambda u, q, g, b: {
            "rater": u,
            "prompt": q,
            "responses": [b, g, "No."],
            "rank": [2, 1, 3],
        },
        ["--kind", "ranking", "--responses", 3, "--model", "plackett-luce"],
        ["'rater' (60 rows)"],
    ),
}


@pytest.fixture
def write(tmp_path):
    def write(lines):
        path = tmp_path / "brought.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("kind", BROUGHT)
def test_every_kind_that_people_have(cli, write, tmp_path, kind):
    row, options, said = BROUGHT[kind]
    path = write(json.dumps(row(*each)) for each in judged())
    code, _, lines = cli("run", "--data", path, *options, *FEW, "--out", tmp_path / "run")
    assert code == 0, lines
    shown = " ".join(lines)
    for text in said:
        assert text in shown


@pytest.mark.usefixtures("quick_runs")
def test_odd_columns_and_broken_rows(cli, write, tmp_path):
    """A stranger's file: names of its own, and one row in twenty that cannot be used."""
    rows = [
        {"worker": u, "question": q, "better": g, "worse": b, "at": 7} for u, q, g, b in judged(80)
    ]
    lines = [json.dumps(row) for row in rows]
    lines[0] = lines[0][:30]
    lines[20] = json.dumps(rows[20] | {"better": ""})
    lines[40] = json.dumps({name: cell for name, cell in rows[40].items() if name != "worse"})
    lines[60] = json.dumps(rows[60] | {"worker": None})
    path, out = write(lines[1:] + lines[:1]), tmp_path / "run"
    code, _, told = cli("run", "--data", path, *FEW, "--out", out)
    assert code == 2
    assert "no column 'prompt', 'chosen', 'rejected'; the columns are: worker, question" in told[-1]
    columns = ("--columns", "prompt=question,chosen=better,rejected=worse")
    code, _, told = cli("run", "--data", path, *columns, *FEW, "--out", out)
    assert code == 2
    assert "'better' is empty" in told[-1]
    skip = ("--on-bad-rows", "skip")
    code, _, told = cli("run", "--data", path, *columns, *skip, *FEW, "--out", out)
    shown = " ".join(told)
    assert code == 0
    assert "4 skipped rows, the first: " in shown
    assert "who judged is read from the column 'worker' (76 rows)" in shown


@pytest.mark.usefixtures("quick_runs")
def test_one_user_who_owns_half_of_the_rows(cli, write, tmp_path):
    """A stranger's file: the best of several, of different numbers, half of them one person's."""
    rows = [
        {
            "rater": "all day" if at % 2 else u,
            "prompt": q,
            "responses": [b, g, "No.", "Yes."][: 2 + at % 3],
            "best": 1,
        }
        for at, (u, q, g, b) in enumerate(judged(80))
    ]
    path, out = write(map(json.dumps, rows)), tmp_path / "run"
    code, _, told = cli("run", "--data", path, *FEW, "--out", out)
    assert code == 2
    assert "pass --kind top-1 --responses 2" in told[-1]
    options = ("--kind", "top-1", "--responses", 4, "--model", "plackett-luce")
    code, _, told = cli("run", "--data", path, *options, *FEW, "--out", out)
    assert code == 0
    assert "'rater' (80 rows)" in " ".join(told)


def test_what_is_promised_to_rows_says_so(cli, write, tmp_path):
    """In the result, the report and the card: no word of whole users."""
    path, out = write(json.dumps({"prompt": q, "chosen": g, "rejected": b})
                      for _, q, g, b in judged()), tmp_path / "run"  # fmt: skip
    code, _, _ = cli("run", "--data", path, "--one-user-per-row", *FEW, "--out", out)
    assert code == 0
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


def test_a_run_that_nothing_ties_to_its_keys_is_refused_in_a_line(cli, tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "seed.json").write_text('{"seed": 0}')
    (tmp_path / "config.json").write_text('{"data": "sims.population:train", "rounds": 20}')
    code, _, lines = cli("run", "--resume", "--out", tmp_path)
    assert code == 2
    assert len(lines) == 1


def test_names_are_not_taken_for_pictures(cli, tmp_path):
    code, _, lines = cli("run", "--data", "nowhere.at.all:train", "--out", tmp_path / "o")
    assert code == 2
    assert "nowhere.at.all:train" in lines[-1]


def test_help_of_a_strategy_shows_what_it_can_use(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, everything, _ = cli("run", "--help-all")
    _, own, _ = cli("run", "--strategy", "els", "--help")
    for option in ("--sampling-probability", "--clip-norm", "--epsilon", "--runtime"):
        assert option in everything
        assert option in own
    for option in ("--variant", "--estimator", "--local-steps", "--bands"):
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


@pytest.mark.parametrize("text", ['registration = "x"', "least-nodes = 3", "delta = 0"])
def test_what_is_no_option_is_no_line_of_a_file(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(InputError, match=r"unknown setting|--delta must be"):
        read_settings(tmp_path / "run.toml")


def test_plain_help_fits_two_screens(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = cli("run", "--help")
    assert code == 0 and len(out.splitlines()) <= 100
    for choice in ("objective-perturbation", "replace-labels", "top-1"):
        assert choice in out.replace("\n", " ")
