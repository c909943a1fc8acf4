"""Figures keep the digits they can carry, and epsilon is never made to look smaller."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.server.reporting.figures import (
    counted,
    delta_text,
    duration,
    epsilon_text,
    points_of_error,
    round_digits,
    share_text,
)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (2.9914, "3.00"),
        (2.99, "2.99"),
        (3.0, "3.00"),
        (0.1 + 0.2, "0.300"),
        (1.0, "1.00"),
        (0.9999, "1.000"),
        (0.01234, "0.0124"),
        (12.31, "12.4"),
        (123.4, "124"),
        (1234.5, "1235"),
        (0.0, "0"),
        (float("inf"), "∞"),
    ],
)
def test_epsilon_is_rounded_up(epsilon, text):
    assert epsilon_text(epsilon) == text


@given(st.floats(1e-6, 1e6))
def test_epsilon_is_never_understated_and_hardly_overstated(epsilon):
    shown = float(Decimal(epsilon_text(epsilon)))
    assert epsilon * (1 - 1e-9) <= shown <= epsilon * 1.0101


@pytest.mark.parametrize(
    ("delta", "text"),
    [(1e-5, "1e-5"), (2.5e-6, "2.5e-6"), (0.02, "0.02"), (1e-10, "1e-10"), (0.001, "0.001")],
)
def test_delta_looks_as_it_is_typed(delta, text):
    assert delta_text(delta) == text


@given(st.floats(1e-30, 0.999))
def test_delta_can_be_read_back(delta):
    assert float(delta_text(delta)) == pytest.approx(delta, rel=1e-4)


def test_shares():
    assert share_text(0.743123, 540) == "74.3 %"
    assert share_text(0.743123, 12) == "74 %"
    assert share_text(1.0) == "100.0 %"
    assert share_text(None) == share_text(float("nan"), 0) == "not measured"


def test_standard_error_is_bounded_from_above():
    assert points_of_error(0.025) == "2.5"
    assert points_of_error(0.0241) == "2.5"
    assert points_of_error(0.167) == "17"
    assert points_of_error(None) == points_of_error(float("nan")) == "unknown"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (43219.4, "43,000"),
        (996, "1,000"),
        (1.317, "1.3"),
        (0.00123, "0.0012"),
        (0.000123, "0.00012"),
        (12.0, "12"),
        (0, "0"),
    ],
)
def test_about_two_digits(value, text):
    assert round_digits(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (0.84, "0.8 s"),
        (9.97, "10 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.9, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_one_is_not_several():
    assert [counted(n, "round") for n in (0, 1, 2178)] == ["0 rounds", "1 round", "2,178 rounds"]
