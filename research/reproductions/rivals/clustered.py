"""Accuracies of several seeds on the same test users: intervals, and Holm's correction.

Users judge in their own ways and seeds train in theirs, so judgements are no independent draws. The
variance of an accuracy is the sum of two: over users, of each one's mean over seeds (a ratio, by
linearisation), and over seeds, of each one's accuracy. What is noise in both is so counted twice,
which errs on the side of wide intervals. Degrees of freedom are Satterthwaite's. Who was trained on
is fixed: nothing is said of other people to train on.

Legend: S seeds, U test users, P comparisons.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Interval:
    """A mean, its 95 % interval, and the two-sided p-value of its being zero."""

    mean: float
    low: float
    high: float
    p: float

    def columns(self, name: str, stem: str | None = None) -> dict[str, float]:
        """Columns with the mean, and the ends by names that begin with ``stem``; None: NAME_."""
        stem = f"{name}_" if stem is None else stem
        return {name: self.mean, f"{stem}low": self.low, f"{stem}high": self.high}


def clustered(right_SU: np.ndarray, judged_U: np.ndarray) -> Interval:
    """The interval of Σ right / Σ judged, clustered by user, as a mean over seeds.

    Args:
        right_SU: the number of correct judgements, for each seed; or a difference of two such.
        judged_U: the number of judgements.

    Raises:
        ValueError: fewer than two users with judgements.
    """
    right_SU, judged_U = right_SU[:, judged_U > 0], judged_U[judged_U > 0]
    seeds, users = right_SU.shape
    if users < 2:
        raise ValueError("an interval needs two users with judgements")
    total = judged_U.sum()
    share_S = right_SU.sum(1) / total
    mean = float(share_S.mean())
    off_U = (right_SU.mean(0) - mean * judged_U) / total
    parts = [(float((off_U**2).sum()) * users / (users - 1), users - 1)]
    if seeds > 1:
        parts.append((float(share_S.var(ddof=1)) / seeds, seeds - 1))
    variance = sum(part for part, _ in parts)
    if variance == 0.0:
        return Interval(mean, mean, mean, float(mean == 0.0))
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    deviation = variance**0.5
    half = float(stats.t.ppf(0.975, freedom)) * deviation
    p = 2.0 * float(stats.t.sf(abs(mean) / deviation, freedom))
    return Interval(mean, mean - half, mean + half, p)


def by_user(right_SU: np.ndarray, judged_U: np.ndarray) -> Interval:
    """The interval of the mean over users of right / judged, as a mean over seeds.

    Arguments and errors are as of ``clustered``. Each user counts once, however many judgements
    are theirs.
    """
    right_SU, judged_U = right_SU[:, judged_U > 0], judged_U[judged_U > 0]
    return clustered(right_SU / judged_U, np.ones_like(judged_U))


def holm(p_P: np.ndarray) -> np.ndarray:
    """The p-values corrected for their number, (P,), by Holm's step-down rule (1979).

    Those below α are wrong about any true null hypothesis with probability at most α.
    """
    order_P = np.argsort(p_P, kind="stable")
    steps_P = np.maximum.accumulate(p_P[order_P] * np.arange(len(p_P), 0, -1))
    corrected_P = np.empty(len(p_P))
    corrected_P[order_P] = np.minimum(steps_P, 1.0)
    return corrected_P
