"""Whole runs in which nodes are slow in every round: others count, and no round waits for them."""

import json
import time
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.training import train
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

ROUNDS, TIMEOUT = 5, 1.0
LATE, NEVER = 1, 2


class Slow(LocalGrid):
    """Of four nodes one answers each round after its deadline, and one, still online, never.

    What comes late is there at the next pull of whatever else is asked.
    """

    def __init__(self, config):
        super().__init__(client_app, 4, config.to_run_config())
        self.late, self.came_late = [], 0

    def pull_messages(self, message_ids):
        while self.late and self.late[0][0] <= time.monotonic():
            self.came_late += 1
            yield self.late.pop(0)[1]
        for reply in super().pull_messages(message_ids):
            if reply.metadata.message_type == "query.registry":
                reply.content.config_records["registry"]["places"] = 0
            elif reply.metadata.message_type == "train" and reply.metadata.src_node_id == NEVER:
                continue
            elif reply.metadata.message_type == "train" and reply.metadata.src_node_id == LATE:
                self.late.append((time.monotonic() + TIMEOUT + 0.2, reply))
                continue
            yield reply


@pytest.mark.parametrize("hidden", [False, True])
def test_a_run_ends_by_the_others_and_says_who_was_slow(tmp_path, crowd, crowd_test, hidden):
    config = RunConfig(
        data=crowd, test=crowd_test, epsilon=4.0, delta=1e-3, rounds=ROUNDS, cohort=50, users=50,
        timeout=TIMEOUT, min_nodes=4, refresh=2, secure_aggregation=hidden,
        out=str(tmp_path / "run"),
    )  # fmt: skip
    grid, began = Slow(config), time.monotonic()
    result = train(config, grid)
    assert (result["rounds"], result["stopped"]) == (ROUNDS, None)
    charges = read_charges(Path(config.out) / "ledger.jsonl")
    assert [charge.round for charge in charges if charge.round] == [*range(1, ROUNDS + 1)]
    assert 3.5 < result["epsilon"] <= 4.0  # of all rounds, whoever answered
    text = (Path(config.out) / "private" / "log.jsonl").read_text()
    log = [line for line in map(json.loads, text.splitlines()) if "left out" in line]
    for round_ in range(1, ROUNDS + 1):
        left_out = {line["node"]: line["left out"] for line in log if line["round"] == round_}
        assert set(left_out) == {LATE, NEVER}
        assert all("no reply in time" in why or "no answer" in why for why in left_out.values())
    assert hidden or grid.came_late  # and was not taken for an answer to the round that it came in
    print(time.monotonic() - began)
