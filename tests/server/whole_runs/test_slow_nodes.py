"""Whole runs in which nodes are slow in every round: others count, and no round waits for them."""

from pathlib import Path

import pytest
from local_runs import private_log

from murmuration.client.app import app as client_app
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import secure_messages as secure

pytestmark = pytest.mark.usefixtures("quick_runs", "come_and_go")

ROUNDS, TIMEOUT = 5, 1.0
LATE, NEVER = 1, 2


@pytest.fixture
def come_and_go(refreshed):
    refreshed(2)


class Slow(LocalGrid):
    """Nodes of which one answers each round after its deadline, and one, still online, never.

    They are so at one ``kind`` of message. What comes late is there when the next round is asked.
    """

    def __init__(self, config, nodes=6, kind="train"):
        super().__init__(client_app, nodes, config.to_run_config())
        self.kind = kind
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
            elif reply.metadata.message_type == self.kind and reply.metadata.src_node_id == NEVER:
                continue
            elif reply.metadata.message_type == self.kind and reply.metadata.src_node_id == LATE:
                self.late.append(reply)
                continue
            yield reply


@pytest.mark.parametrize("kind", ["", secure.KEYS, secure.SHARES, "train", secure.UNMASK])
def test_a_run_ends_by_the_others_and_says_who_was_slow(tmp_path, crowd, crowd_test, kind):
    """Under masks whichever exchange they are slow at."""
    config = RunConfig(
        data=crowd, test=crowd_test, epsilon=4.0, delta=1e-3, rounds=ROUNDS, cohort=50, users=50,
        timeout=TIMEOUT, min_nodes=10 if kind else 6, adjacency="zero-out",
        secure_aggregation=bool(kind), out=str(tmp_path / "run"),
    )  # fmt: skip
    grid = Slow(config, 10, kind) if kind else Slow(config)
    result = run_training(config, grid)
    assert (result["rounds"], result["stopped"]) == (ROUNDS, None)
    check_slow(config, result, f"no answer to {kind}" if kind else "no reply in time")
    assert grid.came_late  # and was not taken for an answer to the round that it came in


def check_slow(config, result, reason):
    """Each round is charged, and leaves out the two that were slow in it, and nobody else."""
    charges = read_charges(Path(config.out) / "ledger.jsonl")
    assert [charge.round for charge in charges if charge.round] == [*range(1, ROUNDS + 1)]
    assert 3.5 < result["epsilon"] <= 4.0  # of all rounds, whoever answered
    log = [line for line in private_log(config) if "left out" in line]
    for round_ in range(1, ROUNDS + 1):
        left_out = {line["node"]: line["left out"] for line in log if line["round"] == round_}
        assert set(left_out) == {LATE, NEVER}
        assert set(left_out.values()) == {reason}
