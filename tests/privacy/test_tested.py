import math

import pytest

from privacy import accounting, events
from privacy.adjacency import Adjacency
from privacy.events import PoissonGaussian, TestedGaussian
from privacy.tested import LARGEST_DELTA, OVERCHARGE

ADD = Adjacency.ADD_REMOVE


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_failures_are_taken_out_of_delta(adjacency):
    failure, rounds, delta = 1e-7, 50, 1e-5
    found = accounting.epsilon(
        [(TestedGaussian(0.1, 3.0, failure), rounds)], adjacency=adjacency, delta=delta
    )
    left = accounting.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)],
        adjacency=adjacency,
        delta=delta - rounds * failure,
    )
    assert found == pytest.approx(left, rel=1e-3)
    assert found > accounting.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)], adjacency=adjacency, delta=delta
    )


def test_more_failures_than_delta_are_never_covered():
    event = TestedGaussian(0.1, 3.0, 1e-6)
    assert accounting.epsilon([(event, 20)], adjacency=ADD, delta=1e-5) == math.inf


@pytest.mark.parametrize("delta_g", [1e-12, 1e-6, 1e-3, 0.005, 0.0099])
@pytest.mark.parametrize("failures", [1e-12, 1e-6, 1e-3, 0.004, 0.0097])
def test_the_overcharge_covers_what_composition_leaves_out(delta_g, failures):
    # What holds is T f + δ_G; what is charged is 1 − (1 − 1.02 f)^T (1 − δ_G).
    for rounds in (1, 10, 1000):
        f = failures / rounds
        survive = math.exp(rounds * math.log1p(-OVERCHARGE * f))
        charged = -math.expm1(math.log(survive) + math.log1p(-delta_g))
        if charged <= LARGEST_DELTA:
            assert charged >= rounds * f + delta_g


def test_round_trip():
    event = TestedGaussian(0.1, 3.0, 1e-7)
    assert events.from_json(events.to_json(event)) == event


@pytest.mark.parametrize(
    "fields",
    [(0.0, 1.0, 1e-6), (1.1, 1.0, 1e-6), (0.1, 0.0, 1e-6), (0.1, 1.0, 0.0), (0.1, 1.0, 0.5)],
)
def test_impossible_parameters(fields):
    with pytest.raises(ValueError, match="must be"):
        TestedGaussian(*fields)
