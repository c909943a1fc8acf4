"""The label-DP paper's bounds against hand-computed values and the scaling of the theorems."""

import math
from dataclasses import replace

import pytest

from murmuration.research.theory.bounds import Case, label_privacy_bounds

CASE = Case(10_000, 1, 9, epsilon=0.5, delta=1e-6, feature_bound=2.0, model_bound=0.5)
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
    assert at(CASE)[source].value == pytest.approx(value)


def test_the_choice_of_lambda_in_the_semi_norm_bound():
    """D.5's proof: the perturbed terms at λ′ = σs/(γnB), s = √(d log 1/α), are √(σsB/(nγ))."""
    n, s = 1e4, math.sqrt(9 * LOG)
    ridge = SIGMA * s / (GAMMA * n * 0.5)
    beta = GAMMA * n * ridge
    noise = SIGMA * s / (n * math.sqrt(ridge)) / GAMMA
    shrinkage = beta * 0.5 / (n * math.sqrt(ridge)) / GAMMA
    assert noise == pytest.approx(shrinkage)  # what the choice balances
    first = math.sqrt((9 + LOG) / n) / GAMMA
    assert at(CASE)["L Thm D.5"].value == pytest.approx(first + noise)


def test_users_with_many_labels():
    """Local: ε is split. Central: the noise covers all labels of a user."""
    many = replace(CASE, users=100, judgements=100)
    local, central = at(many)["L Thm 4.2"].value, at(many)["L Thm 5.3"].value
    ratio = (math.exp(0.005) + 1) / (math.exp(0.005) - 1)
    assert local / at(CASE)["L Thm 4.2"].value == pytest.approx(ratio / RATIO)
    assert central == pytest.approx(
        (2 * math.sqrt((1 + LOG) / 1e4) + 100 * SIGMA * (3 + math.sqrt(LOG)) / 1e4) / GAMMA / KAPPA
    )
    assert at(many)["L Thm 5.1"].value == at(CASE)["L Thm 5.1"].value


def test_constants_where_a_proof_has_them():
    found = at(CASE)
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
    assert not at(CASE)["L Thm D.3"].applies
    pure = at(replace(CASE, delta=0.0))
    assert pure["L Thm D.3"].applies
    assert not {"L Thm 5.3", "L Thm D.5"} & set(pure)


def test_too_few_judgements():
    assert at(CASE)["L Thm 5.3"].applies
    assert not at(replace(CASE, users=500))["L Thm 5.3"].applies
    assert not at(replace(CASE, failure=0.5))["L Thm 4.5"].applies


def test_a_generous_budget_is_no_budget():
    rich = at(replace(CASE, epsilon=5000.0))
    assert rich["L Thm 3.1"].value == pytest.approx(0.03)
    assert rich["L Thm 4.2"].value == pytest.approx(2 / GAMMA * math.sqrt((9 + LOG) / 1e4))
