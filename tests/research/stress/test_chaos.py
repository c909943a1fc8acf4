"""The parts of the chaos script; the whole of it is run by hand (docs/research/attacks.md)."""

import json
from pathlib import Path

import pytest

from murmuration.client.agent.policy import Policy
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.research.stress import rogue_node
from murmuration.research.stress.chaos import POLICY, Chaos, outcome
from murmuration.strategies.protocol import messages

ERROR = "an error that clears the screen"


def test_its_error_is_cut_and_harmless_where_it_is_read():
    why = str(messages.MalformedReply(rogue_node.HARMS[ERROR](50)))
    assert len(why) <= 1100
    assert why.isprintable()


def test_the_policy_allows_the_plan(tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY)
    policy, config = Policy.load(tmp_path / "policy.toml"), Chaos(tmp_path, 24).config
    assert config.strategy in policy.strategies
    assert config.clip_norm <= policy.max_clip
    assert config.epsilon < policy.max_epsilon
    assert config.adjacency == policy.adjacency


@pytest.mark.parametrize("name", sorted(set(rogue_node.HARMS) - {"zero", "late", ERROR}))
def test_harm_is_not_admitted(name):
    content, clip = rogue_node.HARMS[name](50), UserClip(0.1)
    with pytest.raises((messages.MalformedReply, ValueError)):
        sums = messages.read_sums(content, {"sum": (50,)})
        if not clip.is_valid(sums["sum"], 8):
            raise messages.MalformedReply("longer than the bound")
        grid.to_whole(sums["sum"], clip.step)


def test_rounds_are_counted_from_whole_lines(tmp_path):
    found = Chaos(tmp_path, 24)
    assert found.rounds_done() == 0
    found.out.mkdir()
    (found.out / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2}\n{"rou')
    assert found.rounds_done() == 2


# What is read off a run after the chaos: charges against releases, who was left out, a table.


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
