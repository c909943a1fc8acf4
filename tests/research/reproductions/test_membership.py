"""Attacks on users' membership, and what they may find."""

import numpy as np
import pytest

import murmuration.research.reproductions.membership
from murmuration.research.reproductions.membership import (
    ATTACKS,
    RATES,
    Shadows,
    curve,
    limit,
    membership,
    scores,
)


def test_the_limit_is_that_of_epsilon_and_delta():
    fpr = np.linspace(0, 1, 101)
    allowed = limit(fpr, 1.0, 0.01)
    assert allowed[0] == 0.01
    assert allowed[-1] == 1.0
    assert (np.diff(allowed) >= 0).all()
    assert (allowed >= fpr).all()
    # Randomized response attains the corner.
    corner = 1 / (1 + np.e)
    assert limit(corner, 1.0, 0.0) == pytest.approx(1 - corner)
    assert limit(0.1, 800.0, 0.0) == 1.0


def test_a_curve_of_perfect_and_of_no_knowledge():
    in_SN = np.random.default_rng(0).random((20, 50)) < 0.5
    fpr, tpr = curve(in_SN.astype(float), in_SN)
    assert np.trapezoid(tpr, fpr) == pytest.approx(1.0, abs=0.01)
    fpr, tpr = curve(np.random.default_rng(1).random(in_SN.shape), in_SN)
    assert np.trapezoid(tpr, fpr) == pytest.approx(0.5, abs=0.05)


def test_likelihood_ratios_know_each_user_and_leave_the_attacked_run_out():
    generator = np.random.default_rng(2)
    in_SN = generator.random((60, 30)) < 0.5
    middle_N = generator.normal(scale=50.0, size=30)
    logit_SN = middle_N + in_SN * 3.0 + generator.normal(size=in_SN.shape)
    shadows = Shadows(in_SN, -logit_SN, logit_SN)
    areas = {}
    for attack in ATTACKS:
        fpr, tpr = curve(scores(shadows, attack), in_SN)
        areas[attack] = np.trapezoid(tpr, fpr)
    assert areas["likelihood ratio"] > 0.97
    assert areas["loss threshold"] < 0.6
    nothing = Shadows(in_SN, logit_SN, generator.normal(size=in_SN.shape))
    fpr, tpr = curve(scores(nothing, "likelihood ratio"), in_SN)
    assert np.trapezoid(tpr, fpr) == pytest.approx(0.5, abs=0.05)


def test_a_quick_run_keeps_to_the_limit(monkeypatch):
    monkeypatch.setattr(murmuration.research.reproductions.membership, "ROUNDS", 8)
    rows, _ = membership(quick=True, epsilons=(None, 1.0))
    assert [(row["attack"], row["epsilon"]) for row in rows] == [
        (attack, epsilon) for epsilon in (None, 1.0) for attack in ATTACKS
    ]
    for row in rows[2:]:
        assert row["tpr_at_0.5"] <= row["limit_at_0.5"]
    assert rows[0]["limit_at_0.1"] is None
    assert rows[0]["auc"] > rows[2]["auc"] - 0.05


@pytest.mark.parametrize(("found", "said"), [(0.01, "No attack"), (0.9, "An attack")])
def test_what_is_said_is_what_the_rows_say(monkeypatch, found, said):
    limits = {f"{name}_at_{rate:g}": 0.5 for rate in RATES for name in ("tpr", "limit")}
    row = {"attack": ATTACKS[0], "epsilon": 1.0, **limits, "tpr_at_0.1": found}
    free = {**row, "epsilon": None, "tpr_at_0.1": 1.0}
    module = murmuration.research.reproductions.membership
    monkeypatch.setattr(module, "membership", lambda quick: ([free, row], {}))
    assert module.reproduced(True).remarks[0].startswith(said)
