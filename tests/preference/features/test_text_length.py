import math

import numpy as np
import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.preference.features.text_length import check_length_weight, log_words


def test_log_words():
    got = log_words(["", " \n", "one", "one  two\nthree"])
    np.testing.assert_allclose(got, [0, 0, math.log(2), math.log(4)], rtol=1e-6)
    assert got.dtype == np.float32
    assert log_words([]).shape == (0,)


def test_a_text_of_any_length_keeps_the_bound():
    longest = log_words(["w " * 10_000, "w " * 50_000])
    assert longest[0] == longest[1] == pytest.approx(math.log1p(10_000))


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_bad_weights(weight):
    with pytest.raises(InputError, match="length_weight"):
        check_length_weight(weight)
