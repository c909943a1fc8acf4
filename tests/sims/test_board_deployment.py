"""A board on separate machines: SuperNodes whose agents add the noise, under masks."""

import json

import numpy as np
import pytest
from deployment import World

from murmuration import Ranking
from murmuration.client.agent.ledger import OwnLedger
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.strategies.config import RunConfig

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="needs OpenDP"),
]

CLIENTS = tuple("abcd")
ITEMS = ["trams", "parks", "parking"]
BOUND = VoteLayout(items=3, cap=10).clip_norm
POLICY = f"""\
strategies = ["ranking"]
features = ["items"]
adjacency = "zero-out"
max_epsilon = 8.0
delta = 1e-3
max_clip = {BOUND + 0.01:.2f}
max_group_size = 10
max_rounds = 1
secure_only = true
honest_parties = 3
"""


@pytest.mark.timeout(900)
def test_owners_add_the_noise_and_the_board_is_right(tmp_path):
    world = World(tmp_path, CLIENTS, users=len(CLIENTS), policy=POLICY)
    for name in CLIENTS:
        users = {json.loads(line)["user_id"] for line in world.data(name).read_text().splitlines()}
        vote = {"prompt": "?", "chosen": "trams", "rejected": "parking"}
        rows = [{"user_id": user, **vote} for user in sorted(users)]
        rows.append({"user_id": rows[0]["user_id"], **vote, "chosen": "a voter's own words"})
        world.data(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RunConfig.from_run_config(
        {
            "strategy": "ranking",
            "items": json.dumps(ITEMS),
            "heldout": 0.0,
            "adjacency": "zero-out",
            "epsilon": 7.9,
            "delta": 1e-3,
            "secure_aggregation": True,
            "noise": "distributed",
            "min_nodes": 4.0,
            "timeout": 240.0,
            "out": str(tmp_path / "run"),
        }
    )
    with world.running() as site:
        result = world.run(site, config)
    assert (result["noise_parties"], result["clip_norm"]) == (3, pytest.approx(BOUND))
    (charge,) = read_charges(tmp_path / "run" / "ledger.jsonl")
    assert isinstance(charge.event, DiscretizedGaussian)
    assert charge.event.event == PoissonGaussian(1.0, result["noise_multiplier"])
    assert result["epsilon_against_server"] == pytest.approx(result["epsilon"])
    assert 7.8 < result["epsilon"] <= 7.9
    ranking = Ranking.load(tmp_path / "run")
    # Of noise of four nodes that is made for three there is a little more than is promised.
    expected_K = np.array([4.0, 0.0, -4.0])
    assert np.abs(ranking.release.net_BK[0] - expected_K).max() < 6 * ranking.release.noise.net
    assert ranking.release.items == tuple(ITEMS) and ranking.page.exists()
    for name in CLIENTS:
        own = OwnLedger.read(world.state(name) / "own-ledger.jsonl")
        assert own.answered["train"] == 1
