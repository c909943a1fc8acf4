"""``murmuration respond``: prompts in, prompts and responses out."""

import json
import shutil

import pytest
from language_models import saved_model
from local_runs import refusal
from stand_ins.judge import StandIn, completion

from murmuration.preference.data.loading import load_prompts
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.reward import RewardModel
from murmuration.privacy.promise import Promise
from murmuration.server.record.lineage import lineage_of_saved
from murmuration.server.record.marks import mark_of
from murmuration.sims.population.population import Population

pytest.importorskip("transformers")

PROMPTS = ["What now?", "Save it,\u2028or spend?", "Loan?"]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": prompt, "chosen": "a"} for prompt in PROMPTS]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    return path


def told(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def test_rows_are_what_the_model_writes(cli, language_model, source, tmp_path):
    base, out = language_model("gpt2"), tmp_path / "new" / "out.jsonl"
    code, stdout, lines = cli(
        "respond", base, "--prompts", source, "--out", out, "--num-generations", 2, "--seed", 4,
        "--temperature", 0.5, "--max-new-tokens", 6,
    )  # fmt: skip
    assert (code, lines) == (0, [])
    assert "6 responses" in stdout
    writer = Writer.load(base)
    first, second = (
        writer.write(PROMPTS, Sampling(0.5, max_new_tokens=6), (4, sample)) for sample in (0, 1)
    )
    pairs = zip(PROMPTS, first, second, strict=True)
    assert told(out) == [
        {"prompt": prompt, "response": response} for prompt, *both in pairs for response in both
    ]
    assert [path.name for path in out.parent.iterdir()] == ["out.jsonl"]


def test_one_prompt_is_answered_in_the_terminal(cli, language_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base, how = language_model("gpt2"), ("--max-new-tokens", 6, "--seed", 4)
    code, stdout, lines = cli("respond", base, "--prompt", PROMPTS[0], "--num-generations", 2, *how)
    writer, sampling = Writer.load(base), Sampling(max_new_tokens=6)
    expected = [writer.write(PROMPTS[:1], sampling, (4, sample))[0] for sample in (0, 1)]
    assert code == 0 and [*tmp_path.iterdir()] == []
    assert stdout.split() == " ".join(expected).split()
    assert (writer.cut_off > 0) == ("cut off at 6 tokens" in " ".join(lines))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--prompts", "murmuration.questions"),
        ("--out", "o"),
        ("--prompt", "a", "--out", "o"),
        ("--prompt", "a", "--prompts", "murmuration.questions"),
        ("--prompt", "a", "--reward", "r", "--best-of", 2),
        ("--prompt", " "),
    ],
)
def test_one_prompt_or_a_file_of_them(cli, options):
    assert "--prompt" in refusal(cli("respond", "m", *options))


def test_the_population(cli, language_model, tmp_path):
    base, more = language_model("gpt2"), ("--limit", 2, "--max-new-tokens", 3)
    for topics, split in (("seen", "test"), ("unseen", "unseen-topics")):
        out = tmp_path / topics
        code, *_ = cli("respond", base, "--prompts", f"population:{topics}", "--out", out, *more)
        assert code == 0
        assert [row["prompt"] for row in told(out)] == list(Population().prompts(split, 2, 0))


def test_nothing_is_overwritten(cli, source):
    _, _, lines = cli("respond", "m", "--prompts", source, "--out", source)
    assert "is there already" in " ".join(lines)


@pytest.fixture
def reward(cli, crowd, quick_runs, tmp_path):
    """A linear head of a private run."""
    options = ("--rounds", 2, "--cohort", 10, "--seed", 1, "--delta", 1e-3, "--epsilon", 2)
    assert cli("run", "--data", crowd, *options, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run" / "model"


def test_the_best_of_several(cli, language_model, reward, source, tmp_path):
    base, more = language_model("gpt2"), ("--max-new-tokens", 6, "--seed", 4)
    code, stdout, lines = cli(
        "respond", base, "--prompts", source, "--out", tmp_path / "best", "--reward", reward,
        "--best-of", 3, "--prompts-public", *more,
    )  # fmt: skip
    assert (code, lines) == (0, [])
    every = ("--out", tmp_path / "all", "--num-generations", 3, *more)
    assert cli("respond", base, "--prompts", source, *every)[0] == 0
    texts = [row["response"] for row in told(tmp_path / "all")]
    judge = RewardModel.load(reward)
    wanted = []
    for place, prompt in enumerate(PROMPTS):
        mine = texts[3 * place : 3 * place + 3]
        scores = judge.score([prompt] * 3, mine)
        at = int(scores.argmax())
        wanted.append({"prompt": prompt, "response": mine[at], "reward": float(scores[at])})
    (run,) = lineage_of_saved("--reward", str(reward), "", "").runs
    assert told(tmp_path / "best") == [row | mark_of(Promise((run,))) for row in wanted]
    assert "= 0.432 nats" in stdout  # ln 3 − 2/3
    assert "Beirami" in stdout
    assert "no user's data" in stdout
    assert "User-level DP: ε = " in stdout and "(simulation, seed known)" in stdout


def test_prompts_that_users_were_shown_are_refused(
    cli, language_model, reward, crowd, write_rows, tmp_path
):
    shown = next(iter(load_prompts(crowd)))
    mixed = write_rows([{"prompt": "New?"}, {"prompt": f" {shown.upper()}"}], "mixed.jsonl")
    ask = (
        "respond",
        language_model("gpt2"),
        "--reward",
        reward,
        "--best-of",
        2,
        "--prompts",
        mixed,
    )
    ask += ("--out", tmp_path / "out", "--max-new-tokens", 5)
    line = refusal(cli(*ask))
    assert "1 of 2" in line and "row 2" in line
    assert shown not in line
    assert not (tmp_path / "out").exists()
    assert cli(*ask, "--prompts-public")[0] == 0


def test_a_reward_that_promised_nothing_is_refused_unless_its_data_were_public(
    cli, crowd, quick_runs, language_model, source, tmp_path
):
    options = ("--rounds", 2, "--cohort", 10, "--delta", 1e-3, "--strategy", "nonprivate")
    assert cli("run", "--data", crowd, *options, "--out", tmp_path / "run")[0] == 0
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "copied")
    given = ("respond", language_model("gpt2"), "--prompts", source, "--best-of", 2)
    given += ("--max-new-tokens", 3, "--out", tmp_path / "o")
    for folder, said in (("run/model", "promised its users nothing"), ("copied", "is not known")):
        line = refusal(cli(*given, "--reward", tmp_path / folder))
        assert said in line
        assert "--reward-privacy public" in line
        assert not (tmp_path / "o").exists()
    code, stdout, _ = cli(*given, "--reward", tmp_path / "copied", "--reward-privacy", "public")
    assert code == 0
    assert "was declared public" in stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--best-of", 2), "need each other"),
        (("--reward", "MODEL"), "need each other"),
        (
            ("--reward", "MODEL", "--best-of", 2, "--num-generations", 2),
            "leave out --num-generations",
        ),
        (("--reward", "nowhere", "--best-of", 2), "--reward nowhere: no such model folder"),
    ],
)
def test_what_best_of_needs(cli, source, tmp_path, options, said):
    assert said in refusal(
        cli("respond", "m", "--prompts", source, "--out", tmp_path / "o", *options)
    )
    assert not (tmp_path / "o").exists()


@pytest.fixture
def server():
    """One that says each time another answer, and breaks off the second."""

    def reply(request):
        text = f"{request['messages'][0]['content']} {request['seed'] % 1000}"
        reply_body = completion(text)
        reply_body["choices"][0]["finish_reason"] = "length" if PROMPTS[1] in text else "stop"
        return reply_body

    with StandIn(reply) as stand_in:
        yield stand_in


def test_a_server_writes(cli, server, source, tmp_path):
    ask = (
        "respond",
        "served",
        "--writer",
        server.url,
        "--prompts",
        source,
        "--num-generations",
        2,
    )
    code, stdout, lines = cli(*ask, "--out", tmp_path / "o")
    assert (code, lines) == (0, [])
    assert "6 responses" in stdout and "2 of 6 answers were cut off at 128 tokens" in stdout
    rows = told(tmp_path / "o")
    assert [row["prompt"] for row in rows] == [prompt for prompt in PROMPTS for _ in range(2)]
    assert all(row["response"].startswith(row["prompt"]) for row in rows)
    assert len({row["response"] for row in rows}) == 6
    assert {row["private_runs"] for row in rows} == {"not-known"}  # what the server runs
    assert {request["model"] for request in server.requests} == {"served"}
    code, *_ = cli(*ask, "--out", tmp_path / "p", "--model-privacy", "public")
    assert code == 0
    assert told(tmp_path / "p") == [
        {name: row[name] for name in ("prompt", "response")} for row in rows
    ]


def test_the_best_of_what_a_server_writes(cli, server, reward, source, tmp_path):
    """It carries the reward's promise alone, if somebody says that the model is public."""
    ask = ("respond", "served", "--writer", server.url, "--prompts", source, "--reward", reward,
           "--best-of", 3, "--prompts-public")  # fmt: skip
    line = refusal(cli(*ask, "--out", tmp_path / "no"))
    assert "MODEL served: a server shows no folder" in line
    assert "say --model-privacy public" in line
    assert not server.requests and not (tmp_path / "no").exists()
    code, stdout, lines = cli(*ask, "--out", tmp_path / "o", "--model-privacy", "public")
    assert (code, lines) == (0, [])
    assert "3 of 9 answers were cut off" in stdout
    (run,) = lineage_of_saved("--reward", str(reward), "", "").runs
    rows = told(tmp_path / "o")
    assert {row["private_runs"] for row in rows} == set(mark_of(Promise((run,))).values())
    judge = RewardModel.load(reward)
    for row in rows:
        drawn = {
            f"{row['prompt']} {request['seed'] % 1000}"
            for request in server.requests
            if request["messages"][0]["content"] == row["prompt"]
        }
        assert len(drawn) == 3
        best = max(judge.score([row["prompt"]] * 3, sorted(drawn)))
        assert row["reward"] == pytest.approx(float(best))


@pytest.mark.parametrize(
    ("temperature", "why"),
    [
        (0, "--best-of chooses among different responses"),
        (1e-6, "all 3 responses to each prompt are the same text"),
    ],
)
def test_the_best_of_equal_ones_is_no_best(
    cli, language_model, reward, source, tmp_path, temperature, why
):
    assert why in refusal(cli(
        "respond", language_model("gpt2"), "--prompts", source, "--out", tmp_path / "o",
        "--reward", reward, "--best-of", 3, "--prompts-public", "--max-new-tokens", 4,
        "--temperature", temperature,
    ))  # fmt: skip
    assert not (tmp_path / "o").exists()


def test_what_a_private_run_that_is_served_cost_is_said(cli, server, reward, source, tmp_path):
    ledger = reward.parent / "ledger.jsonl"
    code, *_ = cli(
        "respond", "served", "--writer", server.url, "--prompts", source, "--out", tmp_path / "o",
        "--model-privacy", ledger,
    )  # fmt: skip
    assert code == 0
    (run,) = lineage_of_saved("--reward", str(reward), "", "").runs
    assert {row["private_runs"] for row in told(tmp_path / "o")} == set(
        mark_of(Promise((run,))).values()
    )


def test_a_system_prompt_is_the_one_given_or_the_models_own(cli, language_model, source, tmp_path):
    path, six = language_model("gpt2-chat"), ("--max-new-tokens", 6)
    saved_model(tmp_path / "m", path, "full", scale=0.0, task="sft", system="wait")
    for number, (model, options, system) in enumerate(
        [
            (path, (), ""),
            (path, ("--system", "loan"), "loan"),
            (tmp_path / "m", (), "wait"),
            (tmp_path / "m", ("--system", "loan"), "loan"),
            (tmp_path / "m", ("--system", ""), ""),
        ]
    ):
        out = tmp_path / f"{number}.jsonl"
        code, *_ = cli("respond", model, "--prompts", source, "--out", out, *options, *six)
        assert code == 0
        answers = Writer.load(path, system).write(PROMPTS, Sampling(max_new_tokens=6), (0, 0))
        assert [row["response"] for row in told(out)] == answers
    assert "--system: the base has no chat template" in refusal(cli(
        "respond", language_model("gpt2"), "--prompts", source, "--out", tmp_path / "o",
        "--system", "loan",
    ))  # fmt: skip
