"""What reports and cards say of attackers and of a second accountant."""

import math
from dataclasses import asdict

import pytest

from murmuration.privacy.accounting.second_opinion import SecondOpinion
from murmuration.privacy.attack_bounds import AttackBounds
from murmuration.reporting.evidence import (
    attack_rows,
    second_opinion_rows,
    second_opinion_text,
)

ONE, TENTH = (f"Membership inference: TPR at {share} % FPR (upper bound)" for share in ("1", "0.1"))
HALF = "Attacker's posterior, from a 50 % prior"
MU = "μ-GDP (upper bound)"
RUN = {"epsilon": 3.0, "delta": 1e-5, "attack": asdict(AttackBounds(0.05281, 0.008697, 0.7192))}


def test_what_attacks_reach_is_rounded_up():
    assert attack_rows(RUN) == {
        ONE: "at most 5.3 %",
        TENTH: "at most 0.87 %",
        HALF: "at most 95.3 %",
        "Attacker's posterior, from a 1 % prior": "at most 16.9 %",
        MU: "0.720, but for δ = 1e-5",
    }


def test_where_nothing_is_promised():
    assert attack_rows({"epsilon": None, "delta": 1e-5}) == {}
    bounds = asdict(AttackBounds(1.0, 1.0, None))
    nothing = attack_rows({"epsilon": math.inf, "delta": 1e-5, "attack": bounds})
    assert (nothing[ONE], nothing[HALF], nothing[MU]) == ("at most 100 %", "at most 100 %", "∞")


@pytest.mark.parametrize("theirs", [3.25400001, None])
def test_both_accountants_are_told_and_what_is_whose(theirs):
    why = "" if theirs else "groups of 64, over 32"
    opinion = SecondOpinion("dp-accounting 0.6.0", 3.254, theirs, why, ("hold-out: each …",))
    rows = second_opinion_rows({"second_opinion": opinion.to_json(), "epsilon": 3.26})
    assert rows == {
        "ε of the training alone, by Murmuration": "3.254000",
        "ε of the training alone, by dp-accounting 0.6.0": "3.254000"
        if theirs
        else "not evaluated: groups of 64, over 32",
        "Counted by Murmuration's rules alone": "hold-out",
    }
    text = second_opinion_text({"second_opinion": opinion.to_json(), "epsilon": 3.26})
    assert text == "; ".join(f"{name}: {value}" for name, value in rows.items())


def test_nothing_is_told_of_a_run_without_one():
    assert second_opinion_rows({"second_opinion": None}) == {}
    assert second_opinion_text({"second_opinion": None}) is None
    nothing = SecondOpinion("dp-accounting 0.6.0", None, None, "nothing of this run", ())
    assert second_opinion_rows({"second_opinion": nothing.to_json()}) == {
        "ε of the training alone, by dp-accounting 0.6.0": "not evaluated: nothing of this run",
        "Counted by Murmuration's rules alone": "nothing",
    }


@pytest.mark.parametrize(("epsilon", "explained"), [(3.0, True), (3.3, False)])
def test_a_run_that_cost_less_than_its_training_says_why(epsilon, explained):
    opinion = SecondOpinion("dp-accounting 0.6.0", 3.254, 3.254, "", ("hold-out: each …",))
    rows = second_opinion_rows({"second_opinion": opinion.to_json(), "epsilon": epsilon})
    assert any("secret coin" in value for value in rows.values()) == explained
