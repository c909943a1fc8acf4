"""Statistical power beforehand: the number of voters needed to detect a difference between two
items.

Of items that are nearly equal, all pairs voted on alike, the covariance of ``intervals`` is a
closed form: with n voters of m votes each, and noise of standard deviation s in each net score,

var(θi − θj) = 4c(K − 1)/(n m) + 2((K − 1) s/(n m))²,

where c, the design effect, is the ratio of a net score's variance to that with independent votes. A
difference is found with the power if it is as large as the sum of both quantiles times the standard
deviation.
"""

import math

from scipy import special

from murmuration.ranking.bradley_terry import ELO_PER_UNIT

#: How many times as large as with independent votes the variance of a net score is where voters'
#: tastes differ by 170 points and each gives some eight votes.
USUAL_DESIGN_EFFECT = 1.3
#: Standard deviations that a difference must be long: in 80 % of polls the two-sided interval of
#: 95 % is not to hold zero.
_QUANTILES = float(special.ndtri(0.8) - special.ndtri(0.025))
#: Differences that a plan says how many voters are needed for.
_POINTS = (10, 20, 50)


def detectable_points(
    voters: float,
    *,
    items: int,
    votes_each: float,
    net_std: float,
    design_effect: float = 1.0,
) -> float:
    """The smallest difference between two items, in points, that ``voters`` voters can detect.

    Args:
        voters: their number.
        items: the number of items, K.
        votes_each: the mean number of a voter's votes that count.
        net_std: of the noise in each net score, as the plan has it; 0 for none.
        design_effect: the ratio of a net score's variance to that with independent votes: 1 if all
            voters have the same taste, more if they differ and vote often.
    """
    per_vote = (items - 1) / (voters * votes_each)
    variance = 4 * design_effect * per_vote + 2 * (per_vote * net_std) ** 2
    return ELO_PER_UNIT * _QUANTILES * math.sqrt(variance)


def voters_needed(
    points: float,
    *,
    items: int,
    votes_each: float,
    net_std: float,
    design_effect: float = 1.0,
) -> int:
    """The number of voters needed to detect a difference of ``points`` between two items.

    It is the inverse of ``detectable_points``, and has the same arguments.

    Raises:
        ValueError: the difference is not positive.
    """
    if not points > 0:
        raise ValueError(f"the difference must be positive, got {points}")
    target = (points / ELO_PER_UNIT / _QUANTILES) ** 2
    linear, square = 4 * design_effect * (items - 1), 2 * ((items - 1) * net_std) ** 2
    votes = (linear + math.sqrt(linear**2 + 4 * square * target)) / (2 * target)
    return math.ceil(votes / votes_each)


def planned_power(
    voters: int, *, items: int, votes_each: float, net_std: float
) -> dict[str, float]:
    """The numbers of voters that detect differences of 10, 20 and 50 points, and the difference
    that ``voters`` detect, by name, with the usual design effect.

    Args:
        voters, items, votes_each, net_std: as of ``detectable_points``.
    """
    board = {
        "items": items,
        "votes_each": votes_each,
        "net_std": net_std,
        "design_effect": USUAL_DESIGN_EFFECT,
    }
    needed = {f"voters_for_{points}_points": voters_needed(points, **board) for points in _POINTS}
    return {**needed, "points_told_apart": detectable_points(voters, **board)}
