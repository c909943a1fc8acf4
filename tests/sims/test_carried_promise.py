"""From two private runs to an exported model: at each station the promise that is printed is that
computed by hand, caveats included."""

import json
from pathlib import Path

import pytest
from rooms import ROOMS

from murmuration.api.run import Run
from murmuration.privacy.accounting.ledger import read_account
from murmuration.server.record.lineage import lineage_of_model
from murmuration.server.record.marks import mark_of

pytest.importorskip("trl")
pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPTS = [f"{name} {more}" for name in ("loan", "save it", "buy today", "wait") for more in "?!.,"]
SHORT = ("--max-new-tokens", 5)


def caveats_of(folder):
    """Straight from a ledger's first line."""
    return set(json.loads((folder / "ledger.jsonl").read_text().splitlines()[0])["caveats"])


def statement(epsilon, delta, seeded):
    words = " (simulation, seed known)" if seeded else ""
    return f"User-level DP: ε = {epsilon:.2f}, δ = {delta}, add-remove{words}"


def by_trl(base, rows, out):
    """A folder with what TRL makes of a base and of rows, as TRL saves it."""
    import trl
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    answers = load_dataset("json", data_files=str(rows), split="train")
    answers = answers.rename_column("response", "completion")
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base),
        processing_class=AutoTokenizer.from_pretrained(base),
        train_dataset=answers.select_columns(["prompt", "completion"]),
        args=trl.SFTConfig(
            output_dir=str(out), max_steps=2, per_device_train_batch_size=4, report_to=[],
            disable_tqdm=True, use_cpu=True, save_strategy="no", bf16=False,
            gradient_checkpointing=False,
        ),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(out))
    before, after = (AutoModelForCausalLM.from_pretrained(place) for place in (base, out))
    assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))
    return out


def head(card):
    import yaml

    return yaml.safe_load(card.split("---\n")[1])["differential_privacy"]


@pytest.mark.parametrize("seeded", [False, True])
def test_a_promise_is_the_same_at_each_station(
    cli, crowd, language_model, write_rows, tmp_path, seeded
):
    asked = write_rows([{"prompt": prompt} for prompt in PROMPTS], "prompts.jsonl")
    base, seed = language_model("llama"), ("--seed", 1) if seeded else ()
    for name in ("one", "two"):
        code, _, lines = cli(
            "run", "--data", crowd, "--rounds", 2, "--cohort", 10, "--delta", 1e-3,
            "--epsilon", 2, "--users", 40, "--noise", "gaussian", *seed, "--out", tmp_path / name,
        )  # fmt: skip
        assert code == 0, lines
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = (read_account(run / "ledger.jsonl")[0].promise["run"] for run in (one, two))
    assert first != second  # alike in every other way, seed, second and charges included
    known = caveats_of(one)
    assert known == {"simulation, seed known"} if seeded else known == {"floating-point noise"}

    # A run's own result, card and object.
    result = json.loads((one / "result.json").read_text())
    assert result["private"] is not seeded
    assert result["promise"]["statement"] == statement(2, "0.001", seeded)
    run = Run.load(one)
    assert str(run.promise) == f"{statement(2, '0.001', seeded)}; caveats: {', '.join(known)}"
    assert statement(2, "0.001", seeded) in (one / "model" / "README.md").read_text()
    told = head((one / "model" / "README.md").read_text())
    assert (told["private"], set(told["caveats"])) == (not seeded, known)

    # Compared on a page.
    page = tmp_path / "both.html"
    assert cli("report", one, two, "--out", page)[0] == 0
    # Never a number without these words.
    assert ("2.00 (simulation, seed known)" in page.read_text()) is seeded

    # Aligned: one of them is the reward, the other has a say in what is saved.
    policy = tmp_path / "policy"
    code, stdout, lines = cli(
        "align", "--reward", one / "model", "--truth", two / "model", "--base", base,
        "--prompts", asked, "--out", policy, "--steps", 2, "--batch-size", 8, "--evaluate-every", 1,
        "--evaluate-on", 8, "--lora-rank", 2, "--lora-targets", "all-linear", *SHORT, "--json",
    )  # fmt: skip
    assert code == 0, lines
    both = statement(4, "0.002", seeded)
    assert json.loads(stdout.splitlines()[-1])["promise"]["statement"] == both
    card = (policy / "model" / "README.md").read_text()
    assert f"**{both}.**" in card and set(head(card)["caveats"]) == known
    assert sorted(head(card)["runs"]) == sorted([first, second])

    # Whatever the policy writes, or wrote on the way, names the runs, as other rows do.
    said, page = tmp_path / "said.jsonl", tmp_path / "win"
    written = ("--prompts", asked, *SHORT)
    assert cli("respond", policy / "model", *written, "--out", said)[0] == 0
    code, _, lines = cli(
        "winrate", policy / "model", "--against", said, "--out", page, "--no-kl",
        "--judge", one / "model", *SHORT,
    )  # fmt: skip
    assert code == 0, lines
    files = [said, *page.glob("answers/*.jsonl"), policy / "reference.jsonl"]
    files += policy.glob("answers/*.jsonl")
    assert len(files) > 4
    marks = frozenset(mark_of(Run.load(run).promise)["private_runs"] for run in (one, two))
    for file in files:
        named = {json.loads(line)["private_runs"] for line in file.open()}
        assert {frozenset(text.split()) for text in named} == {marks}, file
        code, _, lines = cli(
            "align", "--reward", one / "model", "--base", base, "--prompts", asked, "--sft", file,
            "--out", tmp_path / "never",
        )  # fmt: skip
        assert code and "--sft-privacy" in " ".join(lines), lines

    # The best of what it writes: the reward is met a second time, and counts once.
    rows = tmp_path / "rows.jsonl"
    code, stdout, lines = cli(
        "respond", policy / "model", "--reward", one / "model", "--best-of", 2, "--prompts", asked,
        "--out", rows, "--temperature", 1.5, *SHORT,
    )  # fmt: skip
    assert code == 0, lines
    assert both in stdout
    named = {json.loads(line)["private_runs"] for line in rows.open()}
    assert named == {mark_of(lineage_of_model("", str(policy / "model"), ""))["private_runs"]}

    # What another trainer makes of the rows, and a run of ours on top of it, with ledgers named.
    by_others, third = by_trl(base, rows, tmp_path / "by-others"), tmp_path / "third"
    assert not (by_others / "privacy.json").exists()
    ledgers = ",".join(str(policy / "model" / f"ledger-{place}.jsonl") for place in (1, 2))
    code, _, lines = cli(
        "run", "--data", crowd, "--rounds", 2, "--cohort", 10, "--delta", 1e-3, "--epsilon", 1,
        "--users", 40, "--noise", "gaussian", *seed, "--base", by_others, "--lora-rank", 2,
        "--group-size", 2, "--base-privacy", ledgers, "--out", third,
    )  # fmt: skip
    assert code == 0, lines
    promise = json.loads((third / "result.json").read_text())["promise"]
    all_three = statement(5, "0.003", seeded)
    assert promise["statement"] == all_three and len(promise["runs"]) == 3
    assert set(promise["caveats"]) == known
    assert Run.load(third).promise.statement == all_three

    # A run of ours on judgements of them, which protects each row, and counts who judged before.
    answers = [json.loads(line) for line in rows.open()]
    judged = [
        {
            "prompt": row["prompt"],
            "chosen": row["response"] + " yes",
            "rejected": row["response"] + " no",
        }
        | {"private_runs": row["private_runs"]}
        for row in answers
    ]
    direct = tmp_path / "direct"
    code, _, lines = cli(
        "run", "--data", write_rows(judged, "judged.jsonl"), "--one-user-per-row", "--base-privacy",
        ledgers, "--rounds", 2, "--cohort", 8, "--users", 16, "--delta", 1e-3, "--epsilon", 1,
        "--noise", "gaussian", *seed, "--out", direct,
    )  # fmt: skip
    assert code == 0, lines
    promise = Run.load(direct).promise
    of_rows = statement(1, "0.001", seeded).replace("User", "Row").replace("1.00", "1.000")
    beside = f"{both}; and, by other runs, {of_rows} (the runs protect different units: "
    assert promise.statement.startswith(beside) and len(promise.counted) == 3
    assert promise.caveats == known | {"each row counted as a user"}
    assert beside in (direct / "model" / "README.md").read_text()

    # Exported, whole or as it is.
    for place, source in (("out", third), ("policy-out", policy / "model")):
        out = tmp_path / place
        code, _, lines = cli("export", source, "--out", out)
        assert code == 0, lines
        expected = all_three if place == "out" else both
        card = (out / "README.md").read_text()
        assert f"| statement | {expected} |" in card and head(card)["statement"] == expected
        about = json.loads((out / "privacy.json").read_text())["promise"]
        assert about["statement"] == expected and about["private"] is not seeded
        assert set(about["caveats"]) == known


def test_no_page_formats_epsilon_by_itself():
    """What is made from a run prints a promise's words; figures of accounting alone (plans, ledgers
    and progress) format their own."""
    root = Path(__file__).parents[2]
    allowed = {
        "tuning/command.py", "privacy/promise.py", "server/app.py", "reporting/comparison.py",
        "reporting/evidence.py",  # of mu
        "reporting/facts.py", "reporting/promise.py", "reporting/report.py",
        "reporting/live/ledger_view.py", "reporting/live/progress.py",
        "deploy/disclosure.py",  # of an owner's own ledgers
    }  # fmt: skip
    using = {
        str(path.relative_to(root))
        for room in ROOMS
        for path in (root / room).rglob("*.py")
        if "epsilon_text(" in path.read_text(encoding="utf-8")
    }
    assert using <= allowed
