import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.user_histogram import ACCURACIES, UserHistogram

WEIGHT = 2**20
ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(ANY | st.floats(-1.0, 1.0), ANY | st.floats(-1.0, 1.0))
def test_a_user_is_one_count_whatever_their_value(value, other):
    mine_B = ACCURACIES.contribution(value, WEIGHT)
    assert mine_B.sum() == (WEIGHT if 0.0 <= value <= 1.0 else 0)
    assert (mine_B >= 0.0).all() and (mine_B % 1.0 == 0.0).all()
    assert np.count_nonzero(mine_B) <= 2
    assert np.abs(mine_B - ACCURACIES.contribution(other, WEIGHT)).sum() <= 2 * WEIGHT


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_the_mean_over_users_stays(values):
    mean, sum_B = np.mean(values), sum(ACCURACIES.contribution(value, WEIGHT) for value in values)
    assert ACCURACIES.mean(sum_B) == pytest.approx(mean, abs=2 / WEIGHT)
    spread = ACCURACIES.spread(np.array(values))
    assert np.dot(spread.knots, spread.shares) == pytest.approx(mean, abs=1e-5)
    assert np.mean(spread.deciles) == pytest.approx(mean, abs=1e-5)


def test_values_on_knots_are_counted_as_they_are():
    spread = ACCURACIES.spread(np.array([0.1] + 3 * [0.6] + 6 * [1.0]))
    assert spread.shares == pytest.approx([0, 0.1, 0, 0, 0, 0, 0.3, 0, 0, 0, 0.6], abs=1e-6)
    assert spread.deciles == pytest.approx([0.1] + 3 * [0.6] + 6 * [1.0], abs=1e-5)
    assert spread.errors == (0.0,) * 10


def test_a_majority_does_not_hide_a_minority():
    spread = ACCURACIES.spread(np.array(90 * [0.8] + 10 * [0.2]))
    assert spread.deciles[0] == pytest.approx(0.2, abs=1e-6)
    assert spread.deciles[1] == pytest.approx(0.8, abs=1e-6)


@given(st.lists(st.floats(-50.0, 200.0), min_size=11, max_size=11).filter(lambda c: sum(c) > 1.0))
def test_shares_are_the_nearest_that_are_none_negative(counts):
    sum_B = np.array(counts)
    share_B = ACCURACIES.shares(sum_B)
    assert (share_B >= 0.0).all()
    assert share_B.sum() == pytest.approx(1.0, abs=1e-6)
    # Nearest: what is left is one number where there is a share, and no more elsewhere.
    left_B = sum_B / sum_B.sum() - share_B
    taken = left_B[share_B > 0.0]
    assert taken.max() - taken.min() < 1e-6 * max(1.0, np.abs(taken).max())
    assert (left_B <= taken.max() + 1e-6 * max(1.0, np.abs(left_B).max())).all()


def noisy(values_U, std, seeds):
    exact_B = sum(ACCURACIES.contribution(value, WEIGHT) for value in values_U)
    noise = np.random.default_rng(4).laplace(scale=std * WEIGHT / math.sqrt(2), size=(seeds, 11))
    return exact_B + noise


def test_noise_of_the_mean_is_as_stated():
    values_U = 200 * [0.9] + 100 * [0.4]
    sums = noisy(values_U, 2.0, 2000)
    means = [ACCURACIES.mean(sum_B) for sum_B in sums]
    expected = np.mean(values_U)
    stated = ACCURACIES.mean_noise(expected, 300 * WEIGHT, 2.0 * WEIGHT)
    assert np.std(means) == pytest.approx(stated, rel=0.1)  # neither less nor more
    assert np.mean(means) == pytest.approx(expected, abs=4 * stated / math.sqrt(2000))


def test_noise_of_deciles_is_as_stated():
    values_U = 200 * [0.9] + 70 * [0.6] + 30 * [0.2]
    read = [ACCURACIES.read(sum_B, 1.5 * WEIGHT) for sum_B in noisy(values_U, 1.5, 300)]
    exact_T = np.array(ACCURACIES.spread(np.array(values_U)).deciles)
    off_ST = np.array([spread.deciles for spread in read]) - exact_T
    really_T = np.sqrt((off_ST**2).mean(axis=0))
    stated_T = np.mean([spread.errors for spread in read], axis=0)
    assert (np.abs(np.log2((stated_T + 0.004) / (really_T + 0.004))) < 1.0).all()


@pytest.mark.parametrize("knots", [(0.0,), (0.0, 0.0), (1.0, 0.0), (0.0, math.nan)])
def test_knots_must_rise(knots):
    with pytest.raises(ValueError, match="knots"):
        UserHistogram(knots)
