"""``murmuration rank``: options, and what is printed."""

import json

import pytest

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


def test_an_item_that_votes_alone_know(cli, files):
    files["--items"].write_text("tea\nwater\n", encoding="utf-8")
    code, _, error = call(cli, files)
    assert code == 2 and "'coffee' is not in --items" in error[-1]


def test_not_a_number_is_no_item(cli, files):
    with files["--data"].open("a", encoding="utf-8") as file:
        file.write('{"user_id": "u1", "chosen": NaN, "rejected": "tea"}\n')
    code, _, error = call(cli, files)
    assert code == 2 and "votes.jsonl:561" in error[-1]
    assert call(cli, files, "--on-bad-rows", "skip")[0] == 0


def test_the_best_item_and_a_board_without_a_delta(cli, files):
    options = [part for option in files.items() for part in option]
    code, out, _ = cli("rank", *options, "--epsilon", 1, "--best")
    assert code == 0 and out.startswith("tea") and "(1, 0)-differential privacy" in out
    options[-1] = files["--out"].with_name("pure")
    code, out, _ = cli("rank", *options, "--epsilon", 20, "--delta", 0, "--seed", 1, "--json")
    assert code == 0 and json.loads(out)["votes"]["delta"] == 0.0
    code, _, error = cli("rank", *options, "--best", "--by", "city")
    assert code == 2 and "leave out --by" in error[-1]


def test_a_board_goes_on(cli, files):
    assert call(cli, files, "--releases", 2)[0] == 0
    more = files["--data"].with_name("more.jsonl")
    more.write_text('{"user_id": "u1", "chosen": "coffee", "rejected": "tea"}\n', encoding="utf-8")
    for option, value, why in (("--epsilon", 3, "--epsilon was 20.0"), ("--out", "x", "leave out")):
        code, _, error = cli("rank", "--continue", files["--out"], "--data", more, option, value)
        assert code == 2 and why in error[-1]
    code, out, _ = cli("rank", "--continue", files["--out"], "--data", more)
    assert code == 0 and "board.html" in out
    assert "release 2 of 2" in (files["--out"] / "board.html").read_text(encoding="utf-8")
    code, _, error = cli("rank", "--continue", files["--out"], "--data", more)
    assert code == 2 and "all 2 releases of this board have been made" in error[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--delta", 0, "--releases", 2), "--releases is for --strategy ranking, not laplace"),
        (("--best", "--releases", 2), "--releases is for --strategy ranking, not best-item"),
        (("--best", "--continue", "board"), "leave out --continue"),
    ],
)
def test_what_is_released_once_alone(cli, files, options, message):
    votes = [part for name in ("--items", "--data") for part in (name, files[name])]
    code, _, error = cli("rank", *votes, "--epsilon", 1, *options)
    assert code == 2 and len(error) == 1 and message in error[0]


def test_a_board_with_a_delta_does_not_go_on_without(cli, files):
    assert call(cli, files, "--releases", 2)[0] == 0
    again = ("--continue", files["--out"], "--data", files["--data"], "--delta", 0)
    code, _, error = cli("rank", *again)
    assert code == 2 and "--releases is for --strategy ranking" in error[-1]
