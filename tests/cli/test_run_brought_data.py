"""Files as a stranger brings them, through the command: what is read, and what is said."""

import json

import pytest

from murmuration.reporting.comparison import read_run
from murmuration.reporting.facts import facts

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


@pytest.mark.parametrize("kind", BROUGHT)
def test_every_kind_that_people_have(cli, write, tmp_path, kind):
    row, options, said = BROUGHT[kind]
    path = write(json.dumps(row(*each)) for each in judged())
    code, _, lines = cli("run", "--data", path, *options, *FEW, "--out", tmp_path / "run")
    assert code == 0, lines
    shown = " ".join(lines)
    for text in said:
        assert text in shown


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
    assert "pass --kind top-1 --responses 4" in told[-1]
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
    assert result["guarantee"].startswith("Row-level")
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
