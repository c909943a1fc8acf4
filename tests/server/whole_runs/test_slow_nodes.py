"""Whole runs in which nodes are slow in every round: others count, and no round waits for them."""

import json
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

ROUNDS, TIMEOUT = 5, 1.0
LATE, NEVER = 1, 2


class Slow(LocalGrid):
    """Six nodes: one answers each round after its deadline, and one, still online, never.

    What comes late is there when the next round is asked.
    """

    def __init__(self, config):
        super().__init__(client_app, 6, config.to_run_config())
        self.late, self.came_late, self.round = [], 0, ""

    def push_messages(self, outgoing):
        outgoing = list(outgoing)
        self.round = next((m.metadata.group_id for m in outgoing), self.round)
        return super().push_messages(outgoing)

    def pull_messages(self, message_ids):
        while self.late and self.late[0].metadata.group_id != self.round:
            self.came_late += 1
            yield self.late.pop(0)
        for reply in super().pull_messages(message_ids):
            if reply.metadata.message_type == "query.registry":
                reply.content.config_records["registry"]["places"] = 0
            elif reply.metadata.message_type == "train" and reply.metadata.src_node_id == NEVER:
                continue
            elif reply.metadata.message_type == "train" and reply.metadata.src_node_id == LATE:
                self.late.append(reply)
                continue
            yield reply


def test_a_run_ends_by_the_others_and_says_who_was_slow(tmp_path, crowd, crowd_test):
    config = RunConfig(
        data=crowd, test=crowd_test, epsilon=4.0, delta=1e-3, rounds=ROUNDS, cohort=50, users=50,
        timeout=TIMEOUT, min_nodes=6, refresh=2,  adjacency="zero-out",
        out=str(tmp_path / "run"),
    )  # fmt: skip
    grid = Slow(config)
    result = run_training(config, grid)
    assert (result["rounds"], result["stopped"]) == (ROUNDS, None)
    charges = read_charges(Path(config.out) / "ledger.jsonl")
    assert [charge.round for charge in charges if charge.round] == [*range(1, ROUNDS + 1)]
    assert 3.5 < result["epsilon"] <= 4.0  # of all rounds, whoever answered
    text = (Path(config.out) / "private" / "log.jsonl").read_text()
    log = [line for line in map(json.loads, text.splitlines()) if "left out" in line]
    for round_ in range(1, ROUNDS + 1):
        left_out = {line["node"]: line["left out"] for line in log if line["round"] == round_}
        assert set(left_out) == {LATE, NEVER}
        assert set(left_out.values()) == {"no reply in time"}
    assert grid.came_late  # and was not taken for an answer to the round that it came in
