"""Audits of randomized labels: the truth is known in closed form."""

import numpy as np
import pytest

from murmuration.audits.auditing import Task, threshold_bound
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.labels import TARGETS, audit_user, label_scores

LABELS = Adjacency.REPLACE_LABELS


@pytest.mark.parametrize("choices", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_matrix_attains_epsilon_and_no_more(choices, epsilon):
    told_KK = RandomizedResponse(epsilon, choices).matrix()
    loss = np.log(told_KK.max(axis=0) / told_KK.min(axis=0)).max()
    assert loss == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("name", TARGETS)
def test_power(name):
    target = TARGETS[name]
    found = target.measure(Task(LABELS, target.epsilon, 300_000, Randomness(1)))
    assert target.power * found.claimed < found.lower <= found.claimed


def test_one_label_reaches_its_truth():
    for name in ("randomized-response", "randomized-response:four"):
        found = TARGETS[name].measure(Task(LABELS, 3.0, 300_000, Randomness(2)))
        assert 0.95 * 3.0 < found.lower <= 3.0


def test_a_user_with_delta_gets_more_per_label_and_still_keeps_the_promise():
    task = Task(LABELS, 2.0, 200_000, Randomness(3))
    found = audit_user(task, delta=1e-3)
    assert found.delta == 1e-3
    assert 1.5 < found.lower <= found.claimed


def test_a_flip_probability_that_is_too_small_is_found():
    honest, weak = RandomizedResponse(1.0), RandomizedResponse(1.2)
    task = Task(LABELS, 1.0, 200_000, Randomness(4))
    scores = label_scores(honest, task, answer=weak.answer)
    assert threshold_bound(scores, delta=0.0, confidence=0.99) > 1.0
    assert len(scores.first_N) == 200_000
    assert np.isfinite(scores.first_N).all()
