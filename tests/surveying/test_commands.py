"""``murmuration survey``: options, what is printed, and the plan that takes from it."""

import json

import pytest

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def files(tmp_path):
    data, topics = tmp_path / "judgements.jsonl", tmp_path / "topics.txt"
    row = {"prompt": "What now?", "chosen": "Save it.", "rejected": "No."}
    rows = [{"user_id": f"u{n}", **row} for n in range(150)]
    rows += [{"user_id": "hostile", **row}] * 500
    data.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    topics.write_text("money: save, spend\n", encoding="utf-8")
    return {"--data": data, "--topics": topics, "--out": tmp_path / "r"}


def call(cli, files, *more):
    options = [part for option in files.items() for part in option]
    return cli("survey", *options, "--epsilon", 4, "--delta", 1e-3, "--seed", 1, *more)


def test_a_survey_is_printed_and_feeds_a_plan(cli, files):
    code, out, _ = call(cli, files, "--users", 150)
    assert code == 0 and "Users with judgements" in out and "survey.html" in out
    assert (files["--out"] / "survey.html").exists()
    planned = ("--epsilon", 3, "--delta", 1e-5, "--rounds", 20)
    code, out, _ = cli("plan", "--survey", files["--out"], *planned)
    assert code == 0 and "From the survey: 1" in " ".join(out.split())
    code, out, _ = cli("plan", "--survey", files["--out"], "--users", 90, *planned, "--json")
    assert code == 0 and json.loads(out)["users"] == 90
    code, _, error = cli("plan", "--survey", files["--out"].parent, *planned)
    assert code == 2 and "no finished run" in error[-1]


def test_as_json(cli, files):
    code, out, _ = call(cli, files, "--json")
    printed = json.loads(out)
    assert code == 0 and printed["strategy"] == "survey"
    assert [one["name"] for one in printed["answers"]["questions"]][-1] == "topic"


def test_a_survey_that_learns_nothing_exits_as_any_run_does(cli, files):
    code, _, error = call(cli, files, "--users", 100_000, "--epsilon", 0.02, "--delta", 1e-6)
    assert code == 2 and "nothing was learnt" in error[-1]
