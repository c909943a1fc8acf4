"""Values that a text writes down: what Python and numpy print comes back, and nothing runs."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.files.written import (
    DEEPEST,
    MOST_CHARACTERS,
    MOST_PARTS,
    written_value,
)

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(_VALUES, max_size=3) | st.dictionaries(st.text(), _VALUES, max_size=3))
def test_what_python_and_json_write_comes_back(value):
    infinite = "inf" in repr(value).replace("'inf'", "")
    assert infinite or written_value(repr(value)) == value
    assert written_value(json.dumps(value)) == value


@given(st.lists(st.dictionaries(st.text(), st.text() | st.none(), max_size=3), max_size=4))
def test_what_numpy_writes_comes_back(rows):
    array = np.empty(len(rows), dtype=object)
    array[:] = rows
    assert written_value(str(array)) == rows
    assert written_value(repr(array)) == rows


@pytest.mark.parametrize(
    "array", [np.array([1, 20]), np.array([0.5, 1.0]), np.array(["a", "b c"]), np.eye(2)]
)
def test_arrays_of_plain_values_come_back(array):
    for text in (str(array), repr(array), repr([*array.tolist()])):
        assert written_value(text) == array.tolist()
    assert written_value("[np.float64(0.5), np.int64(2)]") == [0.5, 2]


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1,,2]", "[,1]", "{1: 2", "{'a' 1}", "{[1]: 2}", "[1] 2", "[1a]", "f(1)", "[x]",
     "__import__('os')", "[().__class__]", "['\\d']", "['a\nb']", "['\\U00110000']", "[1}", "(1]",
     "array([1], [2])", "array()", "[b'a']", "[1 + 1]", "[...]", "['a', ..., 'b']"],
)  # fmt: skip
def test_what_writes_no_value(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert written_value(text) is None


def test_depth_and_size_are_limited():
    assert written_value("['" * 1 + "a'" + "]") == ["a"]
    deep = "[" * DEEPEST + "'a'" + "]" * DEEPEST
    assert written_value(deep) is not None and written_value(f"[{deep}]") is None
    long = "['" + "a" * (MOST_CHARACTERS - 4) + "']"
    assert written_value(long) is not None and written_value(f"{long} ") is None
    assert written_value("[" + "0," * MOST_PARTS + "0]") is None
