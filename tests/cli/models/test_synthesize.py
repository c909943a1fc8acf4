"""``murmuration synthesize``: from a private reward and a policy to a data set."""

import json

import pytest
from damage import no_file_above
from stand_ins.judge import StandIn, completion

from murmuration.alignment.pool import draw
from murmuration.alignment.synthesis import Synthesis, preferences
from murmuration.preference.data.loading import load_prompts
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.reward import RewardModel
from murmuration.privacy.promise import Promise
from murmuration.server.lineage import lineage_of_model, mark_of

pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPTS = ["Fridge broke, what now?", "Loan, or wait?", "Rent or buy?"]
SHORT = ("--max-new-tokens", 5, "--seed", 4)


@pytest.fixture
def asked(write_rows):
    return write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")


@pytest.fixture
def reward(cli, crowd, tmp_path):
    """A function: the folder of a reward model, by options of its run."""

    def make(*options, name="run"):
        common = ("--data", crowd, "--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3)
        assert cli("run", *common, *options, "--out", tmp_path / name)[0] == 0
        return tmp_path / name / "model"

    return make


def rows_in(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def test_pairs_and_what_they_stand_on(cli, language_model, reward, asked, tmp_path):
    model, base, out = reward("--epsilon", 2), language_model("gpt2"), tmp_path / "new" / "data"
    code, stdout, lines = cli(
        "synthesize", "--reward", model, "--generator", base, "--prompts", asked, "--out", out,
        "--num-generations", 3, "--pairs", "all", "--label-draw", "sampled", "--temperature", 0.8,
        *SHORT,
    )  # fmt: skip
    assert (code, lines) == (0, [])
    sampling = Sampling(0.8, max_new_tokens=5)
    pool = draw(Writer.load(base), RewardModel.load(model), PROMPTS, 3, sampling, 4)
    wanted = preferences(pool, Synthesis("all", "sampled", PublicSeed(4)))
    (run,) = lineage_of_model("data", str(out), "advice").runs
    assert rows_in(out) == [row | mark_of(Promise((run,))) for row in wanted.rows]
    assert list(load_prompts(str(out / "train.jsonl"))) == [row["prompt"] for row in wanted.rows]
    assert f"wrote {len(wanted.rows):,} pairs" in stdout
    epsilon = json.loads((model.parent / "result.json").read_text())["epsilon"]
    assert run.epsilon == epsilon
    text = (out / "README.md").read_text()
    assert "User-level DP: ε = 2.00, δ = 0.001, add-remove (simulation, seed known)" in text
    assert "public prompts" in text
    assert str(tmp_path) not in "".join(path.read_text() for path in out.iterdir())
    again = tmp_path / "again"
    cli(
        "synthesize", "--reward", model, "--generator", base, "--prompts", asked, "--out", again,
        "--num-generations", 3, "--pairs", "all", "--label-draw", "sampled", "--temperature", 0.8,
        *SHORT,
    )  # fmt: skip
    assert {p.name: p.read_bytes() for p in again.iterdir()} == {
        p.name: p.read_bytes() for p in out.iterdir()
    }


@pytest.mark.slow
def test_what_the_policy_cost_is_added(cli, crowd, language_model, reward, asked, tmp_path):
    base, model = language_model("gpt2"), reward("--epsilon", 2)
    policy = reward(
        *("--epsilon", 3, "--task", "policy", "--base", base, "--lora-rank", 2), name="policy"
    )
    code, stdout, _ = cli(
        "synthesize", "--reward", model, "--generator", policy, "--prompts", asked,
        "--out", tmp_path / "data", "--json", *SHORT,
    )  # fmt: skip
    assert code == 0
    (row,) = json.loads(stdout.splitlines()[-1])["promise"]["composed"]
    spent = [
        json.loads((folder.parent / "result.json").read_text())["epsilon"]
        for folder in (model, policy)
    ]
    assert row["epsilon"] == pytest.approx(sum(spent))
    assert row["delta"] == pytest.approx(2e-3)
    assert (tmp_path / "data" / "ledger-2.jsonl").exists()


def test_a_reward_that_is_not_private_is_refused(cli, language_model, reward, asked, tmp_path):
    model, out = reward("--strategy", "nonprivate"), tmp_path / "data"
    common = ("synthesize", "--reward", model, "--generator", language_model("gpt2"))
    common += ("--prompts", asked, "--out", out, *SHORT)
    code, _, lines = cli(*common)
    assert code == 2
    assert "promised its users nothing" in " ".join(lines)
    assert "--reward-privacy public" in " ".join(lines)
    assert not out.exists()
    code, stdout, _ = cli(*common, "--reward-privacy", "public")
    assert code == 0
    assert "was declared public" in stdout
    assert "ε =" not in (out / "README.md").read_text()


def test_users_own_prompts_are_refused(
    cli, language_model, reward, crowd, asked, write_rows, tmp_path
):
    model, shown = reward("--epsilon", 2), next(iter(load_prompts(crowd)))
    mixed = write_rows([{"prompt": "New?"}, {"prompt": f" {shown.upper()}"}], "mixed.jsonl")
    for command in (
        ("synthesize", "--reward", model, "--generator", language_model("gpt2")),
        ("respond", language_model("gpt2"), "--reward", model, "--best-of", 2),
    ):
        common = (*command, "--prompts", mixed, "--out", tmp_path / "out", *SHORT)
        code, _, lines = cli(*common)
        assert code == 2
        assert "1 of 2" in " ".join(lines)
        assert "row 2" in " ".join(lines)
        assert shown not in " ".join(lines)
        assert not (tmp_path / "out").exists()
        assert cli(*common[:-5], tmp_path / command[0], *SHORT, "--prompts-public")[0] == 0


def test_interrupted_nothing_is_left(cli, language_model, reward, asked, tmp_path, monkeypatch):
    model = reward("--epsilon", 2)

    def write(self, prompts, sampling, seed, progress):
        if seed[1]:
            raise KeyboardInterrupt
        return ["a"] * len(prompts)

    monkeypatch.setattr(Writer, "write", write)
    before = {*tmp_path.rglob("*")}
    code, *_ = cli(
        "synthesize", "--reward", model, "--generator", language_model("gpt2"), "--prompts", asked,
        "--out", tmp_path / "data", *SHORT,
    )  # fmt: skip
    assert code == 130
    assert {*tmp_path.rglob("*")} == before


@pytest.mark.parametrize("most", [0, 300])
def test_on_a_full_disk_nothing_is_left(cli, language_model, reward, asked, tmp_path, most):
    common = (
        "synthesize", "--reward", reward("--epsilon", 2), "--generator", language_model("gpt2"),
        "--prompts", asked, "--out", tmp_path / "data", "--num-generations", 4, "--pairs", "all",
        *SHORT,
    )  # fmt: skip
    before = {*tmp_path.rglob("*")}
    with no_file_above(most):
        code, _, lines = cli(*common)
    assert code == 2
    assert "cannot be written" in " ".join(lines)
    assert {*tmp_path.rglob("*")} == before
    assert cli(*common)[0] == 0


@pytest.mark.parametrize("what", ["there", "policy", "nothing"])
def test_what_is_no_reward_or_no_place(cli, language_model, reward, asked, tmp_path, what):
    base = language_model("gpt2")
    model = base if what == "policy" else tmp_path / "m"
    out = asked if what == "there" else tmp_path / "data"
    code, _, lines = cli(
        "synthesize", "--reward", model, "--generator", base, "--prompts", asked, "--out", out
    )
    assert code == 2
    said = {"there": "is there already", "policy": "--reward", "nothing": "no such model folder"}
    assert said[what] in " ".join(lines)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_trl_takes_the_file_as_it_is(cli, language_model, reward, asked, tmp_path):
    """One step of TRL's own DPO trainer, with LoRA, on the folder as it was written."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, out = language_model("gpt2"), tmp_path / "data"
    code, *_ = cli(
        "synthesize", "--reward", reward("--epsilon", 2), "--generator", base, "--prompts", asked,
        "--out", out, *SHORT,
    )  # fmt: skip
    assert code == 0
    rows = datasets.load_dataset(str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.to_list() == rows_in(out)
    trainer = trl.DPOTrainer(
        AutoModelForCausalLM.from_pretrained(base),
        args=trl.DPOConfig(
            output_dir=str(tmp_path / "trl"), per_device_train_batch_size=2, max_steps=2,
            report_to=[], save_strategy="no", use_cpu=True, bf16=False, learning_rate=1e-2,
        ),
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM"),
    )  # fmt: skip
    assert trainer.train().training_loss > 0


def test_a_server_answers(cli, reward, asked, tmp_path, monkeypatch):
    """The card says so; the promise is the reward's alone, once the model is said to be public."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    model = reward("--epsilon", 2)
    with StandIn(lambda request: completion(f"word{request['seed'] % 997} yes")) as server:
        ask = ("synthesize", "--reward", model, "--generator", "served", "--writer", server.url,
               "--prompts", asked)  # fmt: skip
        code, _, lines = cli(*ask, "--out", tmp_path / "no")
        assert code == 2
        assert "say --generator-privacy public" in " ".join(" ".join(lines).split())
        assert not server.requests
        code, _, lines = cli(*ask, "--out", tmp_path / "o", "--generator-privacy", "public")
        assert (code, lines) == (0, [])
        assert len(server.requests) == 4 * len(PROMPTS)
    promise = lineage_of_model("data", str(tmp_path / "o"), "advice")
    assert len(promise.runs) == 1 and promise.public
    assert (
        "by the policy `served`, which a server ran: no digest"
        in (tmp_path / "o" / "README.md").read_text()
    )


def test_a_system_prompt_is_the_generators_and_on_the_card(
    cli, language_model, reward, write_rows, tmp_path
):
    prompts = write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")
    model, base, out = reward("--epsilon", 2), language_model("gpt2-chat"), tmp_path / "data"
    code, *_ = cli(
        "synthesize", "--reward", model, "--generator", base, "--prompts", prompts, "--out", out,
        "--pairs", "all", "--system", "wait and compare", *SHORT,
    )  # fmt: skip
    assert code == 0
    writer = Writer.load(base, "wait and compare")
    pool = draw(writer, RewardModel.load(model), PROMPTS, 4, Sampling(max_new_tokens=5), 4)
    assert [(row["chosen"], row["rejected"]) for row in rows_in(out)] == [
        (row["chosen"], row["rejected"])
        for row in preferences(pool, Synthesis("all", seed=PublicSeed(4))).rows
    ]
    assert "`--system wait and compare`" in (out / "README.md").read_text()
