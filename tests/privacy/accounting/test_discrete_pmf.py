"""Single releases on a grid: what is guaranteed of them, whatever they are of."""

import math

import numpy as np
import pytest
from by_dp_accounting import as_pmf, masses_of
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF, between


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=8),
    st.floats(1e-4, 0.5),
    st.integers(-20, 20),
)
def test_both_totals_stay_and_nothing_is_cheaper(pairs, interval, lowest):
    # From each loss to the next, P and Q at a ratio that lies there, anywhere; then no Q at all.
    upper_N = np.array([mass for mass, _ in pairs] + [0.5]) / (len(pairs) + 1)
    place_N = lowest + np.arange(len(pairs)) + np.array([place for _, place in pairs])
    lower_N = upper_N * np.exp(-np.append(place_N, math.inf) * interval)
    found = between(upper_N, lower_N, lowest, interval, below=0.01, cut=0.02)
    loss_N = found.index_N * interval
    assert found.infinite == pytest.approx(upper_N[-1] + 0.02)
    assert found.mass_N.sum() == pytest.approx(upper_N[:-1].sum() + 0.01, rel=1e-12)
    total = lower_N.sum() + 0.01 * math.exp(-(lowest + 1) * interval)
    assert found.mass_N @ np.exp(-loss_N) == pytest.approx(total, rel=1e-9)
    for alpha in np.exp(np.linspace(lowest - 1, lowest + len(pairs) + 1, 23) * interval):
        exact = np.maximum(upper_N - alpha * lower_N, 0.0).sum() + 0.02
        ours = found.mass_N @ np.maximum(1.0 - alpha * np.exp(-loss_N), 0.0) + found.infinite
        assert ours >= exact - 1e-12


def test_beyond_the_last_loss_counts_as_it_is():
    # All of P and of Q at a ratio of e: at an infinite loss is only what the last one leaves.
    found = between(np.array([0.0, 0.5]), np.array([0.0, 0.5 / math.e]), 0, 0.5)
    assert found.infinite == pytest.approx(0.5 * (1.0 - math.exp(0.5 - 1.0)))
    assert found.mass_N.tolist() == pytest.approx([0.5 * math.exp(0.5 - 1.0)])
    assert found.index_N.tolist() == [1]


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.25, 0.2504, 3.0, 500.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.5])
def test_the_worst_of_a_promise_is_the_librarys(epsilon, delta):
    found = DiscretePMF.worst(epsilon, delta, 1e-3)
    theirs = pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=1e-3
    )
    expected = masses_of(theirs._pmf_remove)
    np.testing.assert_array_equal(found.index_N, expected.index_N)
    np.testing.assert_allclose(found.mass_N, expected.mass_N, rtol=1e-12)
    assert found.infinite == expected.infinite


def test_no_promise_is_an_infinite_loss():
    nothing = DiscretePMF.worst(0.0, 1.0, 1e-3)
    assert nothing.infinite == 1.0
    assert len(nothing.mass_N) == len(nothing.index_N) == 0


@pytest.mark.parametrize("mass", [0.0, 0.05, 0.3, 0.95])
def test_what_is_moved_to_infinity_counts_in_full_at_every_epsilon(mass):
    plain = DiscretePMF.dense(-3, np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.05]), 0.0)
    moved = plain.moved_to_infinity(mass)
    assert moved.mass_N.sum() + moved.infinite == pytest.approx(1.0)
    assert moved.infinite == pytest.approx(mass)
    for epsilon in np.linspace(-2.0, 2.0, 9):
        more = as_pmf(moved, 0.5).get_delta_for_epsilon(epsilon)
        less = as_pmf(plain, 0.5).get_delta_for_epsilon(epsilon)
        # The lowest losses hold the least of any δ: what is taken from them is lost to few.
        assert less <= more <= less + mass + 1e-12
        if epsilon >= 0.0 and mass <= 0.6:
            assert more == pytest.approx(less + mass)


def test_masses_that_would_underflow_are_infinite():
    masses = DiscretePMF.dense(0, np.array([0.5, 1e-250, 0.5]), 0.0)
    assert masses.index_N.tolist() == [0, 2]
    assert 0.0 < masses.infinite < 1e-200


@pytest.mark.parametrize(
    ("mass", "infinite"), [(-1e-3, 0.0), (math.nan, 0.0), (2.0, 0.0), (0.5, 2.0), (0.5, math.nan)]
)
def test_what_is_no_distribution_is_refused(mass, infinite):
    with pytest.raises(ValueError, match="not a distribution"):
        DiscretePMF.dense(0, np.array([mass]), infinite)
