"""What is read off a run after the chaos: charges against releases, who was left out, a table."""

import json
from pathlib import Path

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.stress.chaos import Chaos, outcome, table


def after(tmp_path: Path, rounds: list[int], released: int) -> dict[str, object]:
    """The outcome of a run with charges for ``rounds`` that released as many as ``released``."""
    chaos = Chaos(tmp_path, 24)
    (chaos.out / "private").mkdir(parents=True)
    settings = {"delta": chaos.config.delta, "budget": chaos.config.epsilon}
    path = chaos.out / "ledger.jsonl"
    with Ledger(path, adjacency=Adjacency.ZERO_OUT, **settings) as ledger:
        for round_ in rounds:
            ledger.charge(PoissonGaussian(0.5, 8.0), round_=round_, covers="gradient sum")
    lines = "".join(json.dumps({"round": r}) + "\n" for r in range(1, released + 1))
    (chaos.out / "metrics.jsonl").write_text(lines)
    log = [{"round": 1, "cohort": 7}, {"round": 1, "node": 5, "left out": "late"}]
    (chaos.out / "private" / "log.jsonl").write_text("\n".join(map(json.dumps, log)) + "\n")
    (tmp_path / "harms.jsonl").write_text('{"round": 1, "harm": "NaN"}\n')
    chaos.times = {1: 110.0, 2: 117.5}
    return outcome(chaos, {"rounds": released}, [0.7, 0.7], 100.0)


def test_a_round_that_was_repeated_is_charged_twice(tmp_path):
    found = after(tmp_path, [1, 2, 2], released=2)
    assert found["charged every round"] is True
    assert (found["charges"], found["released"]) == (3, 2)
    assert found["left out"] == [{"round": 1, "node": 5, "left out": "late"}]
    assert found["seconds"] == {1: 10.0, 2: 7.5}
    assert 0 < float(str(found["epsilon"])) < 8.0


def test_a_release_without_a_charge_is_noticed(tmp_path):
    assert after(tmp_path, [1], released=2)["charged every round"] is False


def test_the_table():
    found = {"seconds": {3: 20.5, 4: 7.0}, "faults": [{"after": 2, "fault": "x: kill -9"}]}
    assert "| 2 | x: kill -9 | 20.5, 7.0, – |" in table(found)
