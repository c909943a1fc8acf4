"""What a case says, and which cases cannot be."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.research.theory.bounds import (
    Bound,
    Case,
    label_privacy_bounds,
    user_privacy_bounds,
)

CASE = {"users": 1000, "judgements": 10, "dimension": 16, "epsilon": 1.0, "delta": 1e-5}


def test_the_constants():
    case = Case(**CASE, feature_bound=1.5, model_bound=2.0)
    assert case.total == 10_000
    assert case.gamma == pytest.approx(1 / (2 + math.exp(-6.0) + math.exp(6.0)))
    slope = math.exp(6.0) / (1 + math.exp(6.0)) ** 2
    assert case.gamma == pytest.approx(slope)  # σ′(2LB)
    assert case.kappa == 2 * 1.5**2 / 16
    assert case.flatter == pytest.approx((math.exp(0.1) + 1) / (math.exp(0.1) - 1))
    assert Case(**CASE, coverage=0.01).kappa == 0.01


@given(st.integers(1, 500), st.floats(0.01, 20.0))
def test_randomizing_costs_at_least_nothing(judgements, epsilon):
    case = Case(**{**CASE, "judgements": judgements, "epsilon": epsilon})
    assert case.flatter >= 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 0}, "--users must be positive"),
        ({"epsilon": -1.0}, "--epsilon must not be -1"),
        ({"epsilon": math.inf}, "--epsilon must not be inf"),
        ({"delta": 1.0}, "probabilities below 1"),
        ({"failure": 1.0}, "probabilities below 1"),
        ({"model_bound": 0.0}, "--model-bound must be positive"),
        ({"responses": 1}, "--responses must be at least 2"),
        ({"coverage": 0.3}, "--coverage 0.3 cannot be.*at most 0.25"),
        ({"coverage": math.nan}, "--coverage must not be nan"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Case(**{**CASE, **changes})


def test_rows_say_what_the_value_is():
    row = Bound("A", "lower", "l2", "central", "d", 1.0).row()
    assert row["kind"] == "rate without constants"
    assert (row["value"], row["proved"], row["applies"]) == (1.0, None, True)


# The label-DP paper's bounds against hand-computed values and the scaling of the theorems.


LABEL_CASE = Case(10_000, 1, 9, epsilon=0.5, delta=1e-6, feature_bound=2.0, model_bound=0.5)
GAMMA, KAPPA = 1 / (2 + math.exp(-2) + math.exp(2)), 2 * 4 / 9
RATIO = (math.exp(0.5) + 1) / (math.exp(0.5) - 1)
LOG = math.log(20)
SIGMA = 2 * math.sqrt(8 * math.log(2e6) + 2) / 0.5


def at(case):
    return {bound.source: bound for bound in label_privacy_bounds(case)}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("L Thm 3.1", math.sqrt(9e-4 * (1 + 1 / math.expm1(0.5) ** 2))),
        ("L Thm 3.2", math.sqrt(9 / 4 * 9e-4 * (1 + 1 / math.expm1(0.5) ** 2))),
        ("L Thm 4.2", 2 / GAMMA * RATIO * math.sqrt((9 + LOG) / 1e4)),
        ("L Thm 4.5", 2 / (GAMMA * KAPPA) * RATIO * math.sqrt(math.log(math.log(1e4) * 20) / 1e4)),
        ("L Thm 5.1", math.sqrt(81 / 4e4 + 9 / (1e4 * 0.500001) ** 2)),
        (
            "L Thm 5.3",
            (2 * math.sqrt((1 + LOG) / 1e4) + SIGMA * (3 + math.sqrt(LOG)) / 1e4) / GAMMA / KAPPA,
        ),
        ("L Thm D.3", math.sqrt(9e-4 + 81 / (1e4 * 0.5) ** 2)),
        (
            "L Thm D.5",
            math.sqrt((9 + LOG) / 1e4) / GAMMA
            + math.sqrt(SIGMA * 0.5 / (1e4 * GAMMA)) * (9 * LOG) ** 0.25,
        ),
    ],
)
def test_by_hand(source, value):
    assert at(LABEL_CASE)[source].value == pytest.approx(value)


def test_the_choice_of_lambda_in_the_semi_norm_bound():
    """D.5's proof: the perturbed terms at λ′ = σs/(γnB), s = √(d log 1/α), are √(σsB/(nγ))."""
    n, s = 1e4, math.sqrt(9 * LOG)
    ridge = SIGMA * s / (GAMMA * n * 0.5)
    beta = GAMMA * n * ridge
    noise = SIGMA * s / (n * math.sqrt(ridge)) / GAMMA
    shrinkage = beta * 0.5 / (n * math.sqrt(ridge)) / GAMMA
    assert noise == pytest.approx(shrinkage)  # what the choice balances
    first = math.sqrt((9 + LOG) / n) / GAMMA
    assert at(LABEL_CASE)["L Thm D.5"].value == pytest.approx(first + noise)


def test_users_with_many_labels():
    """Local: ε is split. Central: the noise covers all labels of a user."""
    many = replace(LABEL_CASE, users=100, judgements=100)
    local, central = at(many)["L Thm 4.2"].value, at(many)["L Thm 5.3"].value
    ratio = (math.exp(0.005) + 1) / (math.exp(0.005) - 1)
    assert local / at(LABEL_CASE)["L Thm 4.2"].value == pytest.approx(ratio / RATIO)
    assert central == pytest.approx(
        (2 * math.sqrt((1 + LOG) / 1e4) + 100 * SIGMA * (3 + math.sqrt(LOG)) / 1e4) / GAMMA / KAPPA
    )
    assert at(many)["L Thm 5.1"].value == at(LABEL_CASE)["L Thm 5.1"].value


def test_constants_where_a_proof_has_them():
    found = at(LABEL_CASE)
    both = max(1 / 16, 1 / (32 * math.expm1(0.5) ** 2))
    assert found["L Thm 3.2"].proved == pytest.approx(math.sqrt(81 / (1e4 * 16) * both))
    whole = 4 * 2 * RATIO / (GAMMA * KAPPA)
    whole *= math.sqrt((624 * math.log(math.log(1e4) * 20) + 1) / 1e4)
    assert found["L Thm 4.5"].proved == pytest.approx(whole)
    step = 0.04 / (1e4 * 0.500001)
    private = 9 * step**2 / 2 * 0.5
    assert found["L Thm 5.1"].proved == pytest.approx(math.sqrt(max(81 / 64e4 / 4, private)))
    assert all(b.proved is None or b.side == "lower" or b.proved > b.value for b in found.values())


def test_what_delta_decides():
    assert not at(LABEL_CASE)["L Thm D.3"].applies
    pure = at(replace(LABEL_CASE, delta=0.0))
    assert pure["L Thm D.3"].applies
    assert not {"L Thm 5.3", "L Thm D.5"} & set(pure)


def test_too_few_judgements():
    assert at(LABEL_CASE)["L Thm 5.3"].applies
    assert not at(replace(LABEL_CASE, users=500))["L Thm 5.3"].applies
    assert not at(replace(LABEL_CASE, failure=0.5))["L Thm 4.5"].applies


def test_a_generous_budget_is_no_budget():
    rich = at(replace(LABEL_CASE, epsilon=5000.0))
    assert rich["L Thm 3.1"].value == pytest.approx(0.03)
    assert rich["L Thm 4.2"].value == pytest.approx(2 / GAMMA * math.sqrt((9 + LOG) / 1e4))


# AUP-RLHF's bounds against hand-computed values and the scaling that the theorems state.


USER_CASE = Case(400, 9, 16, epsilon=0.5, delta=1e-6, feature_bound=2.0, model_bound=0.5)


def user_bounds_at(case):
    return {bound.source: bound for bound in user_privacy_bounds(case)}


def test_user_bounds_by_hand():
    found = user_bounds_at(USER_CASE)
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
    proved = user_bounds_at(USER_CASE)["A Thm 6"].proved
    assert proved == pytest.approx(math.sqrt(max(sampling, private)))
    scarce = user_bounds_at(replace(USER_CASE, epsilon=1e-4))["A Thm 6"]
    assert scarce.proved > proved
    assert scarce.proved < scarce.value


def test_how_they_fall_with_judgements():
    """Randomized response gets worse with m, the adaptive algorithm better: the paper's point."""
    one, many = (user_bounds_at(replace(USER_CASE, judgements=m, epsilon=0.1)) for m in (1, 100))
    assert many["A Thm 1"].value / one["A Thm 1"].value == pytest.approx(10, rel=0.01)
    assert many["A Thm 4"].value / one["A Thm 4"].value == pytest.approx(0.1)
    assert many["A Thm 2"].value / one["A Thm 2"].value == pytest.approx(0.1)


def test_where_one_judgement_each_meets_the_paper_on_labels():
    from murmuration.research.theory.bounds import label_privacy_bounds

    case = replace(USER_CASE, judgements=1)
    lower = {b.source: b for b in label_privacy_bounds(case)}["L Thm 5.1"].value
    assert lower <= user_bounds_at(case)["A Thm 6"].value <= math.sqrt(2) * lower


def test_several_responses():
    found = user_bounds_at(replace(USER_CASE, responses=4))
    assert "A Thm 4" not in found
    gamma = math.exp(-4 * 2 * 0.5) / 2
    upper = 16 * 2 / (0.5 * gamma) * (1 / 60 + 4 / (3 * 400 * 0.5))
    assert found["A Thm 5"].value == pytest.approx(upper)


def test_beyond_its_range():
    assert not user_bounds_at(replace(USER_CASE, epsilon=11.0))["A Thm 4"].applies
