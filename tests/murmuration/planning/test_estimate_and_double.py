"""Estimate-and-Double and its rivals, on lengths and multipliers that are known functions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.planning import estimate_and_double
from murmuration.planning.estimate_and_double import Point, Space

START = Point(1, 32)


def diverse(group_size):
    """Orthogonal gradients."""
    return group_size**-0.5


def alike(group_size):
    """All gradients of a user are one."""
    return 1.0


def amplified(cohort, users=4096):
    """A multiplier with a floor that no sampling takes away, roughly like an accountant's."""
    return 0.6 + 30.0 * cohort / users


def recommended(space, length, multiplier=amplified):
    steps = estimate_and_double.estimate_and_double(space, length, multiplier)
    return steps[-1].to if steps else space.start


def test_alike_judgements_leave_only_the_cohort():
    space = Space(START, 4096, 4096)
    assert recommended(space, alike) == Point(1, 4096)


def test_the_noise_of_the_paper():
    assert estimate_and_double.noise(Point(4, 64), diverse, lambda cohort: 3.0) == 0.5 * 3.0 / 64


def test_ratios_are_those_of_the_noise():
    step = estimate_and_double.estimate_and_double(Space(START, 64, 4096), diverse, amplified)[0]
    assert step.group_ratio == pytest.approx(0.5**0.5)
    assert step.cohort_ratio == pytest.approx(amplified(64) / amplified(32) / 2)
    assert step.to == (Point(2, 32) if step.group_ratio < step.cohort_ratio else Point(1, 64))


def test_cohorts_are_doubled_while_sampling_is_cheap_and_groups_after():
    path = [
        s.to
        for s in estimate_and_double.estimate_and_double(
            Space(START, 2**14, 4096), diverse, amplified
        )
    ]
    cohorts = [point.cohort for point in path]
    assert cohorts[0] == 64
    assert path[-1].group_size > 1
    first_group = next(i for i, p in enumerate(path) if p.group_size > 1)
    assert first_group > 0


def test_the_printed_ratio_would_never_double_the_cohort():
    """Without the division by M of eq. 6, τ_M is at least 1."""
    assert all(amplified(2 * m) / amplified(m) > 1.0 for m in (32, 64, 1024))
    path = estimate_and_double.estimate_and_double(Space(START, 4096, 4096), diverse, amplified)
    assert any(step.to.cohort > step.at.cohort for step in path)


def test_it_stops_where_nothing_helps():
    """Everybody is in the cohort, and longer groups change nothing."""
    space = Space(Point(1, 32), 10**6, 100)
    point = recommended(space, lambda g: max(0.5, g**-0.5))
    assert point == Point(4, 64)


def test_a_start_that_uses_the_budget_is_kept():
    assert estimate_and_double.estimate_and_double(Space(START, 63, 100), diverse, amplified) == []


@given(
    compute=st.integers(32, 10**6),
    users=st.integers(32, 10**5),
    power=st.floats(0.0, 0.5),
    floor=st.floats(0.01, 10.0),
)
def test_within_the_budget_and_never_better_than_the_best_of_the_frontier(
    compute, users, power, floor
):
    space = Space(START, compute, users)

    def length(group_size):
        return group_size**-power

    def multiplier(cohort):
        return floor + cohort / users

    steps = estimate_and_double.estimate_and_double(space, length, multiplier)
    point = steps[-1].to if steps else START
    assert point.compute <= compute
    assert point.cohort <= users
    for step in steps:
        assert step.to.compute == 2 * step.at.compute
    least = estimate_and_double.rivals(space, length, multiplier)["least noise"]
    best = min(estimate_and_double.noise(p, length, multiplier) for p in space.frontier())
    assert estimate_and_double.noise(least, length, multiplier) == best
    assert estimate_and_double.noise(point, length, multiplier) >= best * (1 - 1e-12)


def test_the_frontier():
    points = Space(START, 256, 100).frontier()
    assert points == [Point(8, 32), Point(4, 64)]
    assert Space(START, 300, 4096).frontier() == [
        Point(8, 32),
        Point(4, 64),
        Point(2, 128),
        Point(1, 256),
    ]


def test_rivals():
    found = estimate_and_double.rivals(Space(START, 256, 4096), diverse, amplified)
    assert found["max cohort"] == Point(1, 256)
    assert found["max group size"] == Point(8, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((START, 31, 100), "--compute 31 is less than the smallest start"),
        ((START, 64, 31), "cohort of 32 is more than the 31 users"),
        ((Point(0, 32), 64, 100), "at least 1"),
    ],
)
def test_impossible_spaces(arguments, message):
    with pytest.raises(ValueError, match=message):
        Space(*arguments)


def test_what_cannot_be_chosen_has_no_ratio():
    (step,) = estimate_and_double.estimate_and_double(Space(START, 64, 32), diverse, amplified)
    assert math.isinf(step.cohort_ratio)
    assert step.to == Point(2, 32)
