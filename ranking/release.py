"""One private release of votes, from which a leaderboard is computed.

Each voter is one vector of bounded length, and the sum of all vectors is released once, with
Gaussian noise. Anything computed from these numbers is post-processing, without privacy cost.

*Net scores* are an item's wins less its losses. Where the operator drew the pairs (``public``), all
pairs alike, the net scores and the number of votes are sufficient for Bradley–Terry: how often a
pair was compared is known up to the number of votes. Where voters chose the pairs (``voters``), the
number of votes on each pair is released too.

*Weights.* A ballot that orders k items is k(k − 1)/2 pairs, and one that names the best of k items
is k − 1. Pairs have such weights that no ballot moves net scores by more than a vote on one pair
can (by √2 in ℓ2): "votes", "ties" and counts of pairs are in units of a vote on one pair. If a
voter's votes would move the sum by more than the bound, all of them are scaled by one factor that
depends on that voter's votes alone. For a voter with more votes than the cap, a random window
counts.

Legend: B boards, K items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.ranking.settings import PAIRINGS

#: Whether the operator drew the pairs, all alike, or voters decided what to compare.
Pairing = Literal["public", "voters"]
_SUMS = ("net_BK", "variance_BK", "votes_B", "squares_B", "ties_B", "voters_B", "pair_counts_BKK")
_ARRAYS = (*_SUMS, "overall_variance_K")
_ONE_BOARD = {"overall_variance_K": None, "overall_squares": None, "overall_voters": None}


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviations of the Gaussian noise on each number of a release, 0 for none; public.

    Noise on different numbers is independent, except ``pair_counts``, which are symmetric: one draw
    for a pair. Names are those of the release's numbers.
    """

    net: float
    variance: float
    votes: float
    squares: float
    ties: float
    voters: float
    clipped: float
    pair_counts: float = 0.0
    overall_variance: float = 0.0
    overall_squares: float = 0.0
    overall_voters: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            std = getattr(self, field.name)
            if not (math.isfinite(std) and std >= 0.0):
                raise InputError(f"the noise on {field.name} cannot be {std}")

    def times(self, factor: float) -> Noise:
        """The noise multiplied by ``factor``."""
        return Noise(**{each.name: factor * getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingRelease:
    """The noisy sums over voters, float64, and the public numbers needed to read them.

    Attributes:
        items: K names, a public list, in the order of all arrays.
        boards: B names of categories, a public list; ``("",)`` if there is only one leaderboard.
        pairing: `public` or `voters`.
        net_BK: Σ over voters of an item's wins less its losses. Without noise, each leaderboard
            sums to 0.
        variance_BK: Σ over voters of the square of their own net score of each item, about zero and
            not about a mean: for intervals that are clustered by voter.
        votes_B: Σ of weights of all pairs that were voted on, ties included.
        squares_B: Σ over voters of the square of their own votes.
        ties_B: Σ of weights of the pairs that tied, or of which both were bad.
        voters_B: the number of voters with a vote there.
        pair_counts_BKK: Σ of weights of votes on each pair, ties included; symmetric, with a zero
            diagonal. None where pairing is `public`.
        overall_variance_K, overall_squares, overall_voters: over all categories together, with each
            voter counted once: the squares of their net scores, of their votes, and their number.
            None if there is only one leaderboard.
        clipped: the number of voters whose votes weigh less than one.
        noise: on these numbers.
        cap: most ballots of a voter that count.
        clip_norm: the ℓ2 length that no voter's whole vector exceeds, in which net scores have
            weight 1.
        epsilon, delta: the cost of the release; None without privacy.

    Raises:
        InputError: arrays that do not fit, that are not finite, or names that stand there twice.
    """

    items: tuple[str, ...]
    boards: tuple[str, ...]
    pairing: Pairing
    net_BK: np.ndarray
    variance_BK: np.ndarray
    votes_B: np.ndarray
    squares_B: np.ndarray
    ties_B: np.ndarray
    voters_B: np.ndarray
    clipped: float
    noise: Noise
    cap: int
    clip_norm: float
    pair_counts_BKK: np.ndarray | None = None
    epsilon: float | None = None
    delta: float | None = None
    overall_variance_K: np.ndarray | None = None
    overall_squares: float | None = None
    overall_voters: float | None = None

    def __post_init__(self) -> None:
        if self.pairing not in PAIRINGS:
            raise InputError(f"pairing is {' or '.join(PAIRINGS)}, not {self.pairing!r}")
        if (self.pair_counts_BKK is None) != (self.pairing == "public"):
            raise InputError("counts of pairs are released where voters chose the pairs, only")
        for names, least in ((self.items, 2), (self.boards, 1)):
            if len(names) < least or len(set(names)) < len(names):
                raise InputError(f"{names!r} must be at least {least}, all different")
        items = len(self.items)
        sizes = {"B": len(self.boards), "K": items}
        for name in _SUMS:
            array = getattr(self, name)
            shape = tuple(sizes[letter] for letter in name.rpartition("_")[2])
            if array is not None and (array.shape != shape or not np.isfinite(array).all()):
                raise InputError(f"{name} must be {shape} finite numbers, got {array.shape}")
        overall_K = self.overall_variance_K
        if (overall_K is None) != (len(self.boards) == 1):
            raise InputError("sums over all boards are released where there are several, only")
        if overall_K is not None and not (
            overall_K.shape == (items,) and np.isfinite(overall_K).all()
        ):
            raise InputError(f"overall_variance_K must be {items} finite numbers")

    @property
    def exposure_BKK(self) -> np.ndarray:
        """The number of votes on each pair, (B, K, K) with a zero diagonal: as released, or equal
        for all pairs. Noise can make it negative.
        """
        if self.pair_counts_BKK is not None:
            return self.pair_counts_BKK
        items = len(self.items)
        each_B = self.votes_B / (items * (items - 1) / 2)
        return each_B[:, None, None] * (1.0 - np.eye(items))

    def board(self, place: int) -> Self:
        """The release of one category alone."""
        arrays = {name: _or_none(getattr(self, name), slice(place, place + 1)) for name in _SUMS}
        return replace(self, boards=(self.boards[place],), **arrays, **_ONE_BOARD)

    def overall(self) -> Self:
        """The sums over all categories, as one leaderboard without a name: with √B times the noise,
        except for numbers that were released for all categories together.
        """
        if self.overall_variance_K is None:
            return replace(self, boards=("",))
        sums = {name: getattr(self, name) for name in _SUMS}
        added = {
            name: None if array is None else array.sum(axis=0, keepdims=True)
            for name, array in sums.items()
        }
        added["variance_BK"] = self.overall_variance_K[None]
        added["squares_B"] = np.array([self.overall_squares])
        added["voters_B"] = np.array([self.overall_voters])
        noise = replace(
            self.noise.times(math.sqrt(len(self.boards))),
            clipped=self.noise.clipped,
            variance=self.noise.overall_variance,
            squares=self.noise.overall_squares,
            voters=self.noise.overall_voters,
        )
        return replace(self, boards=("",), noise=noise, **added, **_ONE_BOARD)

    def to_json(self) -> dict[str, Any]:
        """The release as JSON."""
        result: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = {name: result[name].tolist() for name in _ARRAYS if result[name] is not None}
        names = {each: list(getattr(self, each)) for each in ("items", "boards")}
        return {**result, **arrays, **names, "noise": vars(self.noise).copy()}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """The release that ``to_json`` wrote.

        Raises:
            InputError: it is none.
        """
        try:
            values = dict(written)
            for name in _ARRAYS:
                if values.get(name) is not None:
                    values[name] = np.array(values[name], dtype=np.float64)
            values["items"], values["boards"] = tuple(written["items"]), tuple(written["boards"])
            return cls(**{**values, "noise": Noise(**written["noise"])})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is no release of votes: {error}") from None


def _or_none(array_B: np.ndarray | None, boards: slice) -> np.ndarray | None:
    return None if array_B is None else array_B[boards]
