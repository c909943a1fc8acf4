import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.choices import LENGTHS
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import (
    HashingFeatures,
    feature_map,
    finite_features,
    parse_features,
)
from murmuration.preference.features.words import DEFINITION

texts = st.text("ab \n.é字\U0001f600", max_size=30)


def phi(*responses, **options):
    features = HashingFeatures(**options)
    return features([""] * len(responses), responses)


def test_shape_and_parts():
    got = phi("Save it now", "", "!?", dimension=65, length_weight=0.5)
    assert got.shape == (3, 65)
    assert got.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(got[:, :-1], axis=1), [1, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(
        got[:, -1], 0.5 * np.tanh(np.log(np.array([4, 1, 2]) / 25)), rtol=1e-6
    )
    former = phi("Save it now", "", "!?", dimension=65, length_weight=0.5, length="log")
    assert np.array_equal(former[:, :-1], got[:, :-1])
    np.testing.assert_allclose(former[:, -1], 0.5 * np.log1p([3, 0, 1]), rtol=1e-6)


def test_nothing_to_do():
    assert phi(dimension=65).shape == (0, 65)


def test_word_order_counts_only_with_bigrams():
    assert np.array_equal(*phi("spend then save", "save then spend", ngrams=1))
    assert not np.array_equal(*phi("spend then save", "save then spend", ngrams=2))
    assert np.array_equal(*phi("Spend", "spend"))


def test_the_hash_never_changes():
    """Saved models rely on every word staying in its bucket."""
    got = phi("save money", ngrams=1)[0]
    assert np.flatnonzero(got[:-1]).tolist() == [698, 903]
    np.testing.assert_allclose(got[[698, 903]], [-math.sqrt(0.5), math.sqrt(0.5)], rtol=1e-6)


@given(st.lists(texts, max_size=5), texts)
def test_a_text_has_the_same_features_in_any_company(company, text):
    assert np.array_equal(phi(*company, text, dimension=65)[-1], phi(text, dimension=65)[0])


#: On a difference of two texts' features, where length counts once: what is bounded, and ``log``.
BOUNDS = {"bounded": np.hypot(2.0, 2.0), "none": 2.0, "log": np.hypot(2.0, np.log1p(10_000))}


@pytest.mark.parametrize("length", BOUNDS)
@given(texts, texts)
def test_differences_stay_within_the_bound(length, one, other):
    one_D, other_D = phi(one * 50, other, length_weight=1.0, length=length)
    assert np.linalg.norm(one_D - other_D) <= BOUNDS[length] + 1e-6


@pytest.mark.parametrize("length", BOUNDS)
def test_the_bound_is_nearly_reached(length):
    """A bound that is far too large would pass the test above."""
    opposite = [f"word{i}" for i in range(64)]
    phi_RD = phi(*opposite, dimension=2)
    assert {-1.0, 1.0} == set(phi_RD[:, 0])
    longest = phi("w " * 10_000, "", length_weight=1.0, length=length)
    gap = np.hypot(2.0, np.linalg.norm(longest[0, -1] - longest[1, -1]))
    assert gap == pytest.approx(BOUNDS[length], rel=2e-3)


#: Words, of which some share a bucket of so few, with either sign.
repeated = st.text("ab .é字", min_size=1, max_size=30)
weights = st.lists(st.floats(-10, 10, width=32), min_size=17, max_size=17)


@pytest.mark.parametrize("length", ["bounded", "none"])
@given(repeated, st.integers(2, 400), weights)
def test_repeating_a_text_cannot_raise_its_reward_without_end(length, text, times, theta):
    """Whatever the weights: the reward is bounded, and soon hardly changes.

    Of a text k times the n-gram counts are k·a + (k − 1)·b with whole a, and b what its last word
    and its first add, so their direction moves by at most 2‖b‖ / (k − 1) from k on; ‖b‖ ≤ 1.
    """
    theta_D = np.array(theta)
    features = HashingFeatures(dimension=17, length=length)
    said = [(text + " ") * count for count in (times, 10 * times)]
    some, more = features(["", ""], said).astype(float) @ theta_D
    rest, last = float(np.linalg.norm(theta_D[:-1])), abs(float(theta_D[-1]))
    assert abs(more) <= rest + 0.3 * last + 1e-5
    many = 1 + times * len(text.split())
    saturated = 2.0 / (1.0 + (many / 25) ** 2) if length == "bounded" else 0.0
    assert abs(more - some) <= 2.0 * rest / (times - 1) + 0.3 * last * saturated + 1e-4


@pytest.mark.parametrize(
    "options",
    [
        {"dimension": 0},
        {"ngrams": 0},
        {"length_weight": -1},
        {"length_weight": np.nan},
        {"length": ""},
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError):
        HashingFeatures(**options)


def test_config_round_trip():
    features = HashingFeatures(dimension=33, ngrams=1, length_weight=0.1)
    assert feature_map(json.loads(json.dumps(features.to_config()))) == features
    assert feature_map(parse_features("hashing")) == HashingFeatures()
    for length in LENGTHS:
        assert feature_map(parse_features("hashing:9", length)) == HashingFeatures(9, length=length)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "kind None"),
        ({"kind": "bag"}, "kind 'bag'"),
        ({"kind": "hashing", "words": DEFINITION, "colour": 1}, "colour"),
        ({"kind": "hashing", "words": DEFINITION, "dimension": 0}, "dimension"),
        ({"kind": "hashing", "dimension": 9}, "count words as None"),
        ({"kind": "hashing", "words": "by-blanks"}, "count words as 'by-blanks'"),
        ({"kind": "encoder", "path": "minilm"}, "train anew"),
        ({"kind": "language-states", "path": "smollm2"}, "train anew"),
    ],
)
def test_bad_configs(config, reason):
    with pytest.raises(InputError, match=reason):
        feature_map(config)


def test_parse_features_tells_folders_from_hub_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    more = {"words": DEFINITION, "length": "bounded"}
    folder = {"kind": "encoder", "path": str(tmp_path / "encoder"), **more}
    assert parse_features("encoder") == folder
    assert parse_features("./encoder") == folder
    assert parse_features("owner/encoder", "none") == {
        "kind": "encoder",
        "path": "owner/encoder",
        "words": DEFINITION,
        "length": "none",
    }


@pytest.mark.parametrize("option", ["", " ", "./gone", "a/b/c", "no such"])
def test_parse_features_refuses_what_cannot_be(option):
    with pytest.raises(InputError, match="--features"):
        parse_features(option)


class Given:
    """A feature map that gives what it was told to."""

    dimension = 2
    uses_prompt = False

    def __init__(self, phi_RD):
        self.phi_RD = phi_RD

    def __call__(self, prompts, responses):
        return np.array(self.phi_RD)

    def to_config(self):
        return {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_features_that_are_not_finite_name_their_row(value):
    faulty = Given([[1.0, 2.0], [0.0, value], [value, value]])
    with np.errstate(over="ignore"):
        with pytest.raises(InputError, match=r"features of row 2 are NaN or infinite \(2 such"):
            finite_features(faulty, [""] * 3, ["a", "b", "c"])
        with pytest.raises(InputError, match="features of row 8 "):
            finite_features(faulty, [""] * 3, ["a", "b", "c"], rows=[5, 7, 9])


def test_features_of_a_wrong_shape():
    with pytest.raises(InputError, match="shape"):
        finite_features(Given([[1.0, 2.0, 3.0]]), [""], ["a"])
