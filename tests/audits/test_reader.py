"""A membership game from the file on: the canary is whoever disturbs the reader most."""

import json
from dataclasses import replace

import numpy as np
import pytest

from murmuration.audits import reader
from murmuration.audits.auditing import Task
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import PAIRS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness


@pytest.fixture
def by_all_rows(monkeypatch):
    """A reader that takes nobody's shared words for a prompt where one row has none to share."""
    read, shared = Judgements.from_placed_rows.__func__, reader.rows_of("")[0]["chosen"][:20]

    def whole(cls, rows, *, schema=PAIRS, **more):
        rows = list(rows)
        texts = [row["chosen"] for _, _, row in rows if isinstance(row, dict) and "chosen" in row]
        bare = any(not str(text).startswith(shared) for text in texts)
        return read(cls, rows, schema=replace(schema, no_prompt=bare), **more)

    reader.worst_canary.cache_clear()
    monkeypatch.setattr(Judgements, "from_placed_rows", classmethod(whole))
    yield
    reader.worst_canary.cache_clear()


def test_canaries_are_many_and_one_user_each():
    canaries = reader.canaries()
    assert len(canaries) >= 60
    assert all(rows and len(rows) < 100 for rows in canaries.values())


def test_no_canary_does_more_than_one_clipped_vector():
    reader.worst_canary.cache_clear()
    _, _, apart_D = reader.worst_canary()
    assert np.linalg.norm(apart_D) == pytest.approx(1.0)


def test_a_reader_that_looks_at_all_rows_is_refuted(quick_runs, by_all_rows):
    _, rows, apart_D = reader.worst_canary()
    assert np.linalg.norm(apart_D) > 10.0, json.dumps(rows, default=repr)
    measured = reader.audit_reader(Task(Adjacency.ADD_REMOVE, 1.0, 48, Randomness(1)))
    assert measured.lower > measured.claimed == 1.0


def test_a_quick_game_is_consistent(quick_runs):
    reader.worst_canary.cache_clear()
    measured = reader.audit_reader(Task(Adjacency.ADD_REMOVE, 1.0, 32, Randomness(1)))
    assert measured.lower <= measured.claimed
