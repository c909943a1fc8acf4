"""A public score as a feature: bounded, in order, of each text alone."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures, feature_map
from murmuration.preference.features.scorer import (
    WEIGHT,
    LanguageScorer,
    LinearScorer,
    Scored,
    squeezed,
)

PLAIN, OTHER = HashingFeatures(17), HashingFeatures(33)
THETA_D = np.random.default_rng(0).normal(size=33).astype(np.float32)
TEXTS = ["save it", "spend it all, all of it", "", "wait and compare prices first"]


def scored():
    return Scored(LinearScorer(THETA_D, OTHER), PLAIN)


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=9))
def test_squeezed_scores_are_bounded_and_keep_their_order(scores):
    got_R = squeezed(np.array(sorted(scores)))
    assert (np.abs(got_R) <= 1.0).all() and (np.diff(got_R) >= 0).all()


def test_small_scores_count_for_themselves_and_nan_stays():
    np.testing.assert_allclose(WEIGHT * squeezed(np.array([0.1, -0.2])), [0.1, -0.2], rtol=2e-3)
    assert np.isnan(squeezed(np.array([np.nan]))[0])


def test_the_score_stands_in_front_and_the_others_are_as_they_were():
    phi_RD = scored()([""] * 4, TEXTS)
    assert np.array_equal(phi_RD[:, 1:], PLAIN([""] * 4, TEXTS))
    by_hand_R = OTHER([""] * 4, TEXTS).astype(np.float64) @ THETA_D
    np.testing.assert_allclose(WEIGHT * phi_RD[:, 0], 4 * np.arcsinh(by_hand_R / 4), rtol=1e-5)


def test_no_text_moves_another_by_a_bit():
    together_RD = scored()([""] * 4, TEXTS)
    assert np.array_equal(together_RD, np.vstack([scored()([""], [text]) for text in TEXTS]))


def test_a_config_makes_the_same_map_without_a_folder():
    again = feature_map(scored().to_config())
    assert again.to_config() == scored().to_config() and again.dimension == 18
    assert np.array_equal(again([""] * 4, TEXTS), scored()([""] * 4, TEXTS))


def theta(numbers):
    return base64.b64encode(np.asarray(numbers, dtype="<f4").tobytes()).decode()


@pytest.mark.parametrize(
    "scorer",
    [
        {"features": OTHER.to_config(), "theta": theta(np.full(33, np.nan))},
        {"features": OTHER.to_config(), "theta": theta(np.ones(32))},
        {"features": OTHER.to_config(), "theta": [1.0] * 33},
        {"features": OTHER.to_config()},
        {"features": scored().to_config(), "theta": theta(np.ones(18))},
        {"features": "hashing", "theta": theta(np.ones(33))},
        {"path": "nowhere/at/all"},
        {"path": "x", "code": "import os"},
        {},
        "length",
        None,
    ],
)
def test_another_scorer_in_a_request_is_refused_in_one_line(scorer):
    with pytest.raises(InputError) as refused:
        feature_map({**PLAIN.to_config(), "scorer": scorer})
    assert "\n" not in str(refused.value)


def test_a_sequence_classifier_scores_each_text_alone(language_model):
    base = language_model("bert")
    scorer = LanguageScorer(base)
    assert not scorer.has_head  # one that was never trained
    prompts = ["what now ?"] * 3
    responses = ["save it .", "take loan , spend all of it", "wait"]
    alone = [scorer.score(prompts[:1], [each])[0] for each in responses]
    assert np.array_equal(scorer.score(prompts, responses), np.array(alone))
