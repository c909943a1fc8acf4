"""Votes and releases that are made up, for tests of boards."""

import numpy as np
import torch

from murmuration.preference.choices import Kind
from murmuration.ranking.layout import VoteLayout, ballot_weight
from murmuration.ranking.release import RankingRelease
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
        start_U=torch.from_numpy(np.arange(0, ballots + 1, each, dtype=np.int64)),
        start_J=np.arange(0, ballots * pairs + 1, pairs),
        better_R=np.tile(first_P[:pairs].astype(np.int32), ballots),
        worse_R=np.tile(second_P[:pairs].astype(np.int32), ballots),
        weight_R=np.full(ballots * pairs, ballot_weight(kind, ordered), dtype=np.float32),
        tied_R=np.zeros(ballots * pairs, dtype=bool),
        board_J=np.zeros(ballots, dtype=np.int32),
        items=items,
        boards=boards,
        kind=kind,
        width=responses - 1,
    )


def made_up_release(layout: VoteLayout, noise: float = 0.0, **numbers) -> RankingRelease:
    """Return what a board's sums release under noise of that size; all others are 0."""
    return RankingRelease(
        items=tuple("abcdefghijkl"[: layout.items]),
        boards=("",),
        pairing=layout.pairing,
        noise=layout.noise(noise),
        cap=layout.cap,
        clip_norm=layout.clip_norm,
        **{**layout.read(np.zeros(layout.size)), **numbers},
    )
