"""The layout of a voter's vector: places, weights, and the largest length.

All of it follows from public numbers: those of items and categories, the cap, the pairing and the
kind of ballots. Net scores have weight 1; what a fit needs besides (numbers of votes and ties,
squares for intervals) is scaled so that it makes the whole vector, and with it the noise on net
scores, about an eighth longer.

*The bound.* Net scores of M votes are at most √2·M long, of a voter who compares one pair again and
again. Where pairs are drawn, votes spread: of a voter who always follows one order the expected
squared length is 2M + M(M − 1)‖μ‖², with μ the net scores of one such vote on a random pair. The
bound is 1.2 times the root of that, or √2·M where that is less. Who exceeds it is weighed less.

Legend: B boards, K items, P pairs, V coordinates, M the cap.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmuration.preference.choices import Kind
from murmuration.ranking.release import Noise, Pairing

#: Beyond what a voter with one order comes to on average.
_SLACK = 1.2
#: Shares of the squared bound of net scores that the greatest other coordinates can take.
_SHARES = {
    "variance": 0.05,
    "votes": 0.10,
    "squares": 0.03,
    "ties": 0.03,
    "voters": 0.03,
    "clipped": 0.01,
}
#: Numbers that are not the sums of those of several boards, where voters are in several.
_OF_ALL_BOARDS = ("variance", "squares", "voters")
_PAIR_WEIGHT = 0.5


def ballot_weight(kind: Kind, ordered: int) -> float:
    """The weight of each pair of a ballot over ``ordered`` items: no ballot moves net scores by
    more than √2 in ℓ2, which a vote on a single pair attains.
    """
    k = ordered
    return math.sqrt(6 / (k * (k * k - 1)) if kind == "ranking" else 2 / (k * (k - 1)))


@dataclass(frozen=True, kw_only=True)
class VoteLayout:
    """Coordinates of a voter's vector, in this order: of each board and item net scores, then their
    squares; of each board votes, squares of votes, ties, and whether there are any; of several
    boards together the squares of net scores, and of votes, and whether there are any; whether the
    votes weigh less; and of each board and pair the votes on it, where voters chose the pairs.

    Attributes:
        items: K.
        boards: B.
        cap: M, the most ballots of a voter that count.
        pairing: who chose the pairs.
        kind: of ballots.
        responses: most items of a ballot.
    """

    items: int
    cap: int
    boards: int = 1
    pairing: Pairing = "public"
    kind: Kind = "pairs"
    responses: int = 2

    @property
    def pairs(self) -> int:
        """P, of one board."""
        return self.items * (self.items - 1) // 2

    @property
    def ordered(self) -> int:
        """The most items of a ballot: no more than there are."""
        return min(self.responses, self.items)

    @property
    def most_votes(self) -> float:
        """The largest sum of weights of a voter's pairs."""
        k = self.ordered
        pairs = k * (k - 1) / 2 if self.kind == "ranking" else k - 1
        return self.cap * pairs * ballot_weight(self.kind, k)

    @cached_property
    def net_norm(self) -> float:
        """The largest length of net scores alone, before weights."""
        m, n, k = self.cap, self.items, self.ordered
        mean = k / n * ballot_weight("ranking", k) * (k - 1)  # of the first of all
        square = mean**2 * n * (n + 1) / (3 * (n - 1))
        usual = _SLACK * math.sqrt(2 * m + m * (m - 1) * square)
        return min(math.sqrt(2.0) * m, usual)

    @cached_property
    def weights(self) -> dict[str, float]:
        """The factor of each number, by its name in `Noise`."""
        net, votes = self.net_norm, self.most_votes
        largest = {
            "variance": net**2 / math.sqrt(2.0),
            "votes": votes,
            "squares": votes**2,
            "ties": votes,
            "voters": math.sqrt(min(self.boards, self.cap)),
            "clipped": 1.0,
        }
        largest |= {f"overall_{name}": largest[name] for name in _OF_ALL_BOARDS}
        largest["overall_voters"] = 1.0
        result = {name: share**0.5 * net / largest[name] for name, share in self._shares.items()}
        return {"net": 1.0, **result, "pair_counts": _PAIR_WEIGHT}

    @property
    def _shares(self) -> dict[str, float]:
        several = _OF_ALL_BOARDS if self.boards > 1 else ()
        return _SHARES | {f"overall_{name}": _SHARES[name] for name in several}

    @cached_property
    def clip_norm(self) -> float:
        """The length of the longest vector of a voter whose votes all count in full."""
        square = self.net_norm**2 * (1.0 + sum(self._shares.values()))
        if self.pairing == "voters":
            square += _PAIR_WEIGHT**2 * min(self.cap**2, self.net_norm**2 / 2.0)
        return math.sqrt(square)

    @cached_property
    def places(self) -> dict[str, slice]:
        """The slice of a vector for each number, by its name in `Noise`."""
        b, k = self.boards, self.items
        sizes = {"net": b * k, "variance": b * k, "votes": b, "squares": b, "ties": b, "voters": b}
        if b > 1:
            sizes |= {"overall_variance": k, "overall_squares": 1, "overall_voters": 1}
        sizes |= {"clipped": 1, "pair_counts": b * self.pairs if self.pairing == "voters" else 0}
        ends = np.cumsum([0, *sizes.values()]).tolist()
        return {
            name: slice(first, end)
            for name, first, end in zip(sizes, ends[:-1], ends[1:], strict=True)
        }

    @property
    def size(self) -> int:
        """V."""
        return self.places["pair_counts"].stop

    def pair_place(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The index among P of pairs of items, in either order."""
        low, high = np.minimum(first, second), np.maximum(first, second)
        return low * self.items - low * (low + 1) // 2 + high - low - 1

    def noise(self, std: float) -> Noise:
        """The noise on each number, given that on the coordinates of a sum."""
        used = {name: std / weight for name, weight in self.weights.items()}
        if self.pairing == "public":
            del used["pair_counts"]
        return Noise(**used)

    def read(self, sum_V: np.ndarray) -> dict[str, np.ndarray | float | None]:
        """The arrays of a `RankingRelease`, from a sum of voters' vectors."""
        b, k = self.boards, self.items
        numbers = {name: sum_V[place] / self.weights[name] for name, place in self.places.items()}
        counts_BKK = None
        if self.pairing == "voters":
            counts_BKK = np.zeros((b, k, k))
            row_P, column_P = np.triu_indices(k, 1)
            counts_BKK[:, row_P, column_P] = numbers["pair_counts"].reshape(b, -1)
            counts_BKK += counts_BKK.transpose(0, 2, 1)
        overall: dict[str, np.ndarray | float | None] = {}
        if b > 1:
            overall = {
                "overall_variance_K": numbers["overall_variance"],
                "overall_squares": float(numbers["overall_squares"][0]),
                "overall_voters": float(numbers["overall_voters"][0]),
            }
        return {
            **overall,
            "net_BK": numbers["net"].reshape(b, k),
            "variance_BK": numbers["variance"].reshape(b, k),
            "votes_B": numbers["votes"],
            "squares_B": numbers["squares"],
            "ties_B": numbers["ties"],
            "voters_B": numbers["voters"],
            "clipped": float(numbers["clipped"][0]),
            "pair_counts_BKK": counts_BKK,
        }
