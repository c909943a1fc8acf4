"""Votes that are made up, for tests of boards."""

import numpy as np
import torch

from murmuration.preference.choices import Kind
from murmuration.ranking.layout import ballot_weight
from murmuration.ranking.votes import ItemVotes


def made_up_votes(
    items: int,
    boards: int,
    kind: Kind,
    responses: int,
    users: int,
    each: int,
) -> ItemVotes:
    """Return made-up voters with ``each`` ballots, all over as many items as there can be."""
    ordered, ballots = min(responses, items), users * each
    pairs = ordered * (ordered - 1) // 2 if kind == "ranking" else ordered - 1
    first_P, second_P = np.triu_indices(ordered, 1)
    return ItemVotes(
        torch.from_numpy(np.arange(0, ballots + 1, each, dtype=np.int64)),
        np.arange(0, ballots * pairs + 1, pairs),
        np.tile(first_P[:pairs].astype(np.int32), ballots),
        np.tile(second_P[:pairs].astype(np.int32), ballots),
        np.full(ballots * pairs, ballot_weight(kind, ordered), dtype=np.float32),
        np.zeros(ballots * pairs, dtype=bool),
        np.zeros(ballots, dtype=np.int32),
        items,
        boards,
        kind,
        responses - 1,
    )
