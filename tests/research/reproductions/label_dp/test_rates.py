"""Rates of Chowdhury et al. 2024: errors of known size, and verdicts that can fail."""

import math

import numpy as np
import pytest

from murmuration.research.reproductions.label_dp import rates
from murmuration.research.reproductions.label_dp.rates import (
    DEBIASED,
    L2,
    OBJECTIVE,
    PRIVATE_PART,
    SEMI,
    SGD,
    Cell,
)
from murmuration.research.reproductions.slopes import AGREES, BELOW, DIFFERS, EASIER, REACHES


@pytest.fixture(scope="module")
def errors():
    return rates.measured((Cell("n", 2**13, 4, 1.0), 12))


def test_errors_are_what_fisher_says(errors):
    """Where logits are small the minimiser's covariance is (n/4 · 2/d)⁻¹ · c², in d dimensions."""
    n, d, c = 2**13, 4, 1 / math.tanh(0.5)
    expected = c * d * math.sqrt(2 / n)
    assert np.sqrt((errors[DEBIASED, L2] ** 2).mean()) == pytest.approx(expected, rel=0.3)
    assert np.sqrt((errors[DEBIASED, SEMI] ** 2).mean()) == pytest.approx(
        expected * math.sqrt(2 / d), rel=0.3
    )


def test_noise_moves_the_minimiser_by_noise_over_curvature(errors):
    n, d = 2**13, 4
    std = 2 * math.sqrt(2 * math.log(2 / 1e-5) + 1.0)
    expected = std * math.sqrt(d) / (n / 4 * 2 / d)
    assert np.sqrt((errors[PRIVATE_PART, L2] ** 2).mean()) == pytest.approx(expected, rel=0.35)


def test_the_centre_costs_less_and_one_pass_more(errors):
    mean = {name: errors[name, L2].mean() for name in (DEBIASED, SGD, OBJECTIVE)}
    assert mean[OBJECTIVE] < mean[DEBIASED] < mean[SGD] < rates.BALL


@pytest.fixture
def powers(monkeypatch):
    """A function: errors become products of powers of n, d and the x of ε."""

    def put(n, d, e):
        def made(task):
            cell, seeds = task
            spread_R = np.linspace(1.0, 1.1, seeds)
            return {
                (name, norm): spread_R
                * cell.n**n
                * cell.dimension**d
                * (cell.x(name) if cell.varied == "epsilon" else 1.0) ** e
                for name in (DEBIASED, SGD, OBJECTIVE, PRIVATE_PART)
                for norm in (SEMI, L2)
            }

        monkeypatch.setattr(rates, "in_processes", lambda _, tasks: map(made, tasks))
        rows = [row for row in rates.label_dp_bounds(True) if "theorem" in row]
        return {(row["theorem"], row["varied"]): row["verdict"] for row in rows}

    return put


def test_errors_at_the_rate_agree_and_others_do_not(powers):
    verdicts = powers(-0.5, 0.5, 1.0)
    assert {verdicts["L Thm 4.2", varied] for varied in rates.VARIED} == {AGREES}
    assert {verdicts["L Thm 3.1", varied] for varied in rates.VARIED} == {REACHES}
    assert verdicts["L Thm 4.5", "dimension"] == BELOW
    assert verdicts["L Thm 3.2", "dimension"] == EASIER
    assert verdicts["L Thm 5.3, private term", "n"] == DIFFERS  # falls too slowly


def test_x_is_what_the_rate_has():
    cell = Cell("epsilon", 10, 2, 0.5)
    assert cell.x(DEBIASED) == pytest.approx((math.e**0.5 + 1) / (math.e**0.5 - 1))
    assert cell.x(OBJECTIVE) == 2.0
    assert Cell("n", 10, 2, 0.5).x(SGD) == 10.0
