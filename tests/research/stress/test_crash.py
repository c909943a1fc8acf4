"""Killed runs: that they go on as they should, and that the check would notice if they did not."""

import json
import random

import numpy as np
import pytest
from safetensors.numpy import save_file

from murmuration.privacy.accounting.events import PoissonGaussian, to_json
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.stress import crash
from murmuration.research.stress.crash import Left, check, inspect


@pytest.mark.parametrize("seeded", [True, False])
def test_a_kill(tmp_path, monkeypatch, seeded):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = check(tmp_path, kills=1, rounds=20, seeded=seeded, randomness=random.Random(1))
    assert len(found) == 2
    assert [left.faults for left in found] == [()] * 2
    assert 0 < found[-1].epsilon <= 0.5
    assert found[-1].charged >= 19 + 2
    # The hold-out's coins and figures are charged, too.
    assert found[-1].charges == 20 + 2


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False])
def test_twenty_kills(tmp_path, monkeypatch, seeded):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = check(tmp_path, kills=20, rounds=400, seeded=seeded, randomness=random.Random())
    assert [left.faults for left in found] == [()] * 21
    assert len({left.charged for left in found}) > 10, "the kills all fell at one place"


@pytest.fixture
def left_behind(tmp_path):
    """A function: what is found in a run that charged, measured and saved these rounds."""

    def make(charged, metrics, checkpoint=0, noise=20.0, torn=""):
        for path in tmp_path.iterdir():
            if path.is_file():
                path.unlink()
        terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-3, "budget": None}
        with Ledger(tmp_path / "ledger.jsonl", **terms) as ledger:
            for round_ in charged:
                ledger.charge(PoissonGaussian(0.4, noise), round_=round_, covers="sum")
        with (tmp_path / "ledger.jsonl").open("a") as file:
            event = to_json(PoissonGaussian(0.4, noise))
            file.write(torn and json.dumps({"round": 9, "event": event}))
        lines = "".join(json.dumps({"round": round_}) + "\n" for round_ in metrics)
        (tmp_path / "metrics.jsonl").write_text(lines + torn)
        (tmp_path / "checkpoint").mkdir(exist_ok=True)
        state = {"round": np.array([checkpoint])}
        save_file(state, tmp_path / "checkpoint" / "state.safetensors")
        return inspect(tmp_path, kills=1)

    return make


def test_what_is_in_order_is_good(left_behind):
    found = left_behind([1, 2, 3], [1, 2], checkpoint=2, torn='{"round": 3')
    assert found.faults == ()
    assert (found.charges, found.charged, found.metrics, found.checkpoint) == (3, 3, 2, 2)
    assert 0 < found.epsilon < 0.5


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (([1, 2], [1, 2, 3]), "released but not charged: rounds [3]"),
        (([1, 3], [1]), None),
        (([1, 3], [1], 3), "released but not charged: rounds [2]"),
        (([1, 2, 2], [1, 2]), None),
        (([1, 1, 2, 2], [1, 2]), "2 rounds charged again after 1 kills"),
        (([1, 2], [2, 1]), "metrics are out of order"),
        (([1, 2], [1, 1]), "metrics are out of order"),
        (([1, 2, 3], [1], 0, 1.0), "more than the budget"),
    ],
)
def test_what_is_amiss_is_found(left_behind, arguments, fault):
    found = left_behind(*arguments).faults
    assert len(found) == (fault is not None)
    assert not fault or fault in found[0]


def test_a_run_without_anything(tmp_path):
    assert inspect(tmp_path, kills=0) == Left(0, 0, 0, 0, 0.0, ())


def test_a_run_that_fails_by_itself_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(crash, "COHORT", 10_000)
    with pytest.raises(RuntimeError, match="--cohort 10000 is more than"):
        check(tmp_path, kills=1, rounds=3, seeded=True, randomness=random.Random(0))
