import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from by_dp_accounting import RELATION, as_pmf, loss_of
from closed_forms import epsilon_of
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.accounting import accountant as accounting
from murmuration.privacy.accounting import mixture
from murmuration.privacy.accounting.events import PoissonGaussian, from_json, to_json
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency

#: sigma, G and epsilon at p = 0.01, T = 2000, delta = 1e-6, discretized to 1e-3.
FIXED_POINTS = ((1.0, 1, 2.9565), (2.0, 2, 2.2019), (4.0, 8, 4.4447), (4.0, 32, 23.626))


def epsilon(
    sigma,
    group_size,
    probability,
    rounds,
    delta=1e-6,
    adjacency=Adjacency.ADD_REMOVE,
    interval=1e-3,
):
    event = MixtureGaussian(sigma, group_size, probability)
    return accounting.epsilon(
        [(event, rounds)], adjacency=adjacency, delta=delta, interval=interval
    )


def delta_exactly(sigma, group_size, probability, target):
    """One round's delta at epsilon ``target`` from its definition: the best threshold set."""
    counts = np.arange(group_size + 1)
    weights = stats.binom.pmf(counts, group_size, probability)
    thresholds = np.linspace(-12 * sigma, group_size + 12 * sigma, 10_001)
    null_above = stats.norm.sf(thresholds / sigma)
    null_below = stats.norm.cdf(thresholds / sigma)
    distances = (thresholds[:, None] - counts) / sigma
    above, below = stats.norm.sf(distances) @ weights, stats.norm.cdf(distances) @ weights
    removed = np.max(above - math.exp(target) * null_above)
    added = np.max(null_below - math.exp(target) * below)
    return float(max(removed, added))


@pytest.mark.parametrize(("sigma", "group_size", "expected"), FIXED_POINTS)
def test_the_published_fixed_points(sigma, group_size, expected):
    digits = 3 if expected > 10 else 4
    assert round(epsilon(sigma, group_size, 0.01, 2000), digits) == expected
    finer = epsilon(sigma, group_size, 0.01, 2000, interval=1e-4)
    assert expected * (1 - 1e-3) < finer <= expected + 1e-4


@pytest.mark.parametrize(
    ("adjacency", "sigma", "group_size", "probability", "rounds"),
    [
        (Adjacency.ADD_REMOVE, 3.0, 4, 0.05, 50),
        (Adjacency.ZERO_OUT, 5.0, 12, 0.02, 200),
        (Adjacency.ADD_REMOVE, 8.0, 3, 0.9, 3),
    ],
)
def test_agreement_with_the_library(adjacency, sigma, group_size, probability, rounds):
    counts = list(range(group_size + 1))
    weights = [float(w) for w in stats.binom.pmf(counts, group_size, probability)]
    oracle = dp_accounting.dp_event.MixtureOfGaussiansDpEvent(sigma, counts, weights)
    accountant = PLDAccountant(RELATION[adjacency], value_discretization_interval=1e-3)
    accountant.compose(dp_accounting.SelfComposedDpEvent(oracle, rounds))
    found = epsilon(sigma, group_size, probability, rounds, adjacency=adjacency)
    assert found == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize(
    ("sigma", "group_size", "probability"),
    [(1.0, 2, 0.3), (0.7, 1, 0.01), (4.0, 16, 0.05), (20.0, 64, 0.5), (5.0, 9, 1.0)],
)
def test_one_round_is_the_definition(sigma, group_size, probability):
    loss = loss_of(MixtureGaussian(sigma, group_size, probability), Adjacency.ADD_REMOVE, 1e-4)
    for target in (0.0, 0.05, 0.5, 3.0):
        exact = delta_exactly(sigma, group_size, probability, target)
        found = loss.get_delta_for_epsilon(target)
        assert exact - 1e-15 <= found * (1 + 1e-9)  # never less than the truth
        assert found == pytest.approx(exact, rel=2e-4, abs=1e-9)


@settings(max_examples=15, phases=[Phase.generate])
@given(st.floats(0.6, 10.0), st.floats(0.001, 1.0), st.integers(1, 30), st.booleans())
def test_one_example_each_is_the_poisson_gaussian(sigma, probability, rounds, zero_out):
    adjacency = Adjacency.ZERO_OUT if zero_out else Adjacency.ADD_REMOVE
    terms = {"adjacency": adjacency, "delta": 1e-6, "interval": 2e-3}
    plain = accounting.epsilon([(PoissonGaussian(probability, sigma), rounds)], **terms)
    mixed = accounting.epsilon([(MixtureGaussian(sigma, 1, probability), rounds)], **terms)
    assert mixed == pytest.approx(plain, rel=1e-5, abs=1e-7)


def test_all_coins_certain_is_one_gaussian_of_that_sensitivity():
    for group_size in (2, 7):
        mixed = epsilon(3.0 * group_size, group_size, 1.0, 20)
        assert mixed == pytest.approx(epsilon(3.0, 1, 1.0, 20), rel=1e-6)


@settings(max_examples=8, phases=[Phase.generate])
@given(
    st.floats(4.0, 30.0),
    st.integers(1, 16),
    st.floats(0.002, 0.6),
    st.integers(1, 60),
    st.floats(1.1, 2.5),
)
def test_epsilon_moves_the_right_way_in_every_parameter(
    sigma, group_size, probability, rounds, factor
):
    def cost(s, g, p, t, d=1e-6):
        return epsilon(s, g, p, t, d, interval=2e-3)

    base = cost(sigma, group_size, probability, rounds)
    slack = 1e-6 * (1 + base)  # of discretization
    assert 0.0 <= base < math.inf
    assert cost(sigma * factor, group_size, probability, rounds) <= base + slack
    assert cost(sigma, group_size + 1, probability, rounds) >= base - slack
    assert cost(sigma, group_size, min(1.0, probability * factor), rounds) >= base - slack
    assert cost(sigma, group_size, probability, math.ceil(rounds * factor)) >= base - slack
    assert cost(sigma, group_size, probability, rounds, 1e-5) <= base + slack
    finer = epsilon(sigma, group_size, probability, rounds, interval=5e-4)
    assert finer <= base + slack  # discretization errs on the safe side


@settings(phases=[Phase.generate])
@given(
    st.floats(0.5, 7.0).map(lambda exponent: 10.0**exponent),
    st.integers(1, 512),
    st.floats(-30.0, 0.0).map(lambda exponent: 10.0**exponent),
)
def test_both_directions_are_distributions_for_any_parameters(sigma, group_size, probability):
    loss = loss_of(MixtureGaussian(sigma, group_size, probability), Adjacency.ADD_REMOVE, 0.5)
    at_zero = loss.get_delta_for_epsilon(0.0)
    assert loss.get_delta_for_epsilon(-1e9) == pytest.approx(1.0, abs=1e-9)  # no mass is lost
    # Total variation is at most the chance that any coin comes up.
    sampled = -math.expm1(group_size * math.log1p(-probability)) if probability < 1 else 1.0
    assert 0.0 <= at_zero <= sampled * (1 + 1e-6) + 1e-12  # no discretization on the grid
    assert epsilon(sigma, group_size, probability, 3, 0.5, interval=0.5) >= 0.0


def test_what_is_cut_from_the_mixture_is_charged():
    # With a chance of 1e-25 of being sampled at all, nothing but the cut is left.
    loss = loss_of(MixtureGaussian(1.0, 3, 1e-25), Adjacency.ADD_REMOVE, 1e-3)
    assert loss.get_delta_for_epsilon(1.0) == pytest.approx(3e-25, rel=1e-6)


def test_losses_out_of_bounds_are_infinite_and_not_left_out(
    monkeypatch,
):
    monkeypatch.setattr(mixture, "MOST_POINTS", 2000)
    loud = loss_of(MixtureGaussian(0.0123, 32, 0.9), Adjacency.ADD_REMOVE, 1e-2)
    assert loud.get_delta_for_epsilon(50.0) == pytest.approx(1.0)
    assert epsilon(0.0123, 32, 0.9, 3, interval=1e-2) == math.inf
    # Partly out of bounds: what is beyond a loss of about 20 - 8 counts in full.
    event = MixtureGaussian(0.123, 1, 0.01)
    assert loss_of(event, Adjacency.ADD_REMOVE, 1e-2).get_epsilon_for_delta(1e-3) == math.inf
    assert 0.005 < loss_of(event, Adjacency.ADD_REMOVE, 1e-2).get_delta_for_epsilon(15.0) <= 0.01


def test_the_written_form_is_stable():
    event = MixtureGaussian(4.0, 8, 0.01)
    data = {
        "kind": "mixture-gaussian",
        "noise_multiplier": 4.0,
        "group_size": 8,
        "probability": 0.01,
    }
    assert to_json(event) == data
    assert from_json(data) == event
    with pytest.raises(ValueError, match="whole number"):
        from_json({**data, "group_size": 8.0})


@given(
    probability=st.one_of(st.just(1.0), st.floats(1e-6, 1.0)),
    noise=st.floats(math.log(0.35), math.log(500.0)).map(math.exp),
    adjacency=st.sampled_from(Adjacency),
)
def test_one_coin_is_what_the_library_makes_of_it(probability, noise, adjacency):
    interval = 2e-2 if noise < 1.0 else 2e-3
    found = loss_of(PoissonGaussian(probability, noise), adjacency, interval)
    theirs = pld.from_gaussian_mechanism(
        noise,
        value_discretization_interval=interval,
        sampling_prob=probability,
        neighboring_relation=RELATION[adjacency],
    )
    for ours, other in ((found._pmf_remove, theirs._pmf_remove), (found._pmf_add, theirs._pmf_add)):
        for target in np.linspace(-3.0, 6.0, 7) / noise:
            assert ours.get_delta_for_epsilon(target) == pytest.approx(
                other.get_delta_for_epsilon(target), rel=1e-9, abs=1e-12
            )


@pytest.mark.parametrize("probability", [1.0, 0.3, 0.01, 1e-5])
@pytest.mark.parametrize("noise", [0.5, 3.0, 80.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_swapped_vectors_to_40_digits(probability, noise, sign):
    # (1 − q)N(0, σ²) + qN(1, σ²) against (1 − q)N(0, σ²) + qN(−1, σ²).
    index = sign * round(400 * probability / noise)
    found = loss_of(PoissonGaussian(probability, noise), Adjacency.REPLACE, 1e-3)
    with mpmath.workdps(40):
        q, s, target = mpmath.mpf(probability), mpmath.mpf(noise), mpmath.mpf(index * 1e-3)

        def density(x, mean):
            return (1 - q) * mpmath.npdf(x, 0, s) + q * mpmath.npdf(x, mean, s)

        def above(x, mean):
            return (1 - q) * mpmath.ncdf(-x / s) + q * mpmath.ncdf((mean - x) / s)

        low, high = -40 * s - 2, 40 * s + 2
        for _ in range(200):
            middle = (low + high) / 2
            loss = mpmath.log(density(middle, 1) / density(middle, -1))
            low, high = (low, middle) if loss > target else (middle, high)
        exact = float(above(low, 1) - mpmath.exp(target) * above(low, -1))
    assert found._pmf_remove.get_delta_for_epsilon(index * 1e-3) == pytest.approx(
        exact, rel=1e-9, abs=1e-13
    )


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("noise", [0.02, 0.4, 3.0])
def test_one_coin_has_no_mass_where_there_is_none(adjacency, noise):
    # Removed, nothing is less likely than 1 − q times; added, nothing more than 1/(1 − q) times.
    found = PoissonGaussian(0.25, noise).loss(adjacency, 1e-2)
    for masses in found:
        assert masses.mass_N.sum() + masses.infinite == pytest.approx(1.0, abs=1e-9)
    if adjacency is Adjacency.ADD_REMOVE:
        removed, added = found
        assert removed.index_N.min() * 1e-2 >= math.log1p(-0.25) - 1.01e-2
        assert added.index_N.max() * 1e-2 <= -math.log1p(-0.25) + 1.01e-2


def test_losses_of_one_coin_out_of_bounds_are_infinite(monkeypatch):
    monkeypatch.setattr(mixture, "MOST_OF_ONE_COIN", 2000)
    found = loss_of(PoissonGaussian(1.0, 0.123), Adjacency.ADD_REMOVE, 1e-2)
    exact = stats.norm.sf(-0.5 / 0.123 + 5.0 * 0.123) - math.exp(5.0) * stats.norm.sf(
        0.5 / 0.123 + 5.0 * 0.123
    )
    assert exact <= found.get_delta_for_epsilon(5.0) <= 1.0
    assert found.get_epsilon_for_delta(1e-3) == math.inf


@pytest.mark.parametrize(
    ("sigma", "group_size", "probability", "interval", "target"),
    [(0.5, 4, 0.9, 0.5, 109.5), (1.0, 3, 0.99, 0.01, 33.71)],
)
def test_what_lies_beyond_the_last_point_counts_in_full(
    sigma, group_size, probability, interval, target
):
    # Where the axis is cut off the loss is not at a point of the grid: deltas of 1e-23, but right.
    removed, _ = MixtureGaussian(sigma, group_size, probability).loss(
        Adjacency.ADD_REMOVE, interval
    )
    with mpmath.workdps(60):
        q, s, epsilon_ = mpmath.mpf(probability), mpmath.mpf(sigma), mpmath.mpf(target)
        weights = [
            mpmath.binomial(group_size, k) * q**k * (1 - q) ** (group_size - k)
            for k in range(group_size + 1)
        ]

        def loss(x):
            return mpmath.log(
                sum(w * mpmath.exp((2 * x * k - k**2) / (2 * s**2)) for k, w in enumerate(weights))
            )

        low, high = mpmath.mpf(0), 60 * s + 2 * group_size
        for _ in range(300):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(middle) < epsilon_ else (low, middle)
        above = sum(w * mpmath.ncdf((k - low) / s) for k, w in enumerate(weights))
        exact = float(above - mpmath.exp(epsilon_) * mpmath.ncdf(-low / s))
    assert as_pmf(removed, interval).get_delta_for_epsilon(target) >= exact


@pytest.mark.parametrize("probability", [0.999999999999951, 1.0 - 5.6e-12, 1.0 - 1e-9, 0.999])
def test_a_coin_that_nearly_always_comes_up(probability):
    sigma, interval = 0.1094, 0.0582
    _, added = PoissonGaussian(probability, sigma).loss(Adjacency.ADD_REMOVE, interval)
    with mpmath.workdps(60):
        q, s = mpmath.mpf(probability), mpmath.mpf(sigma)
        for index in (-20, 0, 200, int(added.index_N[-1]) - 3, int(added.index_N[-1]) - 1):
            target = mpmath.mpf(index * interval)
            inside = (mpmath.exp(-target) - 1 + q) / q
            if inside <= 0:
                continue
            x = s**2 * mpmath.log(inside) + mpmath.mpf(1) / 2  # below it the loss is larger
            null, mixture = mpmath.ncdf(x / s), (1 - q) * mpmath.ncdf(x / s)
            mixture += q * mpmath.ncdf((x - 1) / s)
            exact = float(null - mpmath.exp(target) * mixture)
            found = as_pmf(added, interval).get_delta_for_epsilon(index * interval)
            assert found * (1 + 1e-11) + 1e-300 >= exact
            assert found == pytest.approx(exact, rel=1e-6, abs=1e-20)


def test_a_loss_of_hundreds_is_finite():
    found = accounting.epsilon(
        [(PoissonGaussian(1.0, 0.05), 1)], adjacency=Adjacency.ADD_REMOVE, delta=1e-6
    )
    assert found == pytest.approx(epsilon_of(0.05, 1e-6), rel=1e-4)
    sigma = accounting.noise_multiplier_for(
        300.0, delta=1e-6, probability=1.0, rounds=1, adjacency=Adjacency.ADD_REMOVE
    )
    assert 200.0 < epsilon_of(sigma, 1e-6) <= 300.0


# Cohorts with a cap, by all cohorts that there are
