"""Exponents with intervals, and what the rule says of them."""

import numpy as np
import pytest

from murmuration.research.reproductions.slopes import (
    ABOVE,
    AGREES,
    BELOW,
    DIFFERS,
    EASIER,
    REACHES,
    UNCLEAR,
    Slope,
)

X = [1.0, 2.0, 4.0, 8.0]


def test_a_power_is_its_exponent_whatever_the_constant():
    constant_R1 = np.array([[0.1], [1.0], [7.0]])
    slope = Slope.fitted(X, constant_R1 * np.array(X) ** -0.5)
    assert (slope.mean, slope.low, slope.high) == pytest.approx((-0.5, -0.5, -0.5))


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    """In 200 repetitions of a 95 % interval, fewer than 175 come up once in ten thousand."""
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        noise_RX = np.exp(0.3 * generator.standard_normal((6, 4)))
        slope = Slope.fitted(X, noise_RX * np.array(X))
        held += slope.low <= 1.0 <= slope.high
    assert 175 <= held < 200


def test_of_one_seed_the_interval_is_everything():
    slope = Slope.fitted(X, np.array([X]))
    assert (slope.low, slope.high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("slope", "exponent", "side", "zero", "verdict"),
    [
        (-0.45, -0.5, "upper", False, AGREES),
        (-0.9, -0.5, "upper", False, BELOW),
        (-0.2, -0.5, "upper", False, DIFFERS),
        (0.45, 0.5, "lower", False, REACHES),
        (0.8, 0.5, "lower", False, ABOVE),
        (0.2, 0.5, "lower", False, EASIER),
        (1.0, 0.5, "upper", True, BELOW),
        (0.2, 0.5, "upper", True, DIFFERS),
    ],
)
def test_the_rule(slope, exponent, side, zero, verdict):
    narrow = Slope(slope, slope - 0.02, slope + 0.02)
    assert narrow.verdict(exponent, side, towards_zero=zero) == verdict


def test_a_wide_interval_agrees_with_too_much():
    assert Slope(1.2, 0.96, 1.44).verdict(1.0, "upper") == AGREES
    assert Slope(1.2, 0.9, 1.5).verdict(1.0, "upper") == UNCLEAR
    assert Slope(1.2, 0.9, 1.5).verdict(1.0, "lower") == UNCLEAR
    assert Slope(1.6, 1.2, 2.0).verdict(1.0, "upper") == DIFFERS


def test_what_has_no_slope_is_refused():
    with pytest.raises(ValueError, match="two points"):
        Slope.fitted([1.0], np.ones((2, 1)))
    with pytest.raises(ValueError, match="positive"):
        Slope.fitted(X, np.zeros((2, 4)))
