"""Boards of real people's votes beside those without privacy; files are read as they are."""

import gzip
import json

import numpy as np
import pytest
from rooms import ROOT

from murmuration.research.reproductions.ranking.people import compare, read, some

FOLDERS = (ROOT / "shared" / "data", ROOT.parent / "shared" / "data")
FILE = next((path for folder in FOLDERS if (path := folder / "ukp-test.jsonl.gz").exists()), None)


@pytest.fixture
def small(tmp_path):
    """A file of 400 people who agree on both of two boards."""
    rng = np.random.default_rng(0)
    with gzip.open(tmp_path / "small.jsonl.gz", "wt") as file:
        for person in range(400):
            for _ in range(6):
                board, size = ("x", 12) if rng.random() < 0.5 else ("y", 20)
                low, high = np.sort(rng.choice(size, 2, replace=False)).tolist()
                row = {"user_id": f"u{person}", "prompt": board, "chosen": f"{board}{low}"}
                tie = {"tie": True} if rng.random() < 0.1 else {}
                file.write(json.dumps({**row, "rejected": f"{board}{high}", **tie}) + "\n")
    return tmp_path / "small.jsonl.gz"


def test_a_file_is_read_board_by_board(small):
    everybody = read(small)
    assert sorted(everybody.items_B.tolist()) == [12, 20]
    assert len(everybody.votes.voter_V) == 2400 and everybody.votes.voter_V.max() == 399
    assert (np.diff(everybody.votes.voter_V) >= 0).all()
    assert 0.05 < (everybody.votes.outcome_V == 0).mean() < 0.15


def test_some_people_are_whole_people(small):
    everybody = read(small)
    few = some(everybody, 10, np.random.default_rng(0))
    assert len(few.votes.voter_V) == 60 and set(few.votes.voter_V.tolist()) == set(range(10))
    assert len(some(everybody, 10**6, np.random.default_rng(0)).votes.voter_V) == 2400


def test_more_epsilon_is_more_alike(small):
    (close,) = compare(small, (400,), epsilon=200.0, seeds=(0,))
    (far,) = compare(small, (400,), epsilon=0.1, seeds=(0,))
    assert close["spearman"] > 0.9 > 0.5 > far["spearman"]
    assert close["top_10"] > far["top_10"]
    assert 0.5 <= far["top_10_by_chance"] <= 10 / 12


@pytest.mark.skipif(FILE is None, reason="the votes of real people are not here")
def test_real_people():
    assert FILE is not None
    rows = list(compare(FILE, (50, 300), epsilon=20.0, seeds=(0,)))
    assert rows[1]["spearman"] > 0.3 and rows[1]["top_10"] > rows[1]["top_10_by_chance"]
