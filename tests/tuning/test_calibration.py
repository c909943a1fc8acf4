"""How much each candidate may cost: met from below, and refused where nothing is enough."""

import pytest

from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.selection.random_stopping import CandidateCost
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.tuning.calibration import calibrated

TERMS = {"delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}


def candidates(epsilon):
    """Full batches, whose noise needs no search."""
    return [CandidateCost(1.0, 12.0 / epsilon, rounds) for rounds in (3, 5)]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_the_budget_is_met_from_below(eta):
    stopping = StoppingTime.with_mean(6.0, eta)
    met = calibrated(3.0, stopping=stopping, candidates=candidates, **TERMS)
    spent = accountant.epsilon([(met.event, 1)], **TERMS)
    assert spent == met.epsilon
    assert 0.99 * 3.0 <= spent <= 3.0
    assert met.event.candidates == tuple(
        sorted(candidates(met.candidate_epsilon), key=lambda one: one.rounds)
    )


def test_too_little_is_refused_and_says_what_to_do():
    stopping = StoppingTime.with_mean(500.0, 3.0)
    with pytest.raises(ValueError, match="expect fewer runs"):
        calibrated(0.01, stopping=stopping, candidates=lambda _: [CandidateCost(1.0, 9.0, 9)],
                   **TERMS)  # fmt: skip
