"""A synthetic arena: votes between items of known strengths, by voters who differ.

A voter's own strength of an item is the mean strength plus a normal deviation, and the voter's
votes follow Davidson's model: between i and j, with d the difference of the voter's own strengths,
i wins with probability e^{d/2}/Z and the two tie with ν/Z, where Z = 2 cosh(d/2) + ν. So votes of
one voter go together. Every vote's pair is drawn, all alike unless ``pairing_KK`` says otherwise,
and a voter's number of votes is independent of their taste.

The *truth* is the leaderboard of infinitely many such voters: the fit to the expected votes. It is
a little flatter than the mean strengths, because voters disagree.

Legend: K items, U voters, V votes, P pairs.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path

import numpy as np
from scipy import stats

from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.strict_json import strict_json
from murmuration.ranking.bradley_terry import ELO_PER_UNIT, Strengths, strengths

_QUESTION = "Which of the two is better?"
#: Expected votes that the truth is fitted to; as many as make the ridge vanish.
_MANY_VOTES, _NO_RIDGE = 1e6, 1e-6


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes in arrays, grouped by voter.

    Attributes:
        voter_V: who voted, from 0.
        first_V, second_V: places of the items that were shown.
        outcome_V: 1 where the first won, −1 where the second did, 0 where they tied.
    """

    voter_V: np.ndarray
    first_V: np.ndarray
    second_V: np.ndarray
    outcome_V: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Arena:
    """Items, voters, and a model of their votes.

    Attributes:
        voters: their number.
        items: their number.
        seed: of the arena.
        points: the standard deviation of the items' strengths, in points of the Elo scale.
        taste: that of a voter's own deviation from them, for each item, in the same points.
        median_votes, votes_spread, most_votes: numbers of votes of a voter are
            round(median · exp(spread · normal)), limited to 1 … most.
        tie: ν; the probability of a tie between equals is ν/(2 + ν).
        pairing_KK: the relative frequency of each pair: symmetric, with a zero diagonal; None: all
            equal.

    Raises:
        ValueError: a parameter is out of range.
    """

    voters: int = 2500
    items: int = 20
    seed: int = 0
    points: float = 150.0
    taste: float = 170.0
    median_votes: float = 8.0
    votes_spread: float = 0.8
    most_votes: int = 100
    tie: float = 0.2
    pairing_KK: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.voters < 0 or self.seed < 0 or self.items < 2:
            raise ValueError("an arena has at least two items, and no negative number of voters")
        for name in ("points", "taste", "votes_spread", "tie"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be finite and not negative")
        if not self.median_votes > 0 or self.most_votes < 1:
            raise ValueError("median_votes must be positive and most_votes at least 1")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the items; their order says nothing of their strengths."""
        digits = len(str(self.items))
        return tuple(f"model-{place:0{digits}d}" for place in range(1, self.items + 1))

    @cached_property
    def crowd_K(self) -> np.ndarray:
        """Mean strengths over all voters, in logits, (K,): normal quantiles in random order."""
        levels_K = (np.arange(self.items) + 0.5) / self.items
        ordered_K = stats.norm.ppf(levels_K) * self.points / ELO_PER_UNIT
        return np.random.default_rng([self.seed, 0]).permutation(ordered_K)

    @cached_property
    def shares_P(self) -> np.ndarray:
        """The share of each pair among what is shown, (P,), in the order of ``np.triu_indices``."""
        rows_P, columns_P = np.triu_indices(self.items, 1)
        if self.pairing_KK is None:
            return np.full(len(rows_P), 1 / len(rows_P))
        weights_P = self.pairing_KK[rows_P, columns_P]
        return weights_P / weights_P.sum()

    def votes(self, draw: int = 0) -> Votes:
        """The votes of all voters; another ``draw`` has other voters of the same distribution."""
        rng = np.random.default_rng([self.seed, 1, draw])
        normal_U = rng.standard_normal(self.voters)
        wanted_U = np.round(self.median_votes * np.exp(self.votes_spread * normal_U))
        counts_U = np.clip(wanted_U, 1, self.most_votes).astype(np.int64)
        deviation_UK = rng.standard_normal((self.voters, self.items)) * self.taste / ELO_PER_UNIT
        own_UK = self.crowd_K + deviation_UK
        voter_V = np.repeat(np.arange(self.voters), counts_U)
        rows_P, columns_P = np.triu_indices(self.items, 1)
        pair_V = rng.choice(len(rows_P), size=len(voter_V), p=self.shares_P)
        turned_V = rng.random(len(voter_V)) < 0.5
        first_V = np.where(turned_V, columns_P[pair_V], rows_P[pair_V])
        second_V = np.where(turned_V, rows_P[pair_V], columns_P[pair_V])
        ahead_V = own_UK[voter_V, first_V] - own_UK[voter_V, second_V]
        win_V, lose_V = self._chances(ahead_V)
        coin_V = rng.random(len(voter_V))
        outcome_V = np.where(coin_V < win_V, 1, np.where(coin_V < win_V + lose_V, -1, 0))
        return Votes(voter_V, first_V, second_V, outcome_V)

    def rows(self) -> Iterator[dict[str, object]]:
        """The votes as rows `user_id, prompt, chosen, rejected, tie`, grouped by voter."""
        votes, names = self.votes(), self.names
        columns = (votes.voter_V, votes.first_V, votes.second_V, votes.outcome_V)
        listed = zip(*(c.tolist() for c in columns), strict=True)
        for voter, first, second, outcome in listed:
            chosen, rejected = (first, second) if outcome >= 0 else (second, first)
            yield {
                "user_id": f"voter-{voter:06d}",
                "prompt": _QUESTION,
                "chosen": names[chosen],
                "rejected": names[rejected],
                "tie": outcome == 0,
            }

    def truth(self) -> Strengths:
        """The leaderboard of infinitely many such voters."""
        points_Q, weights_Q = np.polynomial.hermite_e.hermegauss(64)
        weights_Q = weights_Q / weights_Q.sum()
        # Two deviations differ by a normal with √2 times the standard deviation of one.
        spread_Q = points_Q * np.sqrt(2) * self.taste / ELO_PER_UNIT
        difference_KK = self.crowd_K[:, None] - self.crowd_K
        win_KKQ, lose_KKQ = self._chances(difference_KK[..., None] + spread_Q)
        pairs_KK = np.zeros((self.items, self.items))
        pairs_KK[np.triu_indices(self.items, 1)] = _MANY_VOTES * self.shares_P
        pairs_KK += pairs_KK.T
        net_K = (pairs_KK * ((win_KKQ - lose_KKQ) @ weights_Q)).sum(axis=1)
        tied_KK = 1 - (win_KKQ + lose_KKQ) @ weights_Q
        ties = float((pairs_KK * tied_KK).sum() / 2)
        return strengths(net_K, pairs_KK, ridge=_NO_RIDGE, ties=ties if self.tie else None)

    def _chances(self, difference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = 2 * np.cosh(difference / 2) + self.tie
        return np.exp(difference / 2) / total, np.exp(-difference / 2) / total


def arena() -> Iterator[dict[str, object]]:
    """The votes of the default arena; the data source `murmuration.ranking.arena:arena`."""
    return Arena().rows()


#: The items of the default arena.
ARENA_ITEMS = Arena().names


def write_arena(directory: str | Path, arena: Arena) -> None:
    """Write `votes.jsonl`, `items.txt`, a name a line, and, last, `truth.json` into a directory.

    Each file appears whole or not at all, and depends on the arena alone.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(row) + "\n" for row in arena.rows())
    replace_file(directory / "votes.jsonl", "".join(lines).encode())
    replace_file(directory / "items.txt", "".join(f"{name}\n" for name in arena.names).encode())
    fitted = arena.truth()
    parameters = {k: v for k, v in asdict(arena).items() if k != "pairing_KK"}
    truth = {
        "elo": dict(zip(arena.names, fitted.elo_K.round(3).tolist(), strict=True)),
        "elo_means": "what a board of infinitely many such voters shows; mean 1000",
        "tie": round(fitted.tie, 6),
        "arena": parameters,
    }
    replace_file(directory / "truth.json", strict_json(truth, indent=2).encode() + b"\n")
