"""The median number of judgements a user has, released with pure differential privacy.

A public grid of sizes divides users into buckets. The exponential mechanism picks one: the score of
a bucket is minus the larger of the numbers of users below and above it, so the bucket with the
median scores best. A user who comes or goes moves each score by at most one, and all in the same
direction, so exp(epsilon · score) is epsilon-DP under add-remove and zero-out; a user who is
replaced may move scores both ways, so there it is exp(epsilon · score / 2) (McSherry & Talwar
2007). Under replace-labels the numbers of judgements are public, the median is exact and free.

Legend: U users, J buckets.
"""

import numpy as np

from murmuration.privacy.accounting.events import PureChoice
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness

#: Largest number of judgements in each bucket; users with more are in the last one.
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def histogram(counts_U: np.ndarray) -> np.ndarray:
    """The number of users in each bucket of ``GRID``, (J,) float64; each user is in exactly one."""
    buckets_U = np.searchsorted(GRID[:-1], counts_U)
    return np.bincount(buckets_U, minlength=len(GRID)).astype(np.float64)


def probabilities(users_J: np.ndarray, epsilon: float, adjacency: Adjacency) -> np.ndarray:
    """The exponential mechanism's distribution over ``GRID``, (J,)."""
    below_J = np.cumsum(users_J) - users_J
    above_J = users_J.sum() - users_J - below_J
    score_J = -np.maximum(below_J, above_J)
    weight_J = np.exp(epsilon / adjacency.vectors_changed * (score_J - score_J.max()))
    return weight_J / weight_J.sum()


def release_median(
    users_J: np.ndarray,
    epsilon: float,
    *,
    adjacency: Adjacency,
    ledger: Ledger,
    source: Randomness,
) -> int:
    """A grid size near the median of the counts in ``histogram``; charged to the ledger first.

    Formal guarantee: ``PureChoice(epsilon)`` under ``adjacency``; under replace-labels exact, at no
    cost, since there the counts are public.

    Raises:
        BudgetExceeded: the ledger refuses; nothing is released.
    """
    if adjacency.counts_are_public:
        below_J = np.cumsum(users_J)
        return GRID[int(np.searchsorted(below_J, users_J.sum() / 2))]
    covers = "median of users' numbers of judgements"
    event = PureChoice(epsilon)
    charge = ledger.charge(event, round_=0, covers=covers, seeded=source.seeded)
    coins = source.stream(covers, charge.attempt)
    return GRID[int(coins.choice(len(GRID), p=probabilities(users_J, epsilon, adjacency)))]
