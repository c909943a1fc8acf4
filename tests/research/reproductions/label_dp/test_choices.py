"""Choices among K responses: errors of known size, and verdicts that can fail."""

import math

import numpy as np
import pytest

from murmuration.research.reproductions.label_dp import choices
from murmuration.research.reproductions.label_dp.choices import MINIMISER, SGD, Cell
from murmuration.research.reproductions.label_dp.rates import BALL
from murmuration.research.reproductions.slopes import AGREES, BELOW, DIFFERS


def test_errors_are_what_fisher_says():
    """Where logits are small, d/dθ log P of a choice has covariance (1 − 1/K)/d, and a stated one
    tells 1/c² of it."""
    cell = Cell("n", 2**13, 4, 2.0)
    errors = choices.measured((cell, 60))
    # A stated choice has the chances (1 − r)/K + r·π, whose information is r² of the true one's.
    information = cell.n * cell.contrast**2 * (1 - 1 / 4) / choices.DIMENSION
    expected = math.sqrt(choices.DIMENSION / information)
    assert np.sqrt((errors[MINIMISER] ** 2).mean()) == pytest.approx(expected, rel=0.1)
    assert errors[MINIMISER].mean() < errors[SGD].mean() < BALL


def test_of_pairs_it_is_randomized_response():
    assert Cell("epsilon", 10, 2, 0.5).x == pytest.approx(1 / math.tanh(0.25))
    assert Cell("responses", 10, 5, 1.0).x == pytest.approx((math.e + 4) / (math.e - 1))
    assert Cell("n", 10, 5, 1.0).x == 10.0


@pytest.fixture
def powers(monkeypatch):
    """A function: errors become products of powers of n and c_K(ε)."""

    def put(n, c):
        def made(task):
            cell, seeds = task
            spread_R = np.linspace(1.0, 1.1, seeds)
            return dict.fromkeys((SGD, MINIMISER), spread_R * cell.n**n / cell.contrast**c)

        monkeypatch.setattr(choices, "in_processes", lambda _, tasks: map(made, tasks))
        return choices.label_dp_choices(True)

    return put


def test_verdicts(powers):
    def verdicts(rows):
        return {r["varied"]: r["verdict"] for r in rows if r["estimator"] == SGD and "verdict" in r}

    assert set(verdicts(powers(-0.5, 1.0)).values()) == {AGREES}
    assert verdicts(powers(-0.2, 1.5)) == dict.fromkeys(choices.EXPONENTS, DIFFERS)
    assert verdicts(powers(-0.8, 0.5)) == dict.fromkeys(choices.EXPONENTS, BELOW)
