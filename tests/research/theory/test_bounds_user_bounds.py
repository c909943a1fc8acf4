"""AUP-RLHF's bounds against hand-computed values and the scaling that the theorems state."""

import math
from dataclasses import replace

import pytest

from murmuration.research.theory.bounds import Case, user_privacy_bounds

CASE = Case(400, 9, 16, epsilon=0.5, delta=1e-6, feature_bound=2.0, model_bound=0.5)


def at(case):
    return {bound.source: bound for bound in user_privacy_bounds(case)}


def test_by_hand():
    found = at(CASE)
    gamma, kappa = 1 / (2 + math.exp(-2) + math.exp(2)), 2 * 4 / 16
    assert found["A Thm 2"].value == pytest.approx(16 / 60 + 4 / (3 * 400 * 0.5))
    assert found["A Thm 6"].value == pytest.approx(16 / (2 * 60) + 4 / (3 * 400 * 0.500001))
    ratio = (math.exp(0.5 / 9) + 1) / (math.exp(0.5 / 9) - 1)
    semi = ratio * math.sqrt((16 + math.log(20)) / 3600) / gamma
    assert found["A Thm 1, proof"].value == pytest.approx(semi)
    assert found["A Thm 1"].value == pytest.approx(semi / math.sqrt(kappa))
    upper = 2 / (kappa * gamma) * (1 / 60 + 4 / (3 * 400 * 0.5))
    assert found["A Thm 4"].value == pytest.approx(upper)


def test_the_proofs_constants():
    """R ≥ d²/(16‖X‖²) and R ≥ dΔ²/2·(0.9 − 10√m·nΔ(ε + δ)), whichever is more."""
    budget = 0.5 + 1e-6
    sampling = 16**2 / (16 * 3600 * (2 * 2.0) ** 2)
    delta = 0.04 / (3 * 400 * budget)
    private = 16 * delta**2 / 2 * (0.9 - 10 * 3 * 400 * delta * budget)
    proved = at(CASE)["A Thm 6"].proved
    assert proved == pytest.approx(math.sqrt(max(sampling, private)))
    scarce = at(replace(CASE, epsilon=1e-4))["A Thm 6"]
    assert scarce.proved > proved
    assert scarce.proved < scarce.value


def test_how_they_fall_with_judgements():
    """Randomized response gets worse with m, the adaptive algorithm better: the paper's point."""
    one, many = (at(replace(CASE, judgements=m, epsilon=0.1)) for m in (1, 100))
    assert many["A Thm 1"].value / one["A Thm 1"].value == pytest.approx(10, rel=0.01)
    assert many["A Thm 4"].value / one["A Thm 4"].value == pytest.approx(0.1)
    assert many["A Thm 2"].value / one["A Thm 2"].value == pytest.approx(0.1)


def test_where_one_judgement_each_meets_the_paper_on_labels():
    from murmuration.research.theory.bounds import label_privacy_bounds

    case = replace(CASE, judgements=1)
    lower = {b.source: b for b in label_privacy_bounds(case)}["L Thm 5.1"].value
    assert lower <= at(case)["A Thm 6"].value <= math.sqrt(2) * lower


def test_several_responses():
    found = at(replace(CASE, responses=4))
    assert "A Thm 4" not in found
    gamma = math.exp(-4 * 2 * 0.5) / 2
    upper = 16 * 2 / (0.5 * gamma) * (1 / 60 + 4 / (3 * 400 * 0.5))
    assert found["A Thm 5"].value == pytest.approx(upper)


def test_beyond_its_range():
    assert not at(replace(CASE, epsilon=11.0))["A Thm 4"].applies
