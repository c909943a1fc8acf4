"""A test of the people whom a run protects is refused, and one of others is not."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")
SMALL = ["--epsilon", 8, "--delta", 1e-3, "--rounds", 2, "--cohort", 10]


@pytest.fixture
def refused(cli, tmp_path):
    """A function: what is said of a run with this data and test, which nothing is left of."""

    def of(data, test, *more):
        out = tmp_path / "run"
        code, stdout, lines = cli(
            "run", "--data", data, "--test", test, *SMALL, *more, "--out", out
        )
        assert (code, stdout) == (2, "")
        assert not out.exists()
        return lines[-1]

    return of


def test_a_test_equal_to_the_data_is_refused(refused, crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link, hard = tmp_path / "link.jsonl", tmp_path / "hard.jsonl"
    link.symlink_to(crowd)
    hard.write_bytes(Path(crowd).read_bytes())
    for test in (crowd, os.path.relpath(crowd), link):
        said = refused(crowd, test)
        assert "is --data" in said and "leave --test out" in said
    assert "50 of 50" in refused(crowd, hard)


def test_a_test_that_shares_a_user_is_refused_and_the_number_is_for_the_operator(
    refused, crowd, crowd_test, make_rows, write_rows
):
    mine = {**make_rows([1])[0], "prompt": "Another one?"}
    others = [json.loads(line) for line in Path(crowd_test).read_text().splitlines()]
    said = refused(crowd, write_rows([*others, {**mine, "user_id": "u007"}], "t.jsonl"))
    assert "has users of --data (operator only: 1 of 11)" in said
    assert "other ids" in said and "\n" not in said


def test_a_row_that_is_in_both_is_refused_where_rows_are_users(
    refused, crowd, crowd_test, write_rows
):
    row = {"user_id": "a", "prompt": "Only here?", "chosen": "Yes.", "rejected": "No."}
    mine = [json.loads(line) for line in Path(crowd).read_text().splitlines()] + [row]
    others = [{**row, "prompt": f"{number}?"} for number in range(3)]
    data, test = write_rows(mine, "d.jsonl"), write_rows([*others, row], "t.jsonl")
    assert "has rows of --data (operator only: 1 of 4)" in refused(data, test, "--one-user-per-row")


def test_the_embedded_populations_own_test_is_no_others(tmp_path, few_people):
    config = RunConfig(
        data="murmuration.population:train", test="murmuration.population:test",
        epsilon=8.0, delta=1e-5, rounds=1, cohort=20, out=str(tmp_path / "run"),
        features="hashing:64",
    )  # fmt: skip
    assert execute(config, quiet=True)["rounds"] == 1
    with pytest.raises(InputError, match="is --data"):
        execute(replace(config, data=config.test, out=str(tmp_path / "again")), quiet=True)


def test_a_test_that_is_written_anew_is_read_anew(refused, cli, crowd, crowd_test, tmp_path):
    test = tmp_path / "t.jsonl"
    test.write_text(Path(crowd_test).read_text())
    assert cli("run", "--data", crowd, "--test", test, *SMALL, "--out", tmp_path / "a")[0] == 0
    test.write_text(Path(crowd).read_text() + "\n")
    assert "50 of 50" in refused(crowd, test)
