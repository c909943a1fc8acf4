"""The event of randomized labels: what a user's labels cost, alone and together."""

import math

import pytest

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import RandomizedLabels
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.randomized_response import composed_epsilon


def cost(event: RandomizedLabels, delta: float = 1e-6) -> float:
    return accountant.epsilon([(event, 1)], adjacency=Adjacency.REPLACE_LABELS, delta=delta)


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 8.0])
def test_a_users_labels_cost_their_epsilon_and_no_more(epsilon):
    assert 0.999 * epsilon <= cost(RandomizedLabels(epsilon)) <= epsilon
    assert cost(RandomizedLabels(epsilon, delta=1e-6)) == pytest.approx(epsilon, rel=1e-6)


def test_a_delta_of_labels_is_not_free():
    assert cost(RandomizedLabels(1.0, delta=1e-5), delta=1e-6) == math.inf


@pytest.mark.parametrize(("each", "labels"), [(2.0, 5), (0.1, 50)])
def test_single_labels_add_up_to_what_their_user_has_spent(each, labels):
    wanted = composed_epsilon(each, labels, 1e-6)
    found = cost(RandomizedLabels(each, labels=labels))
    assert found >= wanted - 1e-9
    assert found == pytest.approx(wanted, rel=1e-3)
    assert found > 1.5 * each


def test_very_many_labels_are_unprotected():
    assert cost(RandomizedLabels(2.0, labels=251)) == math.inf


@pytest.mark.parametrize("adjacency", [a for a in Adjacency if a is not Adjacency.REPLACE_LABELS])
def test_only_labels_are_protected(adjacency):
    with pytest.raises(Unsupported, match="use replace-labels"):
        RandomizedLabels(1.0).loss(adjacency, 1e-3)


def test_it_is_read_back_from_a_ledger():
    event = RandomizedLabels(2.0, 0.0, 7)
    assert events.from_json(events.to_json(event)) == event


@pytest.mark.parametrize(
    ("epsilon", "delta", "labels"),
    [(0.0, 0.0, 1), (math.inf, 0.0, 1), (501.0, 0.0, 1), (1.0, 1.0, 1), (1.0, -0.1, 1), (1, 0, 0)],
)
def test_impossible_costs_are_refused(epsilon, delta, labels):
    with pytest.raises(ValueError, match=r"of labels must be|at least one label"):
        RandomizedLabels(epsilon, delta, labels)


@pytest.mark.parametrize("promised", [1 / 3, 0.3, 2.70005, 1e-5])
@pytest.mark.parametrize("label_delta", [0.0, 1e-5])
def test_one_promise_costs_no_more_than_was_promised(promised, label_delta):
    def cost(delta, times=1):
        events = {RandomizedLabels(promised, label_delta): times}
        labels = Adjacency.REPLACE_LABELS
        return accountant.epsilon(events.items(), adjacency=labels, delta=delta)

    assert promised - 2e-4 < cost(1e-5) <= promised
    if label_delta:
        assert cost(1e-5 * (1 - 1e-9)) == math.inf
    assert cost(2e-5, times=2) <= 2 * promised
