"""JSON without words that it does not have."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.strict_json import strict_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(VALUES)
def test_every_reader_can_read_it(value):
    json.loads(strict_json(value), parse_constant=pytest.fail)


@given(VALUES)
def test_what_is_finite_stays(value):
    written = json.dumps(value)
    if "Infinity" not in written and "NaN" not in written:
        assert strict_json(value) == written


def test_what_is_not_finite_is_said_in_words():
    value = {"a": [math.inf, (math.nan, 1.5)], "b": {"c": -math.inf}}
    expected = {"a": ["infinite", ["not a number", 1.5]], "b": {"c": "-infinite"}}
    assert json.loads(strict_json(value, indent=2)) == expected
