"""The command is measured on the votes that are stated, in both forms, in a process of its own."""

import csv
import json

import pytest

from murmuration.research.bench import board


def test_both_forms_say_the_same(tmp_path):
    export, rows = tmp_path / "votes.csv", tmp_path / "votes.jsonl"
    votes = board.write_votes(export, 20, "export")
    assert board.write_votes(rows, 20, "rows") == votes
    with export.open(newline="") as file:
        exported = list(csv.DictReader(file))
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(exported) == len(lines) == votes
    assert 8 < votes / 20 < 13
    for one, other in zip(exported, lines, strict=True):
        assert one["user"] == other["user_id"]
        assert (one["model_a"], one["model_b"]) == (other["chosen"], other["rejected"])
        assert (one["winner"] == "tie") == other["tie"]


@pytest.mark.slow
@pytest.mark.parametrize("form", board.FORMS)
def test_a_row(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = board.measure(60, form)
    assert row["voters"] == 60
    assert 0 < row["floor_seconds"] < row["seconds"]
    assert row["peak_mib"] > 50  # an interpreter with torch
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_command_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="--users must be a positive number"):
        board.measure(0, "export")
