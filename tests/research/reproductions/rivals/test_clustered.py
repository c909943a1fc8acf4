"""Intervals over users and seeds that hold as often as they say, and Holm's correction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.research.reproductions.rivals.clustered import by_user, clustered, holm


def drawn(rng, mean, users, seeds, user_sd, seed_sd):
    """Shares with effects of users, of seeds, and noise of their own; users with unequal counts."""
    judged_U = rng.geometric(0.1, users).astype(float)
    effect_SU = mean + user_sd * rng.standard_normal(users)
    effect_SU = effect_SU + seed_sd * rng.standard_normal((seeds, 1))
    return effect_SU * judged_U + 0.3 * rng.standard_normal((seeds, users)), judged_U


@pytest.mark.parametrize(("user_sd", "seed_sd"), [(0.3, 0.0), (0.05, 0.05), (0.3, 0.05)])
def test_intervals_hold_as_often_as_they_say(user_sd, seed_sd):
    """Two-sided: what leaves out users or seeds covers far less than 95 %."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(600):
        interval = clustered(*drawn(rng, 0.1, 120, 6, user_sd, seed_sd))
        held += interval.low <= 0.1 <= interval.high
    assert 0.92 < held / 600 < 0.995


def test_judgements_of_one_user_are_no_independent_draws():
    """Ten users with 1,000 equal judgements each tell of ten people."""
    right_SU = np.array([[1000.0] * 6 + [0.0] * 4])
    interval = clustered(right_SU, np.full(10, 1000.0))
    assert interval.mean == pytest.approx(0.6)
    assert interval.high - interval.low > 0.6  # of 10,000 independent ones: 0.02


def test_by_user_everybody_counts_once():
    """Nine who judged once, and one who judged a thousand times."""
    right_SU = np.array([[1.0] * 9 + [0.0, 0.0]] * 2)
    interval = by_user(right_SU, np.array([1.0] * 9 + [1000.0, 0.0]))
    assert interval.mean == pytest.approx(0.9)
    assert interval.high - interval.low == pytest.approx(2 * 2.262 * 0.1, rel=1e-3)  # t, 9 degrees


def test_seeds_that_differ_widen_an_interval():
    steady = clustered(np.array([[5.0, 6.0, 5.0, 6.0]] * 3), np.full(4, 10.0))
    moved = np.array([[5.0, 6.0, 5.0, 6.0], [2.0, 3.0, 2.0, 3.0], [8.0, 9.0, 8.0, 9.0]])
    shaken = clustered(moved, np.full(4, 10.0))
    assert shaken.mean == pytest.approx(steady.mean)
    assert shaken.high - shaken.low > 3 * (steady.high - steady.low)


def test_two_that_are_alike_do_not_differ():
    nothing = clustered(np.zeros((3, 4)), np.full(4, 10.0))
    assert (nothing.mean, nothing.low, nothing.high, nothing.p) == (0.0, 0.0, 0.0, 1.0)


def test_users_without_judgements_tell_nothing():
    right_SU, judged_U = np.array([[5.0, 7.0, 0.0]]), np.array([10.0, 10.0, 0.0])
    assert clustered(right_SU, judged_U) == clustered(right_SU[:, :2], judged_U[:2])
    with pytest.raises(ValueError, match="two users"):
        clustered(right_SU[:, 1:], judged_U[1:])


def test_p_and_interval_agree():
    rng = np.random.default_rng(5)
    for _ in range(50):
        interval = clustered(*drawn(rng, 0.05, 60, 4, 0.2, 0.02))
        assert (interval.p < 0.05) == (interval.low > 0.0 or interval.high < 0.0)


def test_holm_by_hand():
    """Holm 1979: the smallest times P, the next times P − 1, never below one before it."""
    corrected = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert corrected == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.9])) == pytest.approx([1.0, 1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_keeps_the_order_and_is_between_none_and_bonferroni(values):
    p_P = np.array(values)
    corrected_P = holm(p_P)
    assert (corrected_P >= p_P).all()
    assert (corrected_P <= np.minimum(1.0, p_P * len(p_P)) + 1e-12).all()
    order_P = np.argsort(p_P, kind="stable")
    assert (np.diff(corrected_P[order_P]) >= 0.0).all()
