"""A leaderboard: strengths with intervals, ranks and win probabilities, from one noisy release.

All of it is post-processing of the release, without further privacy cost.

Legend: K items.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from murmuration.ranking.bradley_terry import (
    ELO_MEAN,
    ELO_PER_UNIT,
    PRIOR_STD,
    denoised,
    strengths,
)
from murmuration.ranking.intervals import (
    count_doubt,
    covariance,
    difference_std,
    rank_ranges,
    response,
    told_apart,
)
from murmuration.ranking.release import RankingRelease

CONFIDENCE = 0.95
#: Fewer ties than this multiple of their noise are taken for none.
_TIES_BEYOND_NOISE = 2.0
#: Of boards whose pairs were drawn as declared, those that are said to be impossible.
_FALSE_ALARMS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """The predicted outcome of a vote between two items.

    Attributes:
        win: the probability that the first wins if one of them does.
        low, high: its interval.
        tie: the probability of a tie.
        points: the strength of the first less that of the second, on the Elo scale.
        points_error: half of the interval of ``points``.
        apart: whether one of them is significantly better, as in the rank ranges.
    """

    win: float
    low: float
    high: float
    tie: float
    points: float
    points_error: float
    apart: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Board:
    """Strengths of items, estimated from one noisy release.

    Attributes:
        name: of the category; empty if there is only one leaderboard.
        items: their names.
        scores_K: strengths with mean zero, in logits.
        covariance_KK: of them, by sampling of voters and noise together.
        tie: ν of Davidson's model; 0 where there were no ties.
        votes, voters: their noisy numbers.
        sway: the most points that the net scores of one voter can move an item, to first order.
        impossible: items that won, or lost, more votes net than they can have been in if pairs came
            up as declared. Then the model of the strengths is wrong, and no difference is
            significant.
        voted_K: whether an item was in more votes than noise makes; pairs that are drawn alike are
            known to be voted on.
    """

    name: str
    items: tuple[str, ...]
    scores_K: np.ndarray
    covariance_KK: np.ndarray
    tie: float
    votes: float
    voters: float
    sway: float
    impossible: tuple[str, ...]
    voted_K: np.ndarray

    @property
    def elo_K(self) -> np.ndarray:
        """Strengths on the Elo scale: 400 points are odds of ten, and the mean is 1000."""
        return ELO_MEAN + ELO_PER_UNIT * self.scores_K

    @property
    def error_K(self) -> np.ndarray:
        """Half of the 95 % interval of each strength, in points of the Elo scale."""
        return ELO_PER_UNIT * _Z * np.sqrt(np.maximum(self.covariance_KK.diagonal(), 0.0))

    @property
    def order(self) -> np.ndarray:
        """Places of the items, from the strongest, (K,)."""
        return np.argsort(-self.scores_K, kind="stable")

    @cached_property
    def better_KK(self) -> np.ndarray:
        """True where the row's item is significantly better than the column's, at 95 %
        simultaneously for all pairs.
        """
        if self.impossible:
            return np.zeros_like(self.covariance_KK, dtype=bool)
        return told_apart(self.scores_K, self.covariance_KK, CONFIDENCE)

    @property
    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Best and worst rank of each item, (K,) each; they hold for all items at once at 95 %."""
        return rank_ranges(self.better_KK)

    def wins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The probability that the row's item wins against the column's, given that one of them
        does, and both ends of its 95 % interval, (K, K) each.
        """
        difference_KK = self.scores_K[:, None] - self.scores_K
        error_KK = _Z * difference_std(self.covariance_KK)
        low_KK, high_KK = difference_KK - error_KK, difference_KK + error_KK
        return special.expit(difference_KK), special.expit(low_KK), special.expit(high_KK)

    def between(self, first: str, second: str) -> Meeting:
        """The predicted outcome between two items.

        Raises:
            KeyError: there is no such item.
        """
        for name in (first, second):
            if name not in self.items:
                raise KeyError(name)
        i, j = self.items.index(first), self.items.index(second)
        difference = float(self.scores_K[i] - self.scores_K[j])
        error = _Z * float(difference_std(self.covariance_KK)[i, j])
        return Meeting(
            win=float(special.expit(difference)),
            low=float(special.expit(difference - error)),
            high=float(special.expit(difference + error)),
            tie=self.tie / (2 * math.cosh(difference / 2) + self.tie),
            points=ELO_PER_UNIT * difference,
            points_error=ELO_PER_UNIT * error,
            apart=bool(self.better_KK[i, j] or self.better_KK[j, i]),
        )


def _z(outside: float) -> float:
    """The two-sided normal quantile that is exceeded with this probability."""
    return -float(special.ndtri(outside / 2))


_Z = _z(1.0 - CONFIDENCE)


def fit_board(release: RankingRelease) -> Board:
    """Fit the leaderboard of a release with one; always finite, and a function of the release.

    Raises:
        ValueError: the release has several boards.
    """
    if len(release.boards) != 1:
        raise ValueError(f"of {len(release.boards)} boards, choose one by .board(place)")
    votes, ties = max(float(release.votes_B[0]), 1.0), float(release.ties_B[0])
    pairs_KK, pairs_std = denoised(release.exposure_BKK[0], votes, release.noise.pair_counts)
    ridge = _dispersion(release, votes) / PRIOR_STD**2
    ties = ties if ties > _TIES_BEYOND_NOISE * release.noise.ties else 0.0
    fitted = strengths(release.net_BK[0], pairs_KK, ridge=ridge, ties=ties)
    response_KE = response(fitted, pairs_KK, ridge)
    items = len(release.items)
    covariance_KK = covariance(fitted, release, pairs_KK, pairs_std, response_KE, ridge=ridge)
    covariance_KK *= count_doubt(votes, release.noise.votes, covariance_KK.diagonal())
    return Board(
        name=release.boards[0],
        items=release.items,
        scores_K=fitted.theta_K,
        covariance_KK=covariance_KK,
        tie=fitted.tie,
        votes=float(release.votes_B[0]),
        voters=float(release.voters_B[0]),
        sway=ELO_PER_UNIT
        * release.clip_norm
        / 2
        * float(np.linalg.norm(response_KE[:, :items], axis=1).max()),
        impossible=_impossible(release, votes),
        voted_K=_voted(release),
    )


def _impossible(release: RankingRelease, votes: float) -> tuple[str, ...]:
    """The items whose net wins exceed the votes that they were in, if all pairs were equally
    frequent; by chance and noise this happens in one of a thousand leaderboards.
    """
    if release.pairing != "public":
        return ()
    items = len(release.items)
    share = 2.0 / items  # of all votes, that an item is in
    # Votes of one voter may all be on one pair; their squares are noisy, too.
    together = max((float(release.squares_B[0]) + release.noise.squares) / votes, 1.0)
    by_chance = votes * share * (1.0 - share) * together
    by_noise = release.noise.net**2 + (share * release.noise.votes) ** 2
    most = share * votes + _z(_FALSE_ALARMS / items) * math.sqrt(by_chance + by_noise)
    net_K = np.abs(release.net_BK[0])
    return tuple(name for name, net in zip(release.items, net_K, strict=True) if net > most)


def _voted(release: RankingRelease) -> np.ndarray:
    """True for each item in more votes than noise alone makes, (K,)."""
    items = len(release.items)
    if release.pairing == "public":
        return np.ones(items, dtype=bool)
    noise = release.noise.pair_counts * math.sqrt(items - 1)
    return release.exposure_BKK[0].sum(axis=1) > _z(1.0 - CONFIDENCE) * noise


def _dispersion(release: RankingRelease, votes: float) -> float:
    """The ratio of the variance of net scores to that of independent votes at equal strengths; at
    least one. It scales the prior's weight against noisy sums.
    """
    sampled = max(float(release.variance_BK[0].sum()), 2 * votes)
    return (sampled + len(release.items) * release.noise.net**2) / (2 * votes)
