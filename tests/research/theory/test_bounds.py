"""What a case says, and which cases cannot be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.research.theory.bounds import Bound, Case

CASE = {"users": 1000, "judgements": 10, "dimension": 16, "epsilon": 1.0, "delta": 1e-5}


def test_the_constants():
    case = Case(**CASE, feature_bound=1.5, model_bound=2.0)
    assert case.total == 10_000
    assert case.gamma == pytest.approx(1 / (2 + math.exp(-6.0) + math.exp(6.0)))
    slope = math.exp(6.0) / (1 + math.exp(6.0)) ** 2
    assert case.gamma == pytest.approx(slope)  # σ′(2LB)
    assert case.kappa == 2 * 1.5**2 / 16
    assert case.flatter == pytest.approx((math.exp(0.1) + 1) / (math.exp(0.1) - 1))
    assert Case(**CASE, coverage=0.01).kappa == 0.01


@given(st.integers(1, 500), st.floats(0.01, 20.0))
def test_randomizing_costs_at_least_nothing(judgements, epsilon):
    case = Case(**{**CASE, "judgements": judgements, "epsilon": epsilon})
    assert case.flatter >= 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 0}, "--users must be positive"),
        ({"epsilon": -1.0}, "--epsilon must not be -1"),
        ({"epsilon": math.inf}, "--epsilon must not be inf"),
        ({"delta": 1.0}, "probabilities below 1"),
        ({"failure": 1.0}, "probabilities below 1"),
        ({"model_bound": 0.0}, "--model-bound must be positive"),
        ({"responses": 1}, "--responses must be at least 2"),
        ({"coverage": 0.3}, "--coverage 0.3 cannot be.*at most 0.25"),
        ({"coverage": math.nan}, "--coverage must not be nan"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Case(**{**CASE, **changes})


def test_rows_say_what_the_value_is():
    row = Bound("A", "lower", "l2", "central", "d", 1.0).row()
    assert row["kind"] == "rate without constants"
    assert (row["value"], row["proved"], row["applies"]) == (1.0, None, True)
