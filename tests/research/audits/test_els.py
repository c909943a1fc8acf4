"""Audits of sampled examples."""

import numpy as np
import pytest
from scipy import stats

from murmuration.audits.auditing import Task
from murmuration.audits.pipeline import log_ratio as sampled_ratio
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.els import TARGETS, audit_examples, log_ratio


def test_the_log_ratio_is_that_of_the_binomial_mixture():
    x_N = np.linspace(-3, 6, 10)
    weights = stats.binom.pmf(range(4), 3, 0.2)
    mixture = sum(w * stats.norm.pdf(x_N, k, 1.5) for k, w in enumerate(weights))
    expected = np.log(mixture / stats.norm.pdf(x_N, 0, 1.5))
    np.testing.assert_allclose(log_ratio(x_N, 3, 0.2, 1.5), expected)
    np.testing.assert_allclose(log_ratio(x_N, 1, 0.3, 1.5), sampled_ratio(x_N, 0.3, 1.5))


def test_a_quick_audit_is_consistent():
    found = audit_examples(Task(Adjacency.ADD_REMOVE, 4.0, 50_000, Randomness(0)))
    assert 0.2 * found.claimed < found.lower <= found.claimed
    assert found.claimed == pytest.approx(4.0, rel=1e-3)


def test_coins_that_come_up_too_often_are_found(monkeypatch):
    import murmuration.research.audits.els

    monkeypatch.setattr(
        murmuration.research.audits.els,
        "bernoulli",
        lambda words_N, p: np.ones(len(words_N), dtype=bool),
    )
    found = audit_examples(Task(Adjacency.ADD_REMOVE, 1.0, 50_000, Randomness(0)))
    assert found.lower > found.claimed


def test_group_privacy_holds_where_users_are_replaced_and_els_claims_nothing():
    found = TARGETS["group"].measure(Task(Adjacency.REPLACE, 4.0, 30_000, Randomness(0)))
    assert 0.0 < found.lower <= found.claimed
    assert Adjacency.REPLACE not in TARGETS["els"].adjacencies
