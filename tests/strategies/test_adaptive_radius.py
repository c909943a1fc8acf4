"""The rule finds the quantile from both sides; the two limits on steps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.strategies.adaptive import QuantileRule, bounded, least_unit
from murmuration.strategies.optimizers import OptimizerSettings


def finds_the_quantile(rule_from, quantile):
    """``rule_from(start, quantile)`` ends near the true quantile of log-normal norms."""
    generator = np.random.default_rng(0)
    norms = np.exp(0.8 * generator.standard_normal(500))
    true = float(np.quantile(norms, quantile))
    for start in (0.01 * true, 50.0 * true):
        rule, radius, late = rule_from(start, quantile), start, []
        for round_ in range(300):
            share = float((norms <= radius).mean()) + 0.05 * generator.standard_normal()
            radius = rule.next(radius, share)
            late += [radius] * (round_ >= 200)
        found = float(np.mean(late))
        assert 0.9 * true < found < 1.1 * true, f"{found:.3g} from {start:.3g}, not {true:.3g}"


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.8])
def test_the_quantile_is_found_from_below_and_from_above(quantile):
    finds_the_quantile(QuantileRule, quantile)


class InvertedSign(QuantileRule):
    """The update that makes the radius larger when too many are within it."""

    def next(self, radius, share):
        return radius * math.exp(self.rate * (share - self.quantile))


class Complement(QuantileRule):
    """Takes the share of users who were clipped for that of those who were not."""

    def next(self, radius, share):
        return super().next(radius, 1.0 - share)


class UncentredBits(QuantileRule):
    """Forgets to add back the half that was subtracted from each bit."""

    def next(self, radius, share):
        return super().next(radius, share - 0.5)


@pytest.mark.parametrize("fault", [InvertedSign, Complement, UncentredBits])
def test_rules_that_run_away_are_noticed(fault):
    with pytest.raises(AssertionError, match="not"):
        finds_the_quantile(fault, 0.4)


@given(st.floats(0.01, 0.99), st.floats(1e-3, 1e3), st.floats(-50, 50))
def test_too_few_within_widens_and_too_many_narrows(quantile, radius, share):
    found = QuantileRule(radius, quantile).next(radius, share)
    assert (found > radius) == (share < quantile) or found == radius
    assert math.isfinite(found)
    assert found > 0


def test_no_run_of_noise_ends_at_zero_or_infinity():
    low = high = 0.5
    rule = QuantileRule(0.5, 0.5)
    for _ in range(10_000):
        low, high = rule.next(low, 3.0), rule.next(high, -3.0)
    assert low == bounded(0.0, 0.5) > 0
    assert high == bounded(math.inf, 0.5) < math.inf


@pytest.mark.parametrize("share", [1e5, -1e5, 1e300, -1e300])
def test_noise_of_many_cohorts_moves_the_radius_to_an_end(share):
    """As a cohort of one draws it at a small epsilon; the round is charged by then."""
    ends = bounded(0.0, 0.5), bounded(math.inf, 0.5)
    assert QuantileRule(0.5, 0.15).next(ends[share > 0], share) == ends[share < 0]


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"quantile": 0.0}, "--quantile"), ({"quantile": 1.0}, "--quantile"), ({"rate": 0.0}, "rate")],
)
def test_rules_that_lead_nowhere_are_refused(rule, message):
    with pytest.raises(ValueError, match=message):
        QuantileRule(**{"start": 1.0, "quantile": 0.5, **rule})


def test_steps_are_no_longer_than_of_use():
    """At the least unit a run takes two and a half time constants, whatever the rate."""
    for rate, rounds, dimension in ((3.0, 200, 32), (0.1, 50, 1000)):
        settings = OptimizerSettings("sgd", rate, rounds)
        unit = least_unit(settings, dimension)
        curvature = 0.25 * 2 / dimension
        steps = sum(settings.factor(t) for t in range(1, rounds + 1))
        assert steps * rate / unit * curvature == pytest.approx(2.5)
    assert least_unit(OptimizerSettings("adam", 0.1, 100), 10) == 0.0
