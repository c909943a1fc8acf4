"""Certified convolution against closed forms, exact arithmetic and 50 digits."""

import math

import mpmath
import numpy as np
import pytest
from closed_forms import epsilon_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy import fft
from scipy import special, stats

from murmuration.privacy.accounting.composition import (
    Composition,
    OneWay,
    composed_epsilon,
    composition,
)
from murmuration.privacy.accounting.convolution import ALLOWANCE, Uncertified, convolve
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.adjacency import Adjacency

ADD, SWAP = Adjacency.ADD_REMOVE, Adjacency.REPLACE


@pytest.mark.parametrize("rounds", [1, 30, 1000, 200_000, 1_000_000])
@pytest.mark.parametrize("mu", [0.1, 1.0])
@pytest.mark.parametrize("adjacency", [ADD, SWAP])
def test_composed_gaussians_are_one_gaussian(rounds, mu, adjacency):
    # Of noise √T/μ, and with two vectors changed half of that: the closed form is known.
    event = PoissonGaussian(1.0, adjacency.vectors_changed * math.sqrt(rounds) / mu)
    total = composition([(event, rounds)], adjacency=adjacency)
    assert total is not None
    for delta in (1e-2, 1e-5, 1e-8, 1e-10, 1e-12, 1e-14):
        exact = epsilon_of(1.0 / mu, delta) / (1.0 + 1.1e-10)  # which it is rounded up by
        assert exact <= total.epsilon(delta) <= exact * (1.0 + 1e-3)


@pytest.mark.parametrize(
    ("event", "adjacency", "rounds", "interval"),
    [
        (PoissonGaussian(0.2, 4.0), ADD, 200, 0.02),
        (PoissonGaussian(0.2, 4.0), SWAP, 1000, 0.05),
        (PoissonGaussian(0.01, 1.0), ADD, 10_000, 0.02),
        (PoissonGaussian(0.05, 20.0), SWAP, 100_000, 0.005),
        (PoissonGaussian(0.01, 20.0), ADD, 1_000_000, 0.002),
    ],
)
def test_exact_convolution_of_sampled_gaussians(
    checks,
    event,
    adjacency,
    rounds,
    interval,
):
    total = composition([(event, rounds)], adjacency=adjacency, interval=interval)
    assert total is not None
    for way in total.ways:
        checks.dominates_exactly(way)


@settings(phases=[Phase.generate])
@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12),
            st.integers(-8, 8),
            st.sampled_from([0.0, 1e-9, 1e-3]),
            st.integers(1, 60),
        ),
        min_size=1,
        max_size=3,
    ),
    st.floats(0.01, 0.5),
)
def test_any_distributions_of_several_kinds(checks, drawn, interval):
    parts = []
    for weights, lowest, infinite, times in drawn:
        weight_N = np.array(weights) + 1e-12
        mass_N = weight_N / weight_N.sum() * (1.0 - infinite) * (1.0 - 1e-12)
        parts.append((DiscretePMF(lowest + np.arange(len(mass_N)), mass_N, infinite), times))
    checks.dominates_exactly(OneWay(parts, interval), close_to=1e-5)


def test_a_million_pure_releases_are_binomial():
    each, times = 0.002, 1_000_000
    flips = np.arange(times + 1)
    mass = stats.binom.pmf(flips, times, special.expit(-each))
    loss = (times - 2 * flips) * each
    total = composition([(PureDp(each), times)], adjacency=ADD)
    assert total is not None
    for delta in (1e-5, 1e-10, 1e-14):
        found = total.epsilon(delta)
        exact = math.fsum((mass * -np.expm1(np.minimum(found - loss, 0.0))).tolist())
        assert exact <= delta * (1.0 + 1e-9)  # the library's masses are good to 1e-12
        less = found * (1.0 - 1e-3)
        assert math.fsum((mass * -np.expm1(np.minimum(less - loss, 0.0))).tolist()) > delta


def test_what_wraps_around_is_counted(checks):
    total = composition([(PoissonGaussian(0.3, 3.0), 50)], adjacency=SWAP, interval=0.05)
    assert total is not None
    checks.survives_a_narrow_window(total.removed)


def test_a_tilt_for_one_delta_holds_at_every_other():
    total = composition([(PoissonGaussian(1.0, 100.0), 10_000)], adjacency=ADD, interval=1e-3)
    assert total is not None
    exact = [epsilon_of(1.0, delta) for delta in (1e-14, 1e-9, 1e-5, 0.1)]
    for tilted_for in (0.3, 1e-5, 1e-14):
        (loss,) = total.losses(tilted_for)[:1]
        found = [loss.epsilon(delta) for delta in (1e-14, 1e-9, 1e-5, 0.1)]
        assert all(f >= e for f, e in zip(found, exact, strict=True))


def test_transforms_are_as_good_as_the_proof_takes_them_to_be():
    generator = np.random.default_rng(0)
    for cells in (2**8, 2**14, 2**18, 2**20):
        bump = np.exp(-0.5 * ((np.arange(cells) - cells / 2) / (cells / 40)) ** 2)
        for values in (generator.random(cells), bump, np.eye(1, cells, 3)[0]):
            reference = fft.rfft(values.astype(np.longdouble))
            found = fft.rfft(values)
            allowed = 4.0 * 2.0**-53 * math.log2(cells)
            assert np.linalg.norm(found - reference) <= allowed / 10 * np.linalg.norm(reference)
            back = fft.irfft(found.astype(np.clongdouble), cells)
            assert np.linalg.norm(fft.irfft(found, cells) - back) <= (
                allowed / 10 * np.linalg.norm(back)
            )


@pytest.mark.parametrize(
    ("probability", "sigma", "interval"),
    [
        (1.0, 447.0, 1e-4),
        (1.0, 2.0, 1e-3),
        (0.2, 4.0, 1e-4),
        (0.001, 0.8, 1e-3),
        (0.01, 30.0, 1e-5),
    ],
)
def test_single_distributions_dominate_with_the_allowance(probability, sigma, interval):
    # A cohort's Gaussian mixture (1 − q)N(0, σ²) + qN(1, σ²) against N(0, σ²), with 40 digits.
    losses = PoissonGaussian(probability, sigma).loss(ADD, interval)
    with mpmath.workdps(40):
        q, s, step = mpmath.mpf(probability), mpmath.mpf(sigma), mpmath.mpf(interval)
        for masses, removed in ((losses[0], True), (losses[-1], False)):
            wanted = set(np.linspace(masses.index_N[0], masses.index_N[-1], 12).astype(int)[1:-1])
            # Σ p and Σ p e^(−l) of all cells above, from the top down.
            upper = lower = mpmath.mpf(0)
            shrink, at = mpmath.exp(-step), mpmath.exp(-step * int(masses.index_N[-1]))
            index = int(masses.index_N[-1])
            for place, mass in zip(masses.index_N[::-1], masses.mass_N[::-1], strict=True):
                while index > place:
                    index, at = index - 1, at / shrink
                if index in wanted:
                    alpha = mpmath.exp(step * index - mpmath.mpf(ALLOWANCE))
                    found = upper - alpha * lower + masses.infinite
                    exact = _divergence(q, s, mpmath.exp(step * index), removed)
                    assert found * (1 + ALLOWANCE) >= exact
                    wanted.discard(index)
                upper, lower = upper + mpmath.mpf(float(mass)), lower + mpmath.mpf(float(mass)) * at
            assert len(wanted) < 9


def _divergence(q, s, alpha, removed):
    """H_α of the mixture against the Gaussian, or the other way around."""

    def above(x, mean):
        return mpmath.erfc((x - mean) / (s * mpmath.sqrt(2))) / 2

    # The mixture's density over the Gaussian's is 1 − q + q e^((x − 1/2)/σ²), rising in x.
    bound = alpha if removed else 1 / alpha
    if bound <= 1 - q:
        return 1 - alpha if removed else mpmath.mpf(0)
    x = s**2 * mpmath.log((bound - 1 + q) / q) + mpmath.mpf(1) / 2
    mixture, gaussian = (1 - q) * above(x, 0) + q * above(x, 1), above(x, 0)
    if removed:
        return mixture - alpha * gaussian
    return (1 - gaussian) - alpha * (1 - mixture)


def test_merging_cells_errs_on_the_safe_side():
    interval = 1e-3
    fine, _ = PoissonGaussian(0.3, 1.0).loss(ADD, interval)
    for factor in (2, 8, 64):
        coarse = fine.merged(factor, interval)
        assert coarse.mass_N.sum() == pytest.approx(fine.mass_N.sum(), rel=1e-12)
        for epsilon in np.linspace(-1.0, 3.0, 41):
            deltas = [
                float(m.mass_N @ -np.expm1(np.minimum(epsilon - m.index_N * width, 0.0)))
                for m, width in ((fine, interval), (coarse, factor * interval))
            ]
            assert deltas[0] <= deltas[1] * (1 + 1e-12) <= deltas[0] + 0.2 * factor * interval


def test_a_wide_composition_stays_small():
    # ε of thousands spans ten million cells of the finest grid.
    found = composed_epsilon(
        [(PoissonGaussian(1.0, 0.5), 1000)], adjacency=ADD, delta=1e-5, interval=1e-3
    )
    exact = epsilon_of(0.5 / math.sqrt(1000), 1e-5)
    assert exact <= found <= exact * (1 + 1e-3)


def test_no_refusal_up_to_a_hundred_thousand_rounds():
    for event in (PoissonGaussian(0.01, 3.0), PoissonGaussian(1.0, 300.0), PureDp(0.001)):
        for adjacency in (ADD, SWAP):
            found = composed_epsilon(
                [(event, 100_000)], adjacency=adjacency, delta=1e-10, interval=1e-4
            )
            assert 0.0 < found < math.inf


def test_what_cannot_be_certified_is_refused_and_says_what_can():
    event, terms = PoissonGaussian(1.0, 1000.0), {"adjacency": ADD, "interval": 1e-4}
    with pytest.raises(
        Uncertified, match=r"1,000,000 releases: .* choose at least (.*)$"
    ) as raised:
        composed_epsilon([(event, 1_000_000)], delta=1e-24, **terms)
    enough = float(str(raised.value).split()[-1])
    assert enough < 1e-14
    assert composed_epsilon([(event, 1_000_000)], delta=enough, **terms) > 0.0
    with pytest.raises(Uncertified, match="too many to bound their rounding"):
        composed_epsilon([(PureDp(1e-4), 10**12)], delta=1e-5, **terms)


def test_infinite_losses_add_up():
    masses = DiscretePMF(np.array([0]), np.array([0.9]), 0.1)
    loss = convolve([(masses, 3)], interval=0.1, tilt=0.0, lowest=0, cells=16, beyond=1.0)
    assert loss.infinite == pytest.approx(1 - 0.9**3, rel=1e-9)
    assert loss.infinite >= 1 - 0.9**3
    one = OneWay([(masses, 3)], 0.1)
    assert Composition(one, one).epsilon(0.2) == math.inf
