"""Audits of a leaderboard's one release: of a whole voter, starting from ballots.

The canary votes a thousand times for one item against another; on the other data set it is not
there or, where users are replaced, votes as often the other way round. All other voters are known
to the attacker and left out.

Legend: V coordinates, S users.
"""

from collections.abc import Callable

import numpy as np
import torch

from murmuration.audits.auditing import DELTA, Measured, Target, Task
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.strategy import RankingPlan, client_update
from murmuration.ranking.votes import ItemVotes
from murmuration.research.audits.trials import projected
from murmuration.strategies.protocol.messages import TrainRequest

#: From votes and what is requested of a node to its sums.
NodeHalf = Callable[[ItemVotes, TrainRequest, np.ndarray, Randomness], dict[str, np.ndarray]]

LAYOUT = VoteLayout(items=3, cap=4, pairing="voters")


def one_sided(better: int, worse: int, votes: int = 1000) -> ItemVotes:
    """The votes of one voter, all of them for one item against another."""
    return ItemVotes(
        start_U=torch.tensor([0, votes]),
        start_J=np.arange(votes + 1),
        better_R=np.full(votes, better, dtype=np.int32),
        worse_R=np.full(votes, worse, dtype=np.int32),
        weight_R=np.ones(votes, dtype=np.float32),
        tied_R=np.zeros(votes, dtype=bool),
        board_J=np.zeros(votes, dtype=np.int32),
        items=LAYOUT.items,
        boards=LAYOUT.boards,
    )


def audit_votes(task: Task, node_half: NodeHalf = client_update) -> Measured:
    """Attack one release; ``node_half`` replaces the real one in audits of seeded faults."""
    plan = RankingPlan.for_epsilon(
        task.epsilon, users=1, rounds=1, delta=DELTA, adjacency=task.adjacency, layout=LAYOUT
    )
    work = TrainRequest({}, {"round": 1, **plan.node_config}, np.arange(1))
    keys_S = np.zeros(1, dtype=np.uint64)
    first_V = node_half(one_sided(0, 1), work, keys_S, Randomness(0))["sum"]
    second_V = np.zeros_like(first_V)
    if task.adjacency.vectors_changed == 2:
        second_V = node_half(one_sided(1, 0), work, keys_S, Randomness(0))["sum"]
    return projected(task, plan.mechanism, first_V, second_V, "vote sum")


TARGETS = {
    "ranking": Target(
        "the sum of votes that a board is computed from, of a voter who always votes alike",
        audit_votes,
        trials=200_000,
    ),
}
