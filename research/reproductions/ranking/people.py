"""Private boards of what real people voted on, beside the boards without privacy.

python -m murmuration.research.reproductions.ranking.people polis-pairs.jsonl.gz …

A file has rows ``user_id, prompt, chosen, rejected[, tie]``. Each prompt has a leaderboard, with
its own items; all leaderboards are one joint release, in which a person's votes on all of them are
one bounded vector. As many people as asked for are drawn, and both boards are theirs: exactly, with
all their votes, and at ε.

Legend: V votes, K items, B boards.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from murmuration.ranking.arena import Votes
from murmuration.ranking.board import fit_board
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.release import RankingRelease
from murmuration.research.reproductions.ranking.released import item_votes, release

_CAP = 10
_TOP = 10


@dataclass(frozen=True, eq=False)
class PeoplesVotes:
    """Votes of people on leaderboards of different length.

    Attributes:
        votes: with indices of items within their leaderboard.
        board_V: the leaderboard of each.
        items_B: the number of items of each leaderboard.
    """

    votes: Votes
    board_V: np.ndarray
    items_B: np.ndarray


def read(path: Path) -> PeoplesVotes:
    """The votes of a file, grouped by person."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = sorted(map(json.loads, file), key=lambda row: row["user_id"])
    boards: dict[str, dict[str, int]] = {}
    people: dict[str, int] = {}
    columns = []
    for row in rows:
        places = boards.setdefault(row["prompt"], {})
        first, second = (places.setdefault(row[name], len(places)) for name in _TEXTS)
        if first == second:
            continue
        board, person = list(boards).index(row["prompt"]), row["user_id"]
        voter = people.setdefault(person, len(people))
        columns.append((voter, first, second, 0 if row.get("tie") else 1, board))
    voter_V, first_V, second_V, outcome_V, board_V = np.array(columns).T
    items_B = np.array([len(places) for places in boards.values()])
    return PeoplesVotes(Votes(voter_V, first_V, second_V, outcome_V), board_V, items_B)


def some(everybody: PeoplesVotes, people: int, rng: np.random.Generator) -> PeoplesVotes:
    """The votes of ``people`` people, drawn at random, or of all if there are no more."""
    votes = everybody.votes
    chosen_U = rng.permutation(int(votes.voter_V.max()) + 1)[:people]
    taken_V = np.isin(votes.voter_V, chosen_U)
    _, voter_V = np.unique(votes.voter_V[taken_V], return_inverse=True)
    rest = (part[taken_V] for part in (votes.first_V, votes.second_V, votes.outcome_V))
    return PeoplesVotes(Votes(voter_V, *rest), everybody.board_V[taken_V], everybody.items_B)


def compare(
    path: Path, people: Sequence[int], *, epsilon: float = 1.0, seeds: Sequence[int] = range(5)
) -> Iterator[dict[str, Any]]:
    """Yield, for each number of people, the similarity of private to exact leaderboards: means over
    leaderboards and seeds, weighted by people's votes, and its value by chance.
    """
    everybody = read(path)
    for number in people:
        figures = []
        for seed in seeds:
            rng = np.random.default_rng([seed, number])
            figures += _alike(some(everybody, number, rng), epsilon, rng)
        rank, top, chance, votes = np.array(figures).T
        yield {
            "file": path.name.partition(".")[0],
            "people": number,
            "epsilon": epsilon,
            "spearman": float(np.average(rank, weights=votes)),
            "top_10": float(np.average(top, weights=votes)),
            "top_10_by_chance": float(np.average(chance, weights=votes)),
        }


def _alike(
    some_people: PeoplesVotes, epsilon: float, rng: np.random.Generator
) -> Iterator[tuple[float, float, float, int]]:
    items_B, most = some_people.items_B, int(some_people.items_B.max())
    votes = item_votes(some_people.votes, most, some_people.board_V, len(items_B))
    names = [str(place) for place in range(most)]
    all_votes = max(int(votes.counts_U.max()), 1)
    exact, private = (
        release(votes, names, VoteLayout(items=most, cap=cap, boards=len(items_B)), cost, rng)
        for cap, cost in ((all_votes, None), (_CAP, epsilon))
    )
    for board, items in enumerate(items_B.tolist()):
        size = int((some_people.board_V == board).sum())
        if size:
            true_K, private_K = (_scores(one, board, items) for one in (exact, private))
            top = min(_TOP, items)
            exact_top, private_top = (
                set(np.argsort(-part_K)[:top].tolist()) for part_K in (true_K, private_K)
            )
            rank = float(np.corrcoef(stats.rankdata(true_K), stats.rankdata(private_K))[0, 1])
            yield rank, len(exact_top & private_top) / top, top / items, size


def _scores(joint: RankingRelease, board: int, items: int) -> np.ndarray:
    """The strengths on one leaderboard, of its items."""
    one = joint.board(board)
    shorter = replace(
        one,
        items=one.items[:items],
        net_BK=one.net_BK[:, :items],
        variance_BK=one.variance_BK[:, :items],
    )
    return fit_board(shorter).scores_K


_TEXTS = ("chosen", "rejected")

if __name__ == "__main__":
    for name in sys.argv[1:]:
        for line in compare(Path(name), (250, 500, 1000, 2000, 4000)):
            print(json.dumps(line))
