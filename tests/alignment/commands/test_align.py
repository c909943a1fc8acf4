"""``murmuration align``: a private reward and public prompts in, a policy out."""

import json
import shutil

import numpy as np
import pytest

import murmuration
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.reward import save_language_model, system_of
from murmuration.server.lineage import lineage_of_model

pytest.importorskip("trl")
pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPTS = [f"{name} {more}" for name in ("loan", "save it", "buy today", "wait") for more in "?!.,"]
FEW = (
    *("--steps", 2, "--batch-size", 8, "--evaluate-every", 1, "--evaluate-on", 8),
    *("--max-new-tokens", 5, "--lora-rank", 2, "--lora-targets", "all-linear", "--seed", 4),
)


def charges_of(folder):
    lines = (folder / "ledger.jsonl").read_text().splitlines()[1:]
    return [line for line in map(json.loads, lines) if "event" in line]


@pytest.fixture
def asked(write_rows):
    return write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")


@pytest.fixture
def reward(cli, crowd, tmp_path):
    """A function: the folder of a reward model, by options of its run."""

    def make(*options):
        common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
        assert cli("run", *common, *options, "--out", tmp_path / "run")[0] == 0
        return tmp_path / "run" / "model"

    return make


def test_the_policy_carries_what_its_reward_promised(
    cli, language_model, reward, asked, tmp_path, monkeypatch
):
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, "--out", out)
    (tmp_path / "of_a_policy.py").write_text("heard = {}\nreport = heard.__setitem__\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, stdout, _ = cli(*given, *FEW, "--report-to", "of_a_policy:report")
    from of_a_policy import heard  # pyright: ignore[reportMissingImports]

    assert code == 0
    assert "all steps were made" in stdout
    assert sorted(heard) == [0, 1, 2]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert heard[2]["proxy"] == lines[2]["proxy"]
    assert (out / "plots" / "reward_kl.png").exists()
    epsilon = json.loads((model.parent / "result.json").read_text())["epsilon"]
    (run,) = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert run.epsilon == epsilon
    text = (out / "model" / "README.md").read_text()
    assert "User-level DP: ε = 2.00, δ = 0.001, add-remove (simulation, seed known)" in text
    assert run.terms.caveats >= {"simulation, seed known", "exact number of users"}
    assert "SIMULATION, SEED KNOWN" in text and "exact number of users" in text
    assert str(tmp_path) not in text
    # In a run's folder, which programs read as any other.
    run = murmuration.Run.load(out)
    assert str(run.promise).startswith("User-level DP: ε = 2.00, δ = 0.001")
    assert [line["step"] for line in run.metrics] == [0, 1, 2]
    assert run.ledger == murmuration.Run.load(model.parent).ledger != []
    assert np.isfinite(run.model.score(["loan ?"], ["save it"])).all()
    assert run.plot().axes[0].get_ylabel() == "over the reference, logits"
    assert ", reward " in repr(run) and "reward by divergence" in run._repr_html_()
    code, stdout, _ = cli("report", out)
    assert (code, "all steps were made" in stdout) == (0, True)
    assert "User-level DP: ε = 2.00" in run.report.read_text()
    assert cli("report", out, model.parent)[0] == 2
    # It is there, so it is not made again; and a finished one is told again.
    code, _, lines = cli(*given, *FEW)
    assert (code, len(lines)) == (2, 1)
    assert "holds a run already; continue it with --resume" in lines[0]
    assert cli(*given, *FEW, "--resume", "--json")[0] == 0


def test_a_reward_that_promised_nothing_is_refused(cli, language_model, reward, asked, tmp_path):
    model, base = reward("--strategy", "nonprivate"), language_model("llama")
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, *FEW)
    code, _, lines = cli(*given, "--out", tmp_path / "policy")
    assert (code, len(lines)) == (2, 1)
    assert "--reward-privacy public" in lines[0]
    assert not (tmp_path / "policy").exists()


def test_prompts_of_the_rewards_users_are_refused(cli, language_model, reward, crowd, tmp_path):
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", model, "--base", base, "--prompts", crowd, "--out", out)
    code, _, lines = cli(*given, *FEW)
    assert (code, len(lines)) == (2, 1)
    assert "prompts must be public" in lines[0]
    assert not out.exists()


def test_judgements_become_a_reward_first(cli, crowd, language_model, asked, tmp_path, monkeypatch):
    import murmuration.api.training

    honest = murmuration.api.training.train
    few = {"rounds": 2, "cohort": 10, "delta": 1e-3}
    monkeypatch.setattr(
        murmuration.api.training, "train", lambda **given: honest(**{**given, **few})
    )
    out, base = tmp_path / "policy", language_model("llama")
    code, stdout, lines = cli(
        "align", "--reward-data", crowd, "--epsilon", 2, "--users", 30, "--base", base,
        "--prompts", asked, "--out", out, *FEW, "--json",
    )  # fmt: skip
    assert code == 0, lines
    assert json.loads((tmp_path / "policy-reward" / "config.json").read_text())["users"] == 30
    told = json.loads(stdout.splitlines()[-1])
    assert told["reward"] == str(tmp_path / "policy-reward" / "model")
    (run,) = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert 0 < run.epsilon <= 2
    # Nothing can seed its noise, cohorts or hold-out: the seed of align is another kind.
    assert "simulation, seed known" not in run.terms.caveats
    kept = json.loads((tmp_path / "policy-reward" / "private" / "seed.json").read_text())
    assert kept == {"seed": -1}
    assert told["promise"]["private"] is True


def test_a_missing_tracker_is_said_before_a_reward_is_trained(
    cli, crowd, language_model, asked, tmp_path
):
    code, _, lines = cli(
        "align", "--reward-data", crowd, "--epsilon", 2, "--base", language_model("llama"),
        "--prompts", asked, "--out", tmp_path / "policy", *FEW, "--report-to", "nowhere_at_all:f",
    )  # fmt: skip
    assert (code, len(lines)) == (2, 1)
    assert "--report-to nowhere_at_all:f: cannot be imported" in lines[0]
    assert not (tmp_path / "policy-reward").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give --reward"),
        (("--reward", "a", "--reward-data", "b"), "give --reward"),
        (("--reward-data", "b"), "--reward-data needs --epsilon"),
        (("--reward", "nowhere/model"), "nowhere/model"),
    ],
)
def test_what_is_refused(cli, language_model, asked, tmp_path, options, said):
    base, out = language_model("llama"), tmp_path / "policy"
    code, _, lines = cli("align", "--base", base, "--prompts", asked, "--out", out, *options)
    assert (code, len(lines)) == (2, 1)
    assert said in lines[0]
    assert not out.exists()


def test_a_truth_that_is_a_model_counts_as_a_reward_does(
    cli, crowd, language_model, reward, asked, tmp_path
):
    """It says when training ends and which policy is saved, so what it cost must be told."""
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--delta", 1e-3)
    for name, options in (("open", ("--strategy", "nonprivate")), ("true", ("--epsilon", 3))):
        code = cli("run", *common, *options, "--seed", 2, "--out", tmp_path / name)[0]
        assert code == 0
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, "--out", out, *FEW)
    code, _, lines = cli(*given, "--truth", tmp_path / "open" / "model")
    assert (code, len(lines)) == (2, 1)
    assert "--truth-privacy public" in lines[0]
    assert not out.exists()
    assert cli(*given, "--truth", tmp_path / "true" / "model")[0] == 0
    runs = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert sorted(run.epsilon for run in runs) == pytest.approx([2, 3], rel=0.01)
    card = (out / "model" / "README.md").read_text()
    assert "2 runs together" in card
    assert str(tmp_path) not in card


def test_a_reward_that_was_trained_otherwise_is_not_taken_for_the_one_asked_for(
    cli, crowd, language_model, asked, tmp_path, monkeypatch
):
    import murmuration.api.training

    honest = murmuration.api.training.train
    few = {"rounds": 2, "cohort": 10, "delta": 1e-3}
    monkeypatch.setattr(
        murmuration.api.training, "train", lambda **given: honest(**{**given, **few})
    )
    base, out = language_model("llama"), tmp_path / "policy"
    given = (
        "align",
        "--reward-data",
        crowd,
        "--base",
        base,
        "--prompts",
        asked,
        "--out",
        out,
        *FEW,
    )
    assert cli(*given, "--epsilon", 8, "--steps", 1)[0] == 0
    shutil.rmtree(out)
    code, _, lines = cli(*given, "--epsilon", 1)
    assert (code, len(lines)) == (2, 1)
    assert "epsilon" in lines[0]
    assert not out.exists()
    assert cli(*given, "--epsilon", 8, "--steps", 1)[0] == 0


def test_what_ended_while_its_reward_was_trained_goes_on(
    cli, crowd, language_model, asked, tmp_path, monkeypatch
):
    import murmuration.api.training

    honest, times = murmuration.api.training.train, []
    few = {"rounds": 2, "cohort": 10, "delta": 1e-3}

    def train(**given):
        times.append(given["resume"])
        honest(**{**given, **few})
        if len(times) == 1:
            raise InputError("as if killed")

    monkeypatch.setattr(murmuration.api.training, "train", train)
    base, out = language_model("llama"), tmp_path / "policy [/b]"
    given = ("align", "--reward-data", crowd, "--epsilon", 2, "--base", base, "--prompts", asked)
    assert cli(*given, "--out", out, *FEW)[0] == 2
    assert not out.exists()
    code, _, lines = cli(*given, "--out", out, *FEW, "--resume")
    assert code == 0, lines
    assert times == [False, True]


def test_a_policy_that_is_no_better_than_its_base_is_told_as_that(
    cli, language_model, reward, asked, tmp_path
):
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, "--out", out)
    code, stdout, _ = cli(*given, *FEW, "--top-p", 1e-9)  # always the same answers
    assert code == 0
    assert "no better than the base's" in stdout
    assert "no better than the base" in (out / "model" / "README.md").read_text()


def test_demonstrations_are_learnt_first_if_they_are_public(
    cli, language_model, reward, asked, write_rows, crowd, tmp_path
):
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, "--out", out, *FEW)
    theirs = json.loads(open(crowd).readline())["prompt"]  # noqa: PTH123, SIM115
    rows = [
        {"prompt": "and then what ?", "response": "save it"},
        {"prompt": theirs, "completion": "wait"},
    ]
    shown = write_rows(rows, "shown.jsonl")
    code, _, lines = cli(*given, "--sft", shown)
    assert (code, len(lines)) == (2, 1)
    assert f"--sft {shown}: operator only: 1 of 2 are prompts that users" in lines[0]
    assert theirs not in lines[0]
    assert not out.exists()
    assert cli(*given, "--sft", write_rows(rows[:1], "mine.jsonl"))[0] == 0
    card = (out / "model" / "README.md").read_text()
    assert "learnt 1 public demonstrations" in card
    assert str(tmp_path) not in card
    assert "were declared public" in (out / "sft" / "README.md").read_text()
    (run,) = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert run.epsilon == pytest.approx(2, rel=0.01)
    taught = lineage_of_model("policy", str(out / "sft"), "advice")
    assert (taught.runs, taught.public) == ((), True)


def test_rows_that_a_private_model_wrote_are_counted_as_demonstrations(
    cli, language_model, reward, asked, write_rows, tmp_path
):
    """Learnt by supervision, they cost what their models did, and nobody may call them public."""
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    best = tmp_path / "best.jsonl"
    code, _, lines = cli(
        "respond", base, "--prompts", asked, "--out", best, "--reward", model, "--best-of", 2,
        "--max-new-tokens", 5, "--temperature", 1.5,
    )  # fmt: skip
    assert code == 0, lines
    rows = [json.loads(line) for line in best.read_text().splitlines()]
    assert all(row["private_runs"] for row in rows)
    told = write_rows([row | {"response": "save it"} for row in rows], "told.jsonl")
    other = tmp_path / "other"
    shutil.copytree(model.parent, other)
    given = ("align", "--reward", other / "model", "--base", base, "--prompts", asked)
    given += ("--out", out, *FEW, "--sft", told)
    code, _, lines = cli(*given)
    assert (code, len(lines)) == (2, 1)
    assert "models of private runs" in lines[0] and not out.exists()
    assert cli(*given, "--sft-privacy", model.parent / "ledger.jsonl")[0] == 0
    (run,) = lineage_of_model("policy", str(out / "sft"), "advice").runs
    assert run.epsilon == pytest.approx(2, rel=0.01)
    text = (out / "sft" / "README.md").read_text()
    assert "User-level DP: ε = 2.00" in text and "declared public" not in text.split("## Priv")[0]


def test_demonstrations_that_say_nothing_are_refused_before_anything_is_made(
    cli, language_model, reward, asked, write_rows, tmp_path
):
    model, base, out = reward("--epsilon", 2), language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", model, "--base", base, "--prompts", asked, "--out", out, *FEW)
    for row in ({"prompt": "what now ?"}, {"messages": [{"role": "user", "content": "what ?"}]}):
        code, _, lines = cli(*given, "--sft", write_rows([row], "shown.jsonl"))
        assert (code, len(lines)) == (2, 1)
        assert "line 1 needs a `prompt` and a `response`" in lines[0]
    assert cli(*given, "--sft", tmp_path / "none.jsonl")[0] == 2
    assert not out.exists()


def test_a_policy_is_trained_after_the_system_prompt_of_its_base_or_another(
    cli, language_model, reward, write_rows, tmp_path
):
    prompts = write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")
    base = LanguageBase(
        BaseSettings(language_model("gpt2-chat"), "full", task="sft", system="save it")
    )
    save_language_model(tmp_path / "base", base, base.theta())
    command = ("align", "--reward", reward("--epsilon", 2), "--base", tmp_path / "base")
    command += ("--prompts", prompts, "--base-privacy", "public", *FEW)
    for out, options, system in (("a", (), "save it"), ("b", ("--system", "loan"), "loan")):
        code, _, lines = cli(*command, *options, "--out", tmp_path / out)
        assert code == 0, lines
        assert system_of(tmp_path / out / "model") == system
        card = (tmp_path / out / "model" / "README.md").read_text()
        assert f'The system prompt "{system}" stands before each prompt' in card
        assert f">{system}<" in (tmp_path / out / "report.html").read_text()
    code, _, lines = cli(*command, "--system", "", "--out", tmp_path / "b", "--resume")
    assert (code, len(lines)) == (2, 1)
    assert "was begun with another system: 'loan', not ''" in lines[0]
