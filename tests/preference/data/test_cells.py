"""Single cells of a row."""

import math

import numpy as np
import pytest

from murmuration.preference.data.cells import number_cell


@pytest.mark.parametrize("value", [3, 3.0, "3", " 3.0 ", np.float32(3), np.int64(3)])
def test_a_number_however_it_is_written(value):
    assert number_cell(value) == 3.0


@pytest.mark.parametrize(
    "value", [None, True, np.bool_(False), "", "three", [3], {"n": 3}, b"3", 10**400, "nan"]
)
def test_anything_else_is_none(value):
    assert math.isnan(number_cell(value))


def test_an_infinite_one_stays_so():
    """Whoever asks for a finite one sees that it is not."""
    assert number_cell("-inf") == -math.inf
