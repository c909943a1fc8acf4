"""The analytic Gaussian against published values, an accountant, and the definition."""

import math

import numpy as np
import pytest
from closed_forms import epsilon_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.theory.analytic_gaussian import calibrate_noise, delta_of


def test_known_values():
    assert calibrate_noise(1.0, 1e-5) == pytest.approx(3.7306, abs=1e-4)
    # At epsilon 0 delta is a total variation distance: 2Φ(1/2s) − 1.
    assert delta_of(2.0, 0.0) == pytest.approx(2 * stats.norm.cdf(0.25) - 1)
    assert epsilon_of(1e9, 1e-5) == 0.0


@pytest.mark.parametrize(("noise", "epsilon"), [(0.5, 3.0), (2.0, 0.5), (4.0, 1.0)])
def test_delta_is_what_the_definition_says(noise, epsilon):
    """∫ max(0, p − e^ε q) of two Gaussians one sensitivity apart."""
    p, q = stats.norm(1.0, noise), stats.norm(0.0, noise)
    edge = 0.5 + epsilon * noise**2
    found, _ = integrate.quad(
        lambda t: p.pdf(t) - math.exp(epsilon) * q.pdf(t), edge, edge + 40 * noise
    )
    assert delta_of(noise, epsilon) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_accountant_agrees_and_supplies_the_two_of_a_swap(epsilon, delta):
    noise = calibrate_noise(epsilon, delta)
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_LABELS):
        event = PoissonGaussian(1.0, noise * adjacency.vectors_changed)
        accounted = accountant.epsilon([(event, 1)], adjacency=adjacency, delta=delta)
        assert accounted == pytest.approx(epsilon, rel=2e-3)
        assert accounted >= epsilon * (1 - 1e-9)  # it errs on the safe side


def test_two_rounds_are_one_with_root_two_less_noise():
    event = PoissonGaussian(1.0, 2.0 * math.sqrt(2.0) * calibrate_noise(2.0, 1e-5))
    accounted = accountant.epsilon([(event, 2)], adjacency=Adjacency.REPLACE_LABELS, delta=1e-5)
    assert accounted == pytest.approx(2.0, rel=2e-3)


@given(st.floats(1e-3, 50.0), st.floats(1e-12, 0.5))
def test_least_noise_is_enough_and_hardly_more(epsilon, delta):
    noise = calibrate_noise(epsilon, delta)
    assert delta_of(noise, epsilon) <= delta
    assert delta_of(noise * 0.999, epsilon) > delta


@given(st.floats(0.05, 20.0), st.floats(1e-12, 0.3))
def test_epsilon_inverts_delta(noise, delta):
    epsilon = epsilon_of(noise, delta)
    assert delta_of(noise, epsilon) <= delta
    if epsilon > 0:
        assert delta_of(noise, epsilon * 0.999) > delta


def test_extremes_do_not_overflow():
    assert delta_of(0.01, 1e4) >= 0.0
    assert 0.0 <= delta_of(1e-3, 700.0) <= 1.0
    assert np.isfinite(calibrate_noise(1e-6, 1e-15))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1, 1)])
def test_impossible_promises(epsilon, delta):
    with pytest.raises(ValueError, match="must be"):
        calibrate_noise(epsilon, delta)


def test_impossible_noise():
    with pytest.raises(ValueError, match="the noise must be"):
        delta_of(0.0, 1.0)
    with pytest.raises(ValueError, match="epsilon must be"):
        delta_of(1.0, -1.0)
