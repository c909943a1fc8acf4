"""Audits of a leaderboard's one release: of a whole voter, starting from ballots.

The canary votes a thousand times for one item against another; on the other data set it is not
there or, where users are replaced, votes as often the other way round. All other voters are known
to the attacker and left out. The attacker projects what is released on the difference of the two
sums, which is all that Gaussian noise leaves to be known (Neyman and Pearson).

Legend: N trials, V coordinates.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from murmuration.audits.auditing import DELTA, Measured, Target, Task
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.strategy import RankingPlan, client_update
from murmuration.ranking.votes import ItemVotes
from murmuration.research.audits.trials import both_sides
from murmuration.strategies.protocol import messages
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
    first_V, second_V = _sides(task, plan.node_config, node_half)
    apart_V, middle_V = first_V - second_V, (first_V + second_V) / 2.0

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        exact_NV = np.tile(second_V if second else first_V, (task.trials, 1))
        noisy_NV = plan.mechanism.release(
            exact_NV.reshape(-1), round_=1, covers="vote sum", ledger=ledger, source=source
        ).reshape(exact_NV.shape)
        return (noisy_NV - middle_V) @ apart_V / plan.mechanism.std**2

    return both_sides(task, one).measured(task, fit=True)


def _sides(
    task: Task, parameters: Mapping[str, messages.Scalar], node_half: NodeHalf
) -> tuple[np.ndarray, np.ndarray]:
    """The sums with the canary, and without, or with one that votes the other way."""
    work = TrainRequest({}, {"round": 1, **parameters}, np.arange(1))
    keys_S = np.zeros(1, dtype=np.uint64)
    first = node_half(one_sided(0, 1), work, keys_S, Randomness(0))["sum"]
    if task.adjacency.vectors_changed == 1:
        return first, np.zeros_like(first)
    return first, node_half(one_sided(1, 0), work, keys_S, Randomness(0))["sum"]


TARGETS = {
    "ranking": Target(
        "the sum of votes that a board is computed from, of a voter who always votes alike",
        audit_votes,
        trials=200_000,
    ),
}
