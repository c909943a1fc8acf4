"""Greedy and pessimistic policies: against brute force, certificates, and where they differ."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.research.theory import policies
from murmuration.research.theory.policies import ConfidenceSet


def drawn(seed, prompts=6, responses=3, dimension=4, radius=1.0):
    generator = np.random.default_rng(seed)
    phi_SAD = generator.standard_normal((prompts, responses, dimension))
    root_DD = generator.standard_normal((dimension, dimension))
    precision_DD = root_DD @ root_DD.T + 0.1 * np.eye(dimension)
    return phi_SAD, ConfidenceSet(generator.standard_normal(dimension), precision_DD, radius)


@given(st.integers(0, 10**6), st.floats(0.0, 10.0))
def test_the_worst_model_is_in_the_set_and_is_the_worst(seed, radius):
    phi_SAD, known = drawn(seed, radius=radius)
    phi_D = phi_SAD[0, 0]
    worst_D = known.worst(phi_D)
    lowest = known.lowest(phi_D[None])[0]
    assert phi_D @ worst_D == pytest.approx(lowest)
    off_D = worst_D - known.theta_D
    assert policies.semi_norm(off_D, known.precision_DD) == pytest.approx(radius, abs=1e-6)
    # Points on the ellipsoid's surface are no worse.
    generator = np.random.default_rng(seed)
    root_DD = np.linalg.cholesky(np.linalg.inv(known.precision_DD))
    around_KD = generator.standard_normal((50, 4))
    around_KD /= np.linalg.norm(around_KD, axis=1, keepdims=True)
    assert (
        phi_D @ (known.theta_D[:, None] + radius * root_DD @ around_KD.T) >= lowest - 1e-6
    ).all()


def test_no_uncertainty_is_greedy():
    phi_SAD, known = drawn(0, radius=0.0)
    by_score = policies.greedy(phi_SAD, known.theta_D)
    assert (policies.safest(phi_SAD, known) == by_score).all()
    found = policies.pessimistic(phi_SAD, known)
    best = (phi_SAD @ known.theta_D).max(axis=1).mean()
    assert found.value == pytest.approx(best)
    assert found.slack == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_pessimistic_policy_is_the_best_of_all_that_do_not_randomize(seed):
    phi_SAD, known = drawn(seed, prompts=5)
    found = policies.pessimistic(phi_SAD, known, steps=2000, tolerance=1e-4)
    certain = [
        known.lowest(phi_SAD[np.arange(5), list(choice)].mean(axis=0)[None])[0]
        for choice in itertools.product(range(3), repeat=5)
    ]
    assert found.value >= max(certain) - found.slack - 1e-9
    assert found.slack < 0.05
    np.testing.assert_allclose(found.chance_SA.sum(axis=1), 1.0)
    assert (found.chance_SA >= 0).all()


@given(st.integers(0, 10**6))
def test_certificate_and_order(seed):
    """No policy's worst case beats the certificate; greedy and safest are policies."""
    phi_SAD, known = drawn(seed)
    found = policies.pessimistic(phi_SAD, known)
    for chance_SA in (policies.greedy(phi_SAD, known.theta_D), policies.safest(phi_SAD, known)):
        mean_D = np.einsum("sad,sa->d", phi_SAD, chance_SA) / len(phi_SAD)
        worst = known.lowest(mean_D[None])[0]
        assert worst <= found.value + found.slack + 1e-9


@given(st.integers(0, 10**6), st.floats(0.1, 3.0))
def test_the_gap_is_bounded_where_the_truth_is_in_the_set(seed, radius):
    """2r‖E φ(s, π*(s))‖ in the norm of the set, and what the solver leaves."""
    phi_SAD, known = drawn(seed, radius=radius)
    generator = np.random.default_rng(seed + 1)
    truth_D = known.worst(generator.standard_normal(4))
    assert policies.gap(phi_SAD, np.full((6, 3), 1 / 3), truth_D) >= 0.0
    found = policies.pessimistic(phi_SAD, known)
    best_SA = policies.greedy(phi_SAD, truth_D)
    mean_D = np.einsum("sad,sa->d", phi_SAD, best_SA) / 6
    spread = np.sqrt(mean_D @ np.linalg.solve(known.precision_DD, mean_D))
    assert (
        policies.gap(phi_SAD, found.chance_SA, truth_D) <= 2 * radius * spread + found.slack + 1e-9
    )


def test_a_gamble_on_what_is_not_known():
    """The second response scores better, in a direction that no judgement has looked at."""
    phi_SAD = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    known = ConfidenceSet(np.array([0.5, 0.6]), np.diag([100.0, 1.0]), 1.0)
    assert policies.greedy(phi_SAD, known.theta_D).tolist() == [[0.0, 1.0]]
    assert policies.safest(phi_SAD, known).tolist() == [[1.0, 0.0]]
    found = policies.pessimistic(phi_SAD, known, steps=5000, tolerance=1e-6)
    # Mixing hedges: the worst model cannot be bad in both directions at once.
    assert 0.85 < found.chance_SA[0, 0] <= 1.0
    assert found.value >= 0.4


def test_gap():
    phi_SAD = np.array([[[1.0], [0.0]], [[0.0], [3.0]]])
    truth_D = np.array([2.0])
    assert policies.gap(phi_SAD, policies.greedy(phi_SAD, truth_D), truth_D) == 0.0
    assert policies.gap(phi_SAD, np.full((2, 2), 0.5), truth_D) == pytest.approx((1 + 3) / 2)


def test_semi_norm_ignores_what_it_cannot_see():
    assert policies.semi_norm(np.array([3.0, 7.0]), np.diag([4.0, 0.0])) == 6.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), np.eye(3), 1.0), "do not belong together"),
        ((np.zeros(2), np.eye(2), -1.0), "not negative"),
        ((np.zeros(2), np.array([[1.0, 0.5], [0.0, 1.0]]), 1.0), "symmetric"),
        ((np.zeros(2), np.diag([1.0, 0.0]), 1.0), "add a ridge"),
    ],
)
def test_what_is_no_confidence_set(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConfidenceSet(*arguments)


def test_contains_its_centre_and_not_what_is_far():
    _, known = drawn(3)
    assert known.contains(known.theta_D)
    assert not known.contains(known.theta_D + 1e3)


def test_where_nothing_is_known_nothing_is_promised():
    phi_SAD, known = drawn(4, prompts=40, radius=100.0)
    found = policies.pessimistic(phi_SAD, known)
    assert -0.05 < found.value <= 1e-9
    assert found.slack <= -found.value + 1e-9
