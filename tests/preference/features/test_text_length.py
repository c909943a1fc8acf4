import math

import numpy as np
import pytest

from murmuration.preference.choices import LENGTHS
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.text_length import check_length, length_feature


def words(*counts):
    return ["w " * count for count in counts]


def test_bounded_is_a_hyperbolic_tangent_of_log_words():
    counts = [0, 1, 5, 24, 49, 100, 9_999]
    got = length_feature(words(*counts), "bounded", 0.5)
    expected = [0.5 * math.tanh(math.log((1 + count) / 25)) for count in counts]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert got.dtype == np.float32
    assert got[3] == 0.0  # centred


def test_bounded_grows_with_words_and_soon_hardly_at_all():
    got = length_feature(words(0, 3, 10, 30, 100, 200, 5_000, 50_000), "bounded", 1.0)
    assert (np.diff(got[:-1]) > 0).all()
    assert np.abs(got).max() <= 1.0
    assert got[-1] - got[5] < 0.04
    assert got[-1] - got[4] < 0.12
    assert got[-2] == pytest.approx(got[-1], abs=1e-4)


def test_none_is_nothing():
    assert not length_feature(words(0, 3, 500), "none", 0.3).any()


def test_log_is_what_earlier_versions_had():
    got = length_feature(["", " \n", "one", "one  two\nthree"], "log", 1.0)
    np.testing.assert_allclose(got, [0, 0, math.log(2), math.log(4)], rtol=1e-6)
    longest = length_feature(words(10_000, 50_000), "log", 1.0)
    assert longest[0] == longest[1] == pytest.approx(math.log1p(10_000))


def test_letters_of_scripts_without_blanks_are_words():
    texts = ["先存起来" * 6, "先存起来，" * 6, "字" * 50_000]
    expected = length_feature(words(24, 24, 50_000), "bounded", 1.0)
    np.testing.assert_array_equal(length_feature(texts, "bounded", 1.0), expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_no_text(length):
    assert length_feature([], length, 1.0).shape == (0,)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_bad_weights(weight):
    with pytest.raises(InputError, match="length_weight"):
        check_length("bounded", weight)


def test_a_length_that_is_not_known():
    with pytest.raises(InputError, match="--length must be one of bounded, none, log; got 'long'"):
        check_length("long", 0.3)
