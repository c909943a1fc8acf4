"""Eight SuperNodes whose agents add the noise, of which two drop out for good in mid-run."""

import json
import threading
import time

import pytest
from deployment import World

from murmuration.client.agent.ledger import OwnLedger
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.discrete_gaussian import installed

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="needs OpenDP"),
]

CLIENTS = tuple("abcdefgh")
POLICY = """\
strategies = ["uls"]
adjacency = "zero-out"
max_epsilon = 8.0
delta = 1e-3
max_clip = 0.1
max_group_size = 16
max_rounds = 4
secure_only = true
honest_parties = 6
"""
SETTINGS = {
    "rounds": 4,
    "cohort": 400,
    "users": 400,
    "group_size": 16,
    "epsilon": 7.9,
    "secure_aggregation": True,
    "noise": "distributed",
    "min_nodes": 6,
    "timeout": 240.0,
}


@pytest.mark.timeout(1800)
def test_eight_nodes_of_which_two_drop_out(tmp_path):
    world = World(tmp_path, CLIENTS, users=400, policy=POLICY)
    config = world.config("run", **SETTINGS)
    metrics = tmp_path / "run" / "metrics.jsonl"
    with world.running() as site:
        ended = threading.Event()

        def drop_two():
            while not ended.wait(0.5):
                if metrics.exists() and metrics.read_text().strip():
                    for name in ("a", "b"):
                        for part in ("agent", "node", "executor"):
                            site.programs[f"{name}-{part}"].kill()
                    return

        dropping = threading.Thread(target=drop_two, daemon=True)
        dropping.start()
        started = time.monotonic()
        try:
            result = world.run(site, config)
        finally:
            ended.set()
            dropping.join()
        print(f"{time.monotonic() - started:.0f} s in rounds", json.dumps(result)[:1000])
    assert result["rounds"] == 4
    assert result["noise_parties"] == 6
    expected = accountant.epsilon(
        [(PoissonGaussian(1.0, result["noise_multiplier"]), 4)],
        adjacency=Adjacency.ZERO_OUT,
        delta=1e-3,
    )
    # Everybody is asked: what is published and what the server sees cost the same, and no more,
    # after two have left.
    assert result["epsilon"] == pytest.approx(expected, abs=1e-3)
    assert result["epsilon_against_server"] == pytest.approx(result["epsilon"])
    for name in CLIENTS:
        own = OwnLedger.read(world.state(name) / "own-ledger.jsonl")
        (plan,) = own.plans.values()
        assert plan.against_server(6).epsilon() == pytest.approx(expected, abs=1e-3)
        assert own.answered["train"] == (4 if name not in "ab" else 1)
    log = (tmp_path / "run" / "private" / "log.jsonl").read_text().splitlines()
    left_out = [line for line in log if "left out" in line]
    assert left_out
    assert not any("everybody" in line for line in left_out)
