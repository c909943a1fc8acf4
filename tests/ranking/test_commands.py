"""``murmuration rank``: options, and what is printed."""

import json

import pytest
from local_runs import refusal

from murmuration.preference.data.loading import load_judgements

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def files(tmp_path):
    items, votes = tmp_path / "items.txt", tmp_path / "votes.jsonl"
    items.write_text("tea\ncoffee\n", encoding="utf-8")
    rows = [{"user_id": f"u{n}", "chosen": "tea", "rejected": "coffee"} for n in range(60)]
    rows += [{"user_id": "hostile", "chosen": "coffee", "rejected": "tea"}] * 500
    votes.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"--items": items, "--data": votes, "--out": tmp_path / "r"}


def call(cli, files, *more):
    options = [part for option in files.items() for part in option]
    return cli("rank", *options, "--epsilon", 20, "--delta", 1e-3, "--seed", 1, *more)


def test_a_board_is_printed_and_written(cli, files):
    code, out, _ = call(cli, files)
    assert code == 0 and out.index("tea") < out.index("coffee")
    assert "board.html" in out and (files["--out"] / "board.html").exists()


def test_as_json(cli, files):
    code, out, _ = call(cli, files, "--json")
    printed = json.loads(out)
    assert code == 0 and [row["item"] for row in printed["board"]] == ["tea", "coffee"]
    assert printed["page"].endswith("board.html") and printed["strategy"] == "ranking"


def test_all_that_is_missing_is_named_at_once(cli, tmp_path):
    votes = tmp_path / "votes.csv"
    votes.write_text("who,chosen,rejected\nann,tea,coffee\n", encoding="utf-8")
    code, _, (line,) = cli("rank", "--data", votes, "--by", "place", "--out", tmp_path / "r")
    assert code == 2
    assert all(name in line for name in ("--items", "--categories", "--user-column"))
    votes.write_text("voter,chosen,rejected\nann,tea,coffee\n", encoding="utf-8")
    _, _, (line,) = cli("rank", "--data", votes, "--out", tmp_path / "r")
    assert "--items" in line and "--user-column" not in line


def test_what_is_private_exactly_is_labelled_on_every_line(cli, files, caplog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with files["--data"].open("a", encoding="utf-8") as file:
        file.write('{"user_id": "u1", "chosen": "cola", "rejected": "tea"}\n' * 3)
        file.write('{"user_id": "u1", "chosen": 5, "rejected": "tea"}\n')
    code, _, lines = call(cli, files, "--on-bad-rows", "skip")
    assert code == 0
    (note,) = [line for line in lines if "skipped row" in line]
    assert note.startswith("note: operator only: 1 skipped row, the first: ")
    assert note.endswith("must be text, found int 5") and str(files["--data"]) in note
    (left_out,) = [text for text in caplog.messages if "left out" in text]
    assert left_out.startswith("operator only: 3 rows are left out, the first: row ")


def vote(better, worse="coffee", **more):
    return json.dumps({"user_id": "mallory", "chosen": better, "rejected": worse, **more})


HOSTILE = {
    "an item on no list": (
        vote("never listed"),
        "votes.jsonl:561: the item 'never listed' is not in --items",
    ),
    "alike but for case": (vote("TEA"), "'TEA' is not in --items, and 'tea' is"),
    "alike but for what cannot be seen": (vote("tea\u200b"), "and 'tea' is"),
    "not a number": (vote(float("nan")), "votes.jsonl:561"),
    "no item": (vote(""), "votes.jsonl:561: 'chosen' is empty"),
    "against itself": (vote("coffee"), "it compares an item with itself"),
    "no tie": (vote("tea", tie="maybe"), "votes.jsonl:561: 'tie' must be true or false"),
    "nobody": (json.dumps({"chosen": "tea", "rejected": "coffee"}), "votes.jsonl:561"),
    "an endless text": (vote("tea" * 100_000), "raise --max-characters"),
    "no end of brackets": ("[" * 100_000, "votes.jsonl:561"),
    "another kind": (json.dumps({"user_id": "m", "responses": ["tea"], "best": 0}), "561"),
    "a broken row": (vote("tea")[:-9], "votes.jsonl:561"),
    "more than there can be": ("\n".join([vote("tea")] * 10_001), "raise --max-judgements"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_row_gets_one_clear_line_or_is_left_out(cli, files, name):
    """Left out it moves nobody else's votes: of a seeded board only its voter's share is other."""
    row, message = HOSTILE[name]
    assert call(cli, {**files, "--out": files["--out"].with_name("before")})[0] == 0
    with files["--data"].open("a", encoding="utf-8") as file:
        file.write(row + "\n")
    code, _, error = call(cli, files)
    assert code == 2 and message in error[-1] and "Traceback" not in "".join(error)
    left = [p for p in files["--out"].rglob("*") if p.is_file() and "private" not in p.parts]
    assert not any(b"never listed" in path.read_bytes() for path in left)
    assert call(cli, files, "--on-bad-rows", "skip", "--users", 61)[0] == 0
    before, after = (
        json.loads((folder / "result.json").read_text(encoding="utf-8"))["outcome"]["votes"]
        for folder in (files["--out"].with_name("before"), files["--out"])
    )
    moved = abs(after["net_BK"][0][0] - before["net_BK"][0][0])
    assert moved <= 10.0 if name == "more than there can be" else moved == 0.0


def test_a_voter_with_more_votes_than_usual_is_read_if_that_is_asked_for(cli, files):
    with files["--data"].open("a", encoding="utf-8") as file:
        file.write((vote("tea") + "\n") * 10_001)
    code, out, _ = call(cli, files, "--max-judgements", 20_000, "--max-characters", 10, "--json")
    assert code == 0 and json.loads(out)["board"][0]["item"] == "tea"


def test_an_arena_is_votes_items_and_their_truth(cli, tmp_path):
    code, stdout, _ = cli("init", "arena", "--count", 4, "--out", tmp_path / "a", "--users", 5)
    assert code == 0 and "truth.json, votes.jsonl" in stdout
    assert len(load_judgements(str(tmp_path / "a" / "votes.jsonl")).user_ids) == 5
    assert len((tmp_path / "a" / "items.txt").read_text().split()) == 4


@pytest.mark.parametrize("items", [0, 1, -4])
def test_an_arena_has_two_items_at_least(cli, tmp_path, items):
    refusal(cli("init", "arena", "--out", tmp_path / "a", "--count", items))
    assert not (tmp_path / "a").exists()
