"""``align`` is killed while it writes: nothing half is read, or is lost."""

import json
import signal

import pytest
from kills import killed

from murmuration.preference.language.likelihood import load_scorer
from murmuration.preference.language.loading import contents_of
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.record.lineage import lineage_of_model

pytest.importorskip("trl")
pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPTS = [f"{name} {more}" for name in ("loan", "save it", "buy today", "wait") for more in "?!.,"]
FEW = (
    *("--steps", 2, "--batch-size", 8, "--evaluate-every", 1, "--evaluate-on", 8),
    *("--max-new-tokens", 5, "--lora-rank", 2, "--lora-targets", "all-linear", "--seed", 4),
)
KILLED = -signal.SIGKILL


@pytest.fixture
def prompts(write_rows):
    return write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")


@pytest.fixture
def reward(cli, crowd, tmp_path):
    """The folder of a reward model."""
    common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
    assert cli("run", *common, "--epsilon", 2, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run" / "model"


def epsilon_of(folder):
    (run,) = lineage_of_model("policy", str(folder), "advice").runs
    return run.epsilon


def paid_for(reward):
    return json.loads((reward.parent / "result.json").read_text())["epsilon"]


#: By what is written then: event, what it is about, and the how-manyth of these in its process.
MOMENTS = {
    "settings": ("os.rename", r"/config\.json$", 1),
    "the reference's rows": ("os.rename", r"/reference\.jsonl$", 1),
    "rows of an evaluation": ("open", r"answers/\.step-000001\.jsonl", 1),
    "a checkpoint": ("open", r"checkpoint-1/trainer_state\.json$", 1),
    "metrics": ("os.rename", r"/metrics\.jsonl$", 2),
    "a file of the model": ("open", r"\.model\..*/README\.md$", 1),
    "the model's folder": ("os.rename", r"/model$", 1),
    "the result": ("os.rename", r"/result\.json$", 1),
}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_an_alignment_that_is_killed_at_every_file_ends_as_if_it_was_not(
    cli, language_model, reward, prompts, tmp_path
):
    """One after the other, each gone on with from the one before."""
    base, out = language_model("llama"), tmp_path / "policy"
    given = ("align", "--reward", reward, "--base", base, "--prompts", prompts, *FEW)
    for name, (event, pattern, number) in MOMENTS.items():
        resume = ("--resume",) if (out / "config.json").exists() else ()
        assert killed(event, pattern, number, *given, *resume, "--out", out) == KILLED, name
        assert not (out / "result.json").exists()
        if (out / "model").exists():
            assert epsilon_of(out / "model") == paid_for(reward)
            load_scorer(out / "model")
        for file in out.rglob("[!.]*.jsonl"):
            assert [json.loads(line) for line in file.read_text().splitlines()], file
    assert cli(*given, "--resume", "--out", out)[0] == 0
    assert cli(*given, "--out", tmp_path / "whole")[0] == 0
    for name in ("reference.jsonl", "answers/step-000002.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    result, whole = (json.loads((f / "result.json").read_text()) for f in (out, tmp_path / "whole"))
    assert result["policy"]["kl"] == pytest.approx(whole["policy"]["kl"], rel=1e-4, abs=1e-5)
    check_same_model(out / "model", tmp_path / "whole" / "model", reward)


def check_same_model(model, other, reward):
    """The same weights, configuration and tokenizer, for what the reward cost and no more."""
    assert contents_of(str(model)).digest == contents_of(str(other)).digest
    assert epsilon_of(model) == epsilon_of(other) == paid_for(reward)


def test_killed_while_its_private_reward_is_trained_it_has_paid_for_each_round(
    cli, language_model, write_rows, make_rows, prompts, tmp_path
):
    """Charges stay: a second start forgets none, and going on adds to them."""
    crowd, run = write_rows(make_rows([1] * 700)), tmp_path / "policy-reward"
    command = (
        *("align", "--reward-data", crowd, "--epsilon", 2, "--delta", 1e-3, *FEW),
        *("--base", language_model("llama"), "--prompts", prompts, "--out", tmp_path / "policy"),
    )
    third = ("os.rename", r"policy-reward/checkpoint/state\.safetensors$", 3)
    assert killed(*third, *command) == KILLED
    assert not (tmp_path / "policy").exists()
    assert not (run / "model").exists()
    before = (run / "ledger.jsonl").read_bytes()
    paid = read_charges(run / "ledger.jsonl")
    reached = [
        json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    assert len(reached) >= 3
    assert {charge.round for charge in paid} >= {*reached}

    code, _, lines = cli(*command)
    assert (code, len(lines)) == (2, 1)
    assert (run / "ledger.jsonl").read_bytes() == before

    assert killed(*third, *command, "--resume") == KILLED
    assert (run / "ledger.jsonl").read_bytes().startswith(before)
    more = read_charges(run / "ledger.jsonl")
    assert more[: len(paid)] == paid
    assert len(more) >= len(paid) + 3
