"""Audits of noisy sums: near to the truth, never beyond it."""

import math

import numpy as np
import pytest
from scipy import stats

from murmuration.audits.auditing import DELTA, Task, threshold_bound
from murmuration.audits.pipeline import log_ratio
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.accountant import noise_multiplier_for
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.research.audits import gaussian
from murmuration.research.audits.gaussian import (
    TARGETS,
    audit_banded,
    audit_buffered,
    audit_discrete,
    audit_gaussian,
    audit_joint,
    audit_poisson,
    sampled_sums,
)


def task(adjacency=Adjacency.ADD_REMOVE, epsilon=1.0, trials=100_000, seed=0):
    return Task(adjacency, epsilon, trials, Randomness(seed))


def test_the_log_ratio_is_that_of_the_sampled_mixture():
    x_N = np.linspace(-5, 5, 11)
    for q, sigma in ((0.1, 0.8), (1.0, 2.0)):
        without = stats.norm.pdf(x_N, 0, sigma)
        expected = (1 - q) * without + q * stats.norm.pdf(x_N, 1, sigma)
        np.testing.assert_allclose(np.exp(log_ratio(x_N, q, sigma)), expected / without)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_a_gaussian_is_found_to_cost_what_it_claims(adjacency):
    found = audit_gaussian(task(adjacency, trials=300_000))
    assert found.lower <= found.claimed
    assert found.lower > 0.5 * found.claimed
    assert 0.9 * found.claimed < found.fit < 1.01 * found.claimed
    assert found.claimed == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_sampled_sums_at_a_delta_that_trials_can_see(adjacency):
    """At delta = 0.01 the event that attains epsilon is common enough."""
    scores = sampled_sums(task(adjacency), rounds=50, probability=0.05).scores
    sigma = noise_multiplier_for(1.0, delta=DELTA, probability=0.05, rounds=50, adjacency=adjacency)
    truth = accountant.epsilon(
        [(PoissonGaussian(0.05, sigma), 50)], adjacency=adjacency, delta=0.01
    )
    found = threshold_bound(scores, delta=0.01, confidence=0.99)
    assert 0.6 * truth < found <= truth


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT])
def test_banded_noise_is_found_to_cost_nearly_what_it_claims(adjacency):
    measured = audit_banded(task(adjacency, trials=400_000))
    assert 0.5 * measured.claimed < measured.lower <= measured.claimed
    assert measured.claimed == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(Unsupported):
        audit_banded(task(Adjacency.REPLACE, trials=10))


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_buffered_noise_is_found_to_cost_nearly_what_it_claims(adjacency):
    measured = audit_buffered(task(adjacency, trials=400_000))
    assert 0.5 * measured.claimed < measured.lower <= measured.claimed
    assert measured.claimed == pytest.approx(1.0, abs=1e-3)


def test_two_thirds_of_the_noise_are_not_enough():
    class Weak(GaussianSum):
        @property
        def std(self):
            return super().std * 2 / 3

    found = audit_gaussian(task(trials=2_000_000), Weak)
    assert found.lower > found.claimed
    sampled = audit_poisson(task(trials=100_000), Weak, rounds=4, probability=1.0)
    assert sampled.fit is None
    assert sampled.claimed == pytest.approx(1.0, abs=1e-3)


def test_coins_that_come_up_too_often_are_found():
    class Everybody(PoissonSampler):
        def draw(self, names_N, source, round_):
            return np.arange(len(names_N))

    def make(sampler, clip, noise, adjacency):
        return GaussianSum(Everybody(sampler.probability), clip, noise, adjacency)

    found = audit_poisson(task(trials=50_000), make, rounds=10, probability=0.05)
    assert found.lower > found.claimed


@pytest.mark.slow
def test_a_joint_release_stays_below_its_claim_and_a_weak_one_does_not():
    honest = audit_joint(task(epsilon=4.0, trials=3000))
    assert 0.2 * honest.claimed < honest.lower <= honest.claimed

    class Weak(JointSum):
        @property
        def std(self):
            return super().std / 8

    found = audit_joint(task(epsilon=1.0, trials=3000), Weak)
    assert found.lower > found.claimed


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.slow
def test_about_a_centre_the_same_holds(adjacency):
    found = audit_joint(task(adjacency, 4.0, 2000), centred=True)
    assert 0.1 * found.claimed < found.lower <= found.claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "poisson-gaussian"])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_power(name, adjacency, epsilon):
    target = TARGETS[name]
    found = target.measure(task(adjacency, epsilon, target.trials, seed=5))
    assert target.power * found.claimed <= found.lower <= found.claimed
    assert not math.isinf(found.lower)


@pytest.mark.skipif(not installed(), reason="needs OpenDP")
def test_discrete_noise_costs_about_what_a_gaussian_does():
    found = audit_discrete(task(epsilon=2.0, trials=20_000))
    assert 0.3 * found.claimed < found.lower <= found.claimed
    assert 0.7 * found.claimed < found.fit < 1.02 * found.claimed


def test_discrete_noise_without_its_library_is_refused(monkeypatch):
    monkeypatch.setattr(gaussian, "installed", lambda: False)
    with pytest.raises(ValueError, match="needs OpenDP"):
        audit_discrete(task(epsilon=2.0, trials=20_000))
