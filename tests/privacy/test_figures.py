"""Figures keep the digits they can carry."""

import pytest

from murmuration.privacy.figures import (
    counted,
    duration,
    points_of_error,
    round_digits,
    share_text,
)


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
