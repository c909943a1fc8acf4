import math

import pytest
from by_dp_accounting import loss_of

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.analytic_gaussian import delta_of
from murmuration.privacy.accounting.events import PoissonGaussian, TestedGaussian
from murmuration.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_REMOVE


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_failures_are_taken_out_of_delta(adjacency):
    failure, rounds, delta = 1e-7, 50, 1e-5
    found = accountant.epsilon(
        [(TestedGaussian(0.1, 3.0, failure), rounds)], adjacency=adjacency, delta=delta
    )
    left = accountant.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)],
        adjacency=adjacency,
        delta=delta - rounds * failure,
    )
    assert found == pytest.approx(left, rel=1e-3)
    assert found > accountant.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)], adjacency=adjacency, delta=delta
    )


def test_more_failures_than_delta_are_never_covered():
    event = TestedGaussian(0.1, 3.0, 1e-6)
    assert accountant.epsilon([(event, 20)], adjacency=ADD, delta=1e-5) == math.inf


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE])
@pytest.mark.parametrize(("failure", "delta"), [(1e-3, 0.05), (5e-3, 0.3), (1e-2, 0.6)])
def test_failures_count_in_full_whatever_delta_is(adjacency, failure, delta):
    found = accountant.epsilon(
        [(TestedGaussian(1.0, 0.5, failure), 1)], adjacency=adjacency, delta=delta
    )
    assert failure + delta_of(0.5 / adjacency.vectors_changed, found) <= delta


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE])
def test_one_round_adds_its_failures_to_delta_at_every_epsilon(adjacency):
    # That it dominates for each α is what lets it compose.
    plain = loss_of(PoissonGaussian(0.3, 1.0), adjacency, 1e-3)
    tested = loss_of(TestedGaussian(0.3, 1.0, 0.005), adjacency, 1e-3)
    for epsilon in (0.0, 0.1, 0.5, 2.0, 8.0):
        more = tested.get_delta_for_epsilon(epsilon) - plain.get_delta_for_epsilon(epsilon)
        assert more == pytest.approx(0.005, rel=1e-6)


def test_round_trip():
    event = TestedGaussian(0.1, 3.0, 1e-7)
    assert events.from_json(events.to_json(event)) == event


@pytest.mark.parametrize(
    "fields",
    [(0.0, 1.0, 1e-6), (1.1, 1.0, 1e-6), (0.1, 0.0, 1e-6), (0.1, 1.0, 0.0), (0.1, 1.0, 1.0)],
)
def test_impossible_parameters(fields):
    with pytest.raises(ValueError, match="must be"):
        TestedGaussian(*fields)
