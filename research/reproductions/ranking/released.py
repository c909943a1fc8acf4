"""Releases of votes that lie in arrays: what ``rank`` releases, without its files and ledger.

Legend: V votes, K items, B boards.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from murmuration.privacy.accounting.accountant import noise_multiplier_for
from murmuration.privacy.adjacency import Adjacency
from murmuration.ranking.arena import Votes
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import Noise, RankingRelease
from murmuration.ranking.votes import ItemVotes

DELTA = 1e-5


@cache
def noise_multiplier(epsilon: float | None) -> float:
    """The noise multiplier of one release at ε and ``DELTA``; 0 without an ε."""
    if epsilon is None:
        return 0.0
    return noise_multiplier_for(
        epsilon, delta=DELTA, probability=1.0, rounds=1, adjacency=Adjacency.ADD_REMOVE
    )


def item_votes(
    votes: Votes, items: int, board_V: np.ndarray | None = None, boards: int = 1
) -> ItemVotes:
    """Votes, grouped by voter, as the ranking strategy reads them."""
    size = len(votes.voter_V)
    first_better_V = votes.outcome_V >= 0
    voters = int(votes.voter_V.max()) + 1 if size else 0
    counts_U = np.bincount(votes.voter_V, minlength=voters)
    return ItemVotes(
        start_U=torch.from_numpy(np.concatenate(([0], np.cumsum(counts_U)))),
        start_J=np.arange(size + 1),
        better_R=np.where(first_better_V, votes.first_V, votes.second_V).astype(np.int32),
        worse_R=np.where(first_better_V, votes.second_V, votes.first_V).astype(np.int32),
        weight_R=np.ones(size, dtype=np.float32),
        tied_R=votes.outcome_V == 0,
        board_J=np.zeros(size, dtype=np.int32) if board_V is None else board_V.astype(np.int32),
        items=items,
        boards=boards,
    )


def exact_sums(
    votes: ItemVotes, layout: VoteLayout, clip_norm: float, rng: np.random.Generator
) -> np.ndarray:
    """The sum of voters' bounded vectors, (coordinates,), with at most ``layout.cap`` votes of
    each, chosen at random.
    """
    counts_U = votes.counts_U.numpy()
    size = int(counts_U.sum())
    user_V = np.repeat(np.arange(len(counts_U)), counts_U)
    shuffled_V = np.lexsort((rng.random(size), user_V))
    place_V = np.arange(size) - np.repeat(np.cumsum(counts_U) - counts_U, counts_U)
    taken_N = shuffled_V[place_V < layout.cap]
    chunks = votes.vectors(layout, clip_norm, taken_N, np.minimum(counts_U, layout.cap))
    return np.sum([chunk_CV.sum(axis=0) for chunk_CV in chunks], axis=0)


def release(
    votes: ItemVotes,
    names: Sequence[str],
    layout: VoteLayout,
    epsilon: float | None,
    rng: np.random.Generator,
) -> RankingRelease:
    """The release of votes at an ε; without one, exact sums of the votes that count."""
    exact = exact_sums(votes, layout, layout.clip_norm if epsilon else NO_BOUND, rng)
    return with_noise(exact, names, layout, epsilon, rng)


def with_noise(
    exact: np.ndarray,
    names: Sequence[str],
    layout: VoteLayout,
    epsilon: float | None,
    rng: np.random.Generator,
) -> RankingRelease:
    """The release of ``exact_sums`` at an ε, or without noise."""
    std = noise_multiplier(epsilon) * layout.clip_norm
    noise = layout.noise(std) if epsilon else Noise(**dict.fromkeys(_EXACT, 0.0))
    return RankingRelease(
        items=tuple(names),
        boards=tuple(f"board {place}" for place in range(layout.boards)),
        pairing=layout.pairing,
        noise=noise,
        cap=layout.cap,
        clip_norm=layout.clip_norm,
        epsilon=epsilon,
        delta=DELTA if epsilon else None,
        **layout.read(exact + std * rng.standard_normal(len(exact))),  # type: ignore[arg-type]
    )


#: Longer than any vector.
NO_BOUND = 1e12
_EXACT = ("net", "variance", "votes", "squares", "ties", "voters", "clipped")
