"""The private covariance: sensitivity, noise of the promised size, and the shift."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privacy.adjacency import Adjacency, Unsupported
from privacy.analytic_gaussian import least_noise
from privacy.covariance import CovarianceRelease, symmetric_noise
from privacy.events import PoissonGaussian
from privacy.ledger import BudgetExceeded, Ledger
from privacy.randomness import Randomness


def made(adjacency=Adjacency.REPLACE, length=1.5, noise=3.0):
    return CovarianceRelease(length, noise, adjacency)


def ledger(tmp_path, adjacency=Adjacency.REPLACE, budget=None):
    return Ledger(tmp_path / "ledger.jsonl", adjacency=adjacency, delta=1e-5, budget=budget)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_sensitivity(seed, mine, others):
    """Whatever a user is replaced by, the sum moves by √2 length²; by length² if they go."""
    generator, plan = np.random.default_rng(seed), made()
    x_RD = generator.standard_normal((mine + others, 3)) * 10.0 ** generator.integers(-3, 4)
    one = plan.summed(x_RD[:mine], np.array([0, mine]))
    other = plan.summed(x_RD[mine:], np.array([0, others]))
    assert np.linalg.norm(one) <= plan.length**2
    assert np.linalg.norm(one - other) <= math.sqrt(2) * plan.length**2
    np.testing.assert_allclose(
        plan.summed(x_RD, np.array([0, mine, mine + others])), one + other, atol=1e-9
    )


def test_sensitivity_is_attained():
    plan = made()
    one, other = (plan.summed(9.0 * np.eye(2)[[side]], np.array([0, 1])) for side in (0, 1))
    assert np.linalg.norm(one - other) == pytest.approx(math.sqrt(2) * plan.length**2)


def test_the_event_is_a_gaussian_of_that_sensitivity(tmp_path):
    """Noise for ε and the true sensitivity, √2 length², costs ε under replace."""
    noise = math.sqrt(2) * least_noise(2.0, 1e-5)
    assert made(noise=noise).event == PoissonGaussian(1.0, math.sqrt(2) * noise)
    with ledger(tmp_path) as open_ledger:
        made(noise=noise).release(np.eye(2), ledger=open_ledger, source=Randomness(0))
        assert open_ledger.epsilon() == pytest.approx(2.0, rel=1e-3)
    assert made(Adjacency.ZERO_OUT, noise=2.0).event == PoissonGaussian(1.0, 2.0)


def test_broken_rows_count_as_zero():
    plan, x_RD = made(), np.eye(3)
    x_RD[1, 0], x_RD[2, 1] = math.nan, math.inf
    np.testing.assert_allclose(
        plan.summed(x_RD, np.array([0, 1, 3])), np.diag([1.0, 0.0, 0.0]), atol=1e-9
    )
    huge = plan.summed(np.array([[1e200, 1e200]]), np.array([0, 1]))
    assert np.isfinite(huge).all()
    assert np.linalg.norm(huge) <= plan.length**2


def test_noise_is_as_promised_not_more_and_not_less(tmp_path):
    plan, dimension = made(), 40
    with ledger(tmp_path) as open_ledger:
        noisy = plan.release(np.zeros((dimension, dimension)), ledger=open_ledger,
                             source=Randomness(3))  # fmt: skip
    assert np.array_equal(noisy, noisy.T)
    upper = noisy[np.triu_indices(dimension, 1)] * math.sqrt(2)
    numbers = np.concatenate([np.diag(noisy), upper]) / plan.std
    score = float(numbers @ numbers)
    tail = min(stats.chi2.cdf(score, len(numbers)), stats.chi2.sf(score, len(numbers)))
    assert tail > 1e-6
    diagonal = float(np.diag(noisy) @ np.diag(noisy)) / plan.std**2
    assert stats.chi2.ppf(1e-6, dimension) < diagonal < stats.chi2.isf(1e-6, dimension)
    assert plan.std == pytest.approx(3.0 * 1.5**2)


def test_the_shift_keeps_it_positive_as_often_as_promised():
    plan, dimension, alpha = made(length=1.0, noise=1.0), 12, 0.2
    generator = np.random.default_rng(0)
    root = math.sqrt(2 * dimension) + math.sqrt(2 * math.log(1 / alpha))
    below = [
        np.linalg.eigvalsh(symmetric_noise(dimension, generator))[0] < -root for _ in range(500)
    ]
    assert np.mean(below) <= alpha
    for _ in range(20):
        noisy = symmetric_noise(dimension, generator)
        positive, shift = plan.positive(noisy, alpha)
        assert shift == pytest.approx(root)
        assert np.linalg.eigvalsh(positive)[0] >= -1e-9
    strong = noisy + 100 * np.eye(dimension)
    np.testing.assert_allclose(
        plan.positive(strong, alpha)[0], strong + root * np.eye(dimension), atol=1e-9
    )


def test_seeded_releases_repeat_and_the_budget_holds(tmp_path):
    plan = made()
    with ledger(tmp_path) as open_ledger:
        first = plan.release(np.eye(2), ledger=open_ledger, source=Randomness(1))
        spent = open_ledger.epsilon()
        again = plan.release(np.eye(2), ledger=open_ledger, source=Randomness(1))
        assert np.array_equal(first, again)
        assert open_ledger.epsilon() == spent
    (tmp_path / "ledger.jsonl").unlink()
    with ledger(tmp_path, budget=0.1) as small, pytest.raises(BudgetExceeded):
        plan.release(np.eye(2), ledger=small, source=Randomness(1))


def test_refusals(tmp_path):
    with pytest.raises(Unsupported, match="public"):
        made(Adjacency.REPLACE_LABELS)
    with pytest.raises(ValueError, match="noise multiplier"):
        made(noise=0.0)
    with pytest.raises(ValueError, match="bound on rows"):
        made(length=math.nan)
    plan = made()
    with ledger(tmp_path) as open_ledger:
        for bad in (np.full((2, 2), math.nan), np.zeros(3), np.array([[0.0, 1.0], [0.0, 0.0]])):
            with pytest.raises(ValueError, match="covariance"):
                plan.release(bad, ledger=open_ledger, source=Randomness(1))
        with pytest.raises(ValueError, match="ledger is for"):
            made(Adjacency.ZERO_OUT).release(np.eye(2), ledger=open_ledger, source=Randomness(1))
    with pytest.raises(ValueError, match="alpha"):
        plan.positive(np.eye(2), 1.0)
