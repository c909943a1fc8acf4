"""The parts of the chaos script; the whole of it is run by hand (docs/research/deployments.md)."""

import pytest

from murmuration.client.agent.policy import Policy
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.research.stress import rogue_node
from murmuration.research.stress.chaos import FAULTS, POLICY, Chaos
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


def test_faults_come_in_order_and_all_of_them_within_20_rounds():
    after = [fault.after for fault in FAULTS]
    assert after == sorted(after)
    assert after[-1] < 20


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
