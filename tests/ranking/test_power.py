"""How many voters tell two items apart: against the covariance of boards, and against trials."""

import numpy as np
import pytest
from made_up_votes import made_up_release

from murmuration.ranking.board import fit_board
from murmuration.ranking.bradley_terry import ELO_PER_UNIT
from murmuration.ranking.intervals import difference_std
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.power import detectable_points, planned_power, voters_needed
from murmuration.ranking.release import RankingRelease


def even_release(voters: int, items: int, net_std: float) -> RankingRelease:
    """Return a release of items that are all alike, of voters with 5 votes each and one taste."""
    votes = 5.0 * voters
    return made_up_release(
        VoteLayout(items=items, cap=5),
        net_std,
        variance_BK=np.full((1, items), 2 * votes / items),
        votes_B=np.array([votes]),
        squares_B=np.array([5 * votes]),
        voters_B=np.array([float(voters)]),
    )


@pytest.mark.parametrize("net_std", [0.0, 40.0])
@pytest.mark.parametrize("items", [4, 12])
def test_it_is_the_boards_own_covariance(items: int, net_std: float) -> None:
    board = fit_board(even_release(4000, items, net_std))
    std = float(difference_std(board.covariance_KK)[0, 1]) * ELO_PER_UNIT
    least = detectable_points(4000, items=items, votes_each=5, net_std=net_std)
    assert least == pytest.approx((1.959964 + 0.841621) * std, rel=0.01)


@pytest.mark.parametrize("points", [10.0, 20.0, 50.0])
@pytest.mark.parametrize("net_std", [0.0, 30.0])
def test_voters_needed_is_the_inverse(points: float, net_std: float) -> None:
    plan = {"items": 20, "votes_each": 8.0, "net_std": net_std, "design_effect": 1.4}
    voters = voters_needed(points, **plan)
    assert detectable_points(voters, **plan) <= points < detectable_points(0.99 * voters, **plan)


def test_noise_and_tastes_ask_for_more_voters() -> None:
    plan = {"items": 20, "votes_each": 8.0}
    plain = voters_needed(20, net_std=0.0, **plan)
    assert plain < voters_needed(20, net_std=30.0, **plan)
    assert 1.9 < voters_needed(20, net_std=0.0, design_effect=2.0, **plan) / plain < 2.1


@pytest.mark.parametrize("points", [0.0, -1.0, float("nan")])
def test_a_difference_that_is_none_is_refused(points: float) -> None:
    with pytest.raises(ValueError):
        voters_needed(points, items=3, votes_each=1, net_std=0)


def test_a_plan_says_what_the_page_says() -> None:
    """The table of docs/how-to/ranking.md: without privacy, 20 items, 7 votes of each."""
    power = planned_power(8358, items=20, votes_each=7, net_std=0.0)
    needed = [power[f"voters_for_{points}_points"] for points in (10, 20, 50)]
    assert needed == [33_432, 8_358, 1_338]
    assert power["points_told_apart"] == pytest.approx(20, abs=0.01)
