"""Strengths of items from sums of votes: the model of Bradley and Terry, of Davidson with ties.

A vote between i and j is won by i with probability e^{(θi − θj)/2}/Z and tied with ν/Z, where
Z = 2 cosh((θi − θj)/2) + ν (Davidson 1970); without ties ν = 0, which is Bradley and Terry's model.
Its likelihood depends on the votes through three sums alone: each item's net score (wins minus
losses), how often each pair was voted on, and the number of ties. So noisy sums are enough, and
with a known distribution of pairs the number of votes replaces the table of pairs. Rankings come as
all their pairs, and the best of several as its pairs with the others and those pairs' counts:
both are consistent for Plackett and Luce's model, in which i comes before j as in Bradley and
Terry's (Azari Soufiani, Chen, Parkes and Xia, full and top-k breaking).

The negative log-likelihood is convex as long as no count is negative, so tables are projected first
(``denoised``). A small ridge, a normal prior of θ and log ν, keeps the strengths of what never
lost finite. Net scores can be what no votes can give: noise moved them, or pairs were voted on that
are not in the table. The likelihood then has no bound but the ridge, along which strengths would
grow in proportion to what is too much; so net scores are first taken back to what votes can give.

Legend: K items.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Points of the Elo scale for one unit of θ, a factor e in the odds: 400 points are odds of ten.
ELO_PER_UNIT = 400.0 / math.log(10.0)
ELO_MEAN = 1000.0
#: The standard deviation of the prior of strengths: 500 points.
PRIOR_STD = 500.0 / ELO_PER_UNIT
_TOLERANCE = 1e-9
_MOST_STEPS = 200
_MOST_TIES = 0.99
_MOST_LOG_TIE = 500.0
#: How often net scores are taken back; once is enough where it leaves the order of the items.
_MOST_RETREATS = 5


@dataclass(frozen=True, eq=False)
class Strengths:
    """Strengths of items under the model, and what it says of a vote.

    Attributes:
        theta_K: with mean zero, in logits.
        tie: ν, how likely ties are; 0 where votes have none.
    """

    theta_K: np.ndarray
    tie: float = 0.0

    @property
    def elo_K(self) -> np.ndarray:
        """The strengths on the Elo scale, with mean ``ELO_MEAN``."""
        return ELO_MEAN + ELO_PER_UNIT * self.theta_K

    @cached_property
    def win_KK(self) -> np.ndarray:
        """The probability that the item of the row wins against that of the column."""
        half_KK = (self.theta_K[:, None] - self.theta_K) / 2
        return np.exp(half_KK - self._log_total_KK)

    @cached_property
    def tie_KK(self) -> np.ndarray:
        """The probability of a tie."""
        return self.tie * np.exp(-self._log_total_KK)

    @property
    def margin_KK(self) -> np.ndarray:
        """The expected net score of one vote, of the item of the row."""
        return self.win_KK - self.win_KK.T

    @cached_property
    def _log_total_KK(self) -> np.ndarray:
        return _log_total(self.theta_K[:, None] - self.theta_K, self.tie)


def strengths(
    net_K: np.ndarray, pairs_KK: np.ndarray, *, ridge: float, ties: float | None = None
) -> Strengths:
    """Fit the strengths of maximum penalized likelihood to sums of votes.

    Args:
        net_K: wins minus losses of each item; impossible values are moved to the nearest possible
            along the line from the model's expectation.
        pairs_KK: the number of votes on each pair, ties included: symmetric, not negative, with a
            zero diagonal.
        ridge: positive; added to the negative log-likelihood is ridge · (‖θ‖² + log² ν)/2.
        ties: the number of ties; None if votes have none.

    Raises:
        ValueError: the table is not one of counts, or the ridge is not positive.
    """
    if not ridge > 0:
        raise ValueError(f"the ridge must be positive, got {ridge}")
    if pairs_KK.shape != (len(net_K), len(net_K)) or not np.array_equal(pairs_KK, pairs_KK.T):
        raise ValueError("the table of pairs needs a row and a column for each item, symmetric")
    if not np.isfinite(pairs_KK).all() or pairs_KK.min() < 0 or pairs_KK.diagonal().any():
        raise ValueError("the table of pairs must be finite, not negative, with an empty diagonal")
    exposure_K = pairs_KK.sum(axis=1)
    net_K = net_K - net_K.mean()  # what is common to all moves no difference between them
    for _ in range(_MOST_RETREATS):
        undecided = (exposure_K - np.minimum(np.abs(net_K), exposure_K)).sum() / 2
        tied = None if ties is None else min(ties, _MOST_TIES * undecided)
        fitted = _newton(net_K, pairs_KK, tied if tied is not None and tied > 0 else None, ridge)
        fitted_K = (pairs_KK * fitted.margin_KK).sum(axis=1)
        share = _possible_share(net_K, fitted_K, fitted.theta_K, pairs_KK)
        if share == 1.0:
            break
        net_K = fitted_K + share * (net_K - fitted_K)
    return fitted


def _possible_share(
    net_K: np.ndarray, fitted_K: np.ndarray, theta_K: np.ndarray, pairs_KK: np.ndarray
) -> float:
    """The largest share of the way from the expected net scores to the given ones that votes can
    produce: 1 if they can be reached.

    A set of items can win no more from the others than there are votes between them. This is
    checked for the strongest one, two, … items by ``theta_K``, where the excess is largest.
    """
    order = np.argsort(-theta_K, kind="stable")
    among_K = pairs_KK[np.ix_(order, order)].cumsum(axis=0).cumsum(axis=1).diagonal()
    most_K = pairs_KK.sum(axis=1)[order].cumsum() - among_K
    wanted_K, reached_K = net_K[order].cumsum(), fitted_K[order].cumsum()
    beyond_K = wanted_K > most_K + _TOLERANCE * pairs_KK.sum()
    beyond_K[-1] = False  # all items together win nothing
    room_K = np.maximum(most_K - reached_K, 0.0)[beyond_K]
    return float((room_K / (wanted_K - reached_K)[beyond_K]).min(initial=1.0))


def denoised(pairs_KK: np.ndarray, votes: float, std: float) -> tuple[np.ndarray, float]:
    """Estimate a table of counts from a noisy one, with no negative count and ``votes`` in all; and
    the standard deviation of the remaining error of a count.

    Counts are shrunk towards their mean, more strongly the smaller their spread is compared with
    the noise (James and Stein's estimator, positive part), then projected: all are lowered by the
    same number and those below zero set to it, which is the nearest such table by least squares.
    Setting only the negative ones to zero would add to the total, and so shrink all strengths.

    Args:
        pairs_KK: symmetric.
        votes: the total number; less than one counts as one.
        std: of the noise in each count.
    """
    rows_P, columns_P = np.triu_indices(len(pairs_KK), 1)
    votes = max(votes, 1.0)
    off_P = pairs_KK[rows_P, columns_P] - pairs_KK[rows_P, columns_P].mean()
    by_noise = max(len(off_P) - 3, 0) * std**2
    shrinkage = max(0.0, 1 - by_noise / max(off_P @ off_P, 1e-300))
    shrunk_P = votes / len(off_P) + off_P * shrinkage
    falling_P = np.sort(shrunk_P)[::-1]
    excess_P = (np.cumsum(falling_P) - votes) / np.arange(1, len(falling_P) + 1)
    lowered_by = excess_P[np.flatnonzero(falling_P > excess_P)[-1]]
    result_KK = np.zeros_like(pairs_KK)
    result_KK[rows_P, columns_P] = np.maximum(shrunk_P - lowered_by, 0.0)
    return result_KK + result_KK.T, std * math.sqrt(shrinkage)


def laplacian(weights_KK: np.ndarray) -> np.ndarray:
    """Σ over pairs of weight · (ei − ej)(ei − ej)ᵀ."""
    return np.diag(weights_KK.sum(axis=1)) - weights_KK


def curvature(fitted: Strengths, pairs_KK: np.ndarray) -> np.ndarray:
    """The Fisher information of (θ, log ν), (K + 1, K + 1); of θ alone without ties, (K, K)."""
    win_KK, tie_KK, margin_KK = fitted.win_KK, fitted.tie_KK, fitted.margin_KK
    info_KK = laplacian(pairs_KK * (win_KK + win_KK.T - margin_KK**2) / 4)
    if not fitted.tie:
        return info_KK
    cross_K = -(pairs_KK * margin_KK * tie_KK).sum(axis=1) / 2
    own = (pairs_KK * tie_KK * (1 - tie_KK)).sum() / 2
    return np.block([[info_KK, cross_K[:, None]], [cross_K[None, :], np.full((1, 1), own)]])


def _newton(net_K: np.ndarray, pairs_KK: np.ndarray, ties: float | None, ridge: float) -> Strengths:
    items = len(net_K)

    def at(point: np.ndarray) -> Strengths:
        return Strengths(point[:items], 0.0 if ties is None else math.exp(point[items]))

    def moved(length: float) -> np.ndarray:
        """The point after a step, with log ν within its bounds."""
        result = point + length * step
        result[items:] = np.clip(result[items:], -_MOST_LOG_TIE, _MOST_LOG_TIE)
        return result

    def value(point: np.ndarray) -> float:
        fitted = at(point)
        theta_K = fitted.theta_K
        logs_KK = _log_total(theta_K[:, None] - theta_K, fitted.tie)
        linear = net_K @ theta_K / 2 + (0.0 if ties is None else ties * point[items])
        return float((pairs_KK * logs_KK).sum() / 2 - linear + ridge * (point @ point) / 2)

    point = np.zeros(items if ties is None else items + 1)
    current = value(point)
    for _ in range(_MOST_STEPS):
        fitted = at(point)
        slope = np.zeros(len(point))
        slope[:items] = (pairs_KK * fitted.margin_KK).sum(axis=1) / 2 - net_K / 2
        if ties is not None:
            slope[items] = (pairs_KK * fitted.tie_KK).sum() / 2 - ties
        slope += ridge * point
        free = len(point)
        if ties is not None and point[items] >= _MOST_LOG_TIE and slope[items] < 0:
            free = items  # at its bound, which it would leave
        information = curvature(fitted, pairs_KK) + ridge * np.eye(len(point))
        step = np.zeros(len(point))
        step[:free] = -np.linalg.solve(information[:free, :free], slope[:free])
        falls, length = float(slope @ step), 1.0
        while value(moved(length)) > current + 1e-4 * length * falls and length > 1e-12:
            length /= 2
        point = moved(length)
        current = value(point)
        if np.abs(step).max() < _TOLERANCE * (1 + np.abs(point).max()):
            break
    fitted = at(point)
    return Strengths(fitted.theta_K - fitted.theta_K.mean(), fitted.tie)


def _log_total(difference_KK: np.ndarray, tie: float) -> np.ndarray:
    """log(2 cosh(d/2) + ν)."""
    total_KK = np.logaddexp(difference_KK / 2, -difference_KK / 2)
    return np.logaddexp(total_KK, math.log(tie)) if tie else total_KK
