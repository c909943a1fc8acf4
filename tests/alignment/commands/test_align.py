"""``murmuration align``: a private reward and public prompts in, a policy out."""

import json
import shutil

import numpy as np
import pytest
from language_models import saved_model
from local_runs import refusal

import murmuration
from murmuration.api import training
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.reward import system_of
from murmuration.server.record.lineage import lineage_of_model

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
def aligned(cli, language_model, asked, tmp_path):
    """A function: a policy by a reward, into `policy`; exit code, stdout and lines of stderr."""

    def call(*options):
        given = ("--base", language_model("llama"), "--prompts", asked, *FEW)
        return cli("align", *given, "--out", tmp_path / "policy", *options)

    return call


@pytest.fixture
def quick_rewards(monkeypatch):
    """A function: what is trained first takes two rounds; `then` is told whether it resumed."""
    honest = training.train

    def quickly(then=lambda resumed: None):
        def train(**given):
            honest(**{**given, "rounds": 2, "cohort": 10, "delta": 1e-3})
            then(given["resume"])

        monkeypatch.setattr(training, "train", train)

    return quickly


@pytest.fixture
def reward(cli, crowd, tmp_path):
    """A function: the folder of a reward model, by options of its run."""

    def make(*options):
        common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
        assert cli("run", *common, *options, "--out", tmp_path / "run")[0] == 0
        return tmp_path / "run" / "model"

    return make


def test_the_policy_carries_what_its_reward_promised(cli, aligned, reward, tmp_path, monkeypatch):
    model, out = reward("--epsilon", 2), tmp_path / "policy"
    (tmp_path / "of_a_policy.py").write_text("heard = {}\nreport = heard.__setitem__\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, stdout, _ = aligned("--reward", model, "--report-to", "of_a_policy:report")
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
    assert "holds a run already; continue it with --resume" in refusal(aligned("--reward", model))
    assert aligned("--reward", model, "--resume", "--json")[0] == 0


def test_a_reward_that_promised_nothing_is_refused(aligned, reward, tmp_path):
    assert "--reward-privacy public" in refusal(
        aligned("--reward", reward("--strategy", "nonprivate"))
    )
    assert not (tmp_path / "policy").exists()


def test_prompts_of_the_rewards_users_are_refused(aligned, reward, crowd, tmp_path):
    assert "prompts must be public" in refusal(
        aligned("--reward", reward("--epsilon", 2), "--prompts", crowd)
    )
    assert not (tmp_path / "policy").exists()


def test_judgements_become_a_reward_first(aligned, quick_rewards, crowd, tmp_path):
    quick_rewards()
    out = tmp_path / "policy"
    code, stdout, lines = aligned("--reward-data", crowd, "--epsilon", 2, "--users", 30, "--json")
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


def test_a_missing_tracker_is_said_before_a_reward_is_trained(aligned, crowd, tmp_path):
    assert "--report-to nowhere_at_all:f: cannot be imported" in refusal(
        aligned("--reward-data", crowd, "--epsilon", 2, "--report-to", "nowhere_at_all:f")
    )
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
def test_what_is_refused(aligned, tmp_path, options, said):
    assert said in refusal(aligned(*options))
    assert not (tmp_path / "policy").exists()


def test_a_truth_that_is_a_model_counts_as_a_reward_does(cli, crowd, aligned, reward, tmp_path):
    """It says when training ends and which policy is saved, so what it cost must be told."""
    model, out = reward("--epsilon", 2), tmp_path / "policy"
    common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--delta", 1e-3)
    for name, options in (("open", ("--strategy", "nonprivate")), ("true", ("--epsilon", 3))):
        code = cli("run", *common, *options, "--seed", 2, "--out", tmp_path / name)[0]
        assert code == 0
    assert "--truth-privacy public" in refusal(
        aligned("--reward", model, "--truth", tmp_path / "open" / "model")
    )
    assert not out.exists()
    assert aligned("--reward", model, "--truth", tmp_path / "true" / "model")[0] == 0
    runs = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert sorted(run.epsilon for run in runs) == pytest.approx([2, 3], rel=0.01)
    card = (out / "model" / "README.md").read_text()
    assert "2 runs together" in card
    assert str(tmp_path) not in card


def test_a_reward_that_was_trained_otherwise_is_not_taken_for_the_one_asked_for(
    aligned, quick_rewards, crowd, tmp_path
):
    quick_rewards()
    assert aligned("--reward-data", crowd, "--epsilon", 8, "--steps", 1)[0] == 0
    shutil.rmtree(tmp_path / "policy")
    assert "epsilon" in refusal(aligned("--reward-data", crowd, "--epsilon", 1))
    assert not (tmp_path / "policy").exists()
    assert aligned("--reward-data", crowd, "--epsilon", 8, "--steps", 1)[0] == 0


def test_what_ended_while_its_reward_was_trained_goes_on(aligned, quick_rewards, crowd, tmp_path):
    times = []

    def then(resumed):
        times.append(resumed)
        if len(times) == 1:
            raise InputError("as if killed")

    quick_rewards(then)
    given = ("--reward-data", crowd, "--epsilon", 2, "--out", tmp_path / "policy [/b]")
    assert aligned(*given)[0] == 2
    assert not (tmp_path / "policy [/b]").exists()
    code, _, lines = aligned(*given, "--resume")
    assert code == 0, lines
    assert times == [False, True]


def test_a_policy_that_is_no_better_than_its_base_is_told_as_that(aligned, reward, tmp_path):
    always_the_same_answers = ("--top-p", 1e-9)
    code, stdout, _ = aligned("--reward", reward("--epsilon", 2), *always_the_same_answers)
    assert code == 0
    assert "no better than the base's" in stdout
    assert "no better than the base" in (tmp_path / "policy/model/README.md").read_text()


def test_demonstrations_are_learnt_first_if_they_are_public(
    aligned, reward, write_rows, crowd, tmp_path
):
    model, out = reward("--epsilon", 2), tmp_path / "policy"
    theirs = json.loads(open(crowd).readline())["prompt"]  # noqa: PTH123, SIM115
    rows = [
        {"prompt": "and then what ?", "response": "save it"},
        {"prompt": theirs, "completion": "wait"},
    ]
    shown = write_rows(rows, "shown.jsonl")
    line = refusal(aligned("--reward", model, "--sft", shown))
    assert f"--sft {shown}: operator only: 1 of 2 are prompts that users" in line
    assert theirs not in line
    assert not out.exists()
    assert aligned("--reward", model, "--sft", write_rows(rows[:1], "mine.jsonl"))[0] == 0
    card = (out / "model" / "README.md").read_text()
    assert "learnt 1 public demonstrations" in card
    assert str(tmp_path) not in card
    assert "were declared public" in (out / "sft" / "README.md").read_text()
    (run,) = lineage_of_model("policy", str(out / "model"), "advice").runs
    assert run.epsilon == pytest.approx(2, rel=0.01)
    taught = lineage_of_model("policy", str(out / "sft"), "advice")
    assert (taught.runs, taught.public) == ((), True)


def test_rows_that_a_private_model_wrote_are_counted_as_demonstrations(
    cli, aligned, language_model, reward, asked, write_rows, tmp_path
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
    given = ("--reward", other / "model", "--sft", told)
    line = refusal(aligned(*given))
    assert "models of private runs" in line and not out.exists()
    assert aligned(*given, "--sft-privacy", model.parent / "ledger.jsonl")[0] == 0
    (run,) = lineage_of_model("policy", str(out / "sft"), "advice").runs
    assert run.epsilon == pytest.approx(2, rel=0.01)
    text = (out / "sft" / "README.md").read_text()
    assert "User-level DP: ε = 2.00" in text and "declared public" not in text.split("## Priv")[0]


def test_demonstrations_that_say_nothing_are_refused_before_anything_is_made(
    aligned, reward, write_rows, tmp_path
):
    model = reward("--epsilon", 2)
    for row in ({"prompt": "what now ?"}, {"messages": [{"role": "user", "content": "what ?"}]}):
        line = refusal(aligned("--reward", model, "--sft", write_rows([row], "shown.jsonl")))
        assert "line 1 needs a `prompt` and a `response`" in line
    assert aligned("--reward", model, "--sft", tmp_path / "none.jsonl")[0] == 2
    assert not (tmp_path / "policy").exists()


def test_a_policy_is_trained_after_the_system_prompt_of_its_base_or_another(
    aligned, language_model, reward, tmp_path
):
    chat = language_model("gpt2-chat")
    saved_model(tmp_path / "base", chat, "full", scale=0.0, task="sft", system="save it")
    given = ("--reward", reward("--epsilon", 2), "--base", tmp_path / "base")
    given += ("--base-privacy", "public")
    for out, options, system in (("a", (), "save it"), ("b", ("--system", "loan"), "loan")):
        code, _, lines = aligned(*given, *options, "--out", tmp_path / out)
        assert code == 0, lines
        assert system_of(tmp_path / out / "model") == system
        card = (tmp_path / out / "model" / "README.md").read_text()
        assert f'The system prompt "{system}" stands before each prompt' in card
        assert f">{system}<" in (tmp_path / out / "report.html").read_text()
    assert "was begun with another system: 'loan', not ''" in refusal(
        aligned(*given, "--system", "", "--out", tmp_path / "b", "--resume")
    )
