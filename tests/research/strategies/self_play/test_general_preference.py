"""A preference without rewards: its symmetry, circles, and labels behind coins."""

import itertools

import numpy as np
import pytest

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.research.strategies.self_play.general_preference import GeneralPreference

ROCK, PAPER, SCISSORS = "a heavy rock", "some thin paper", "sharp steel scissors"
CIRCLE = ((ROCK, SCISSORS), (SCISSORS, PAPER), (PAPER, ROCK))


def fitted(pairs, contrast=1.0, repeat=40, **settings):
    shown = list(pairs) * repeat
    contrast_N = np.full(len(shown), contrast)
    return GeneralPreference.fit(shown, contrast_N, **settings)


def test_it_changes_its_sign_with_the_places():
    preference = fitted(CIRCLE)
    both = list(itertools.product((ROCK, PAPER, SCISSORS, "else"), repeat=2))
    first, second = zip(*both, strict=True)
    np.testing.assert_allclose(preference(first, second), -preference(second, first), atol=1e-12)
    assert (preference(first, first) == 0).all()
    assert np.abs(preference(first, second)).max() <= 1.0


def test_circles_are_learnt_where_a_reward_sees_nothing():
    preference = fitted(CIRCLE)
    better, worse = zip(*CIRCLE, strict=True)
    assert (preference(better, worse) > 0.7).all()
    size = HashingFeatures().dimension
    reward = GeneralPreference(
        preference.features, np.where(np.arange(len(preference.weights_F)) < size,
                                      preference.weights_F, 0.0)
    )  # fmt: skip
    assert np.abs(reward(better, worse)).max() < 0.3


def test_an_order_is_learnt_too():
    better, worse = ("put it aside", "save some"), ("spend it", "buy it now")
    preference = fitted(list(itertools.product(better, worse)))
    assert (preference(better, worse) > 0.5).all()


@pytest.mark.parametrize("flip", [0.1, 0.45])
def test_coins_cancel_on_average(flip):
    """Before it is cut to [−1, 1] the estimate is linear in what is stated."""
    contrast, pair = 1.0 - 2.0 * flip, (ROCK, PAPER)
    true, flipped = fitted([pair], contrast), fitted([pair[::-1]], contrast)
    mean_F = (1.0 - flip) * true.weights_F + flip * flipped.weights_F
    value = GeneralPreference(true.features, mean_F)([ROCK], [PAPER])[0]
    worth = 40 * contrast**2  # true labels; the ridge counts as one that says nothing
    assert value == pytest.approx(worth / (worth + 1.0))


def test_labels_that_say_nothing_leave_it_near_zero():
    generator = np.random.default_rng(0)
    pairs = [CIRCLE[k][:: 1 if generator.random() < 0.502 else -1] for k in (0, 1, 2) * 50]
    preference = fitted(pairs, contrast=0.005, repeat=1)
    better, worse = zip(*CIRCLE, strict=True)
    assert np.abs(preference(better, worse)).max() < 0.3
