"""DPO and χPO on the toy: what is compared is what it is called, and what rows must show."""

import numpy as np
import pytest
import torch
from scipy import special

from murmuration.preference.policy_losses import PolicyLoss
from murmuration.research.reproductions.policies import chipo_toy
from murmuration.research.reproductions.policies.chipo_toy import (
    METHODS,
    R_MAX,
    REFERENCE_A,
    TRUE_A,
)


@pytest.fixture(scope="module")
def rows():
    return chipo_toy.chipo_toy(sizes=(1000, 100_000), repetitions=3)


def best(rows, method, n):
    (row,) = [r for r in rows if "best_gap" in r and (r["method"], r["n"]) == (method, n)]
    return row


# What is compared.


@pytest.mark.parametrize("beta", [0.005, 0.1, 5.0])
@pytest.mark.parametrize("chi", [False, True])
def test_a_policy_is_best_under_its_regularizer(beta, chi):
    generator = np.random.default_rng(1)
    reference_SA = generator.dirichlet(np.full(6, 0.4), size=3)
    reward_SA = 3.0 * generator.random((3, 6))
    ratio_SA = chipo_toy.log_ratios(reward_SA, reference_SA, beta, chi=chi)
    share_SA = reference_SA * np.exp(ratio_SA)
    np.testing.assert_allclose(share_SA.sum(axis=1), 1.0, rtol=1e-9)

    def worth_S(share_SA):
        far_SA = special.rel_entr(share_SA, reference_SA)
        far_SA += 0.5 * (share_SA - reference_SA) ** 2 / reference_SA if chi else 0.0
        return (reward_SA * share_SA - beta * far_SA).sum(axis=1)

    for _ in range(50):
        other_SA = generator.dirichlet(np.full(6, 0.4), size=3)
        for step in (1e-4, 0.1, 1.0):
            mixed_SA = share_SA + step * (other_SA - share_SA)
            assert (worth_S(mixed_SA) <= worth_S(share_SA) + 1e-12).all()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_fitted_is_the_policy_with_the_least_of_its_own_loss(method):
    name = {"DPO": "dpo", "χPO": "chipo", "Square-DPO": "square-dpo", "Square-χPO": "square-chipo"}
    wins_AA = chipo_toy.judged(2000, 0)
    first_J, other_J = np.nonzero(wins_AA)
    weight_J = torch.from_numpy(wins_AA[first_J, other_J])
    loss, chi = METHODS[method]
    learnt_A = chipo_toy.fitted(wins_AA, loss)
    assert learnt_A.min() >= 0.0
    assert learnt_A.max() <= R_MAX

    def total(reward_A, beta):
        ratio_A = chipo_toy.log_ratios(reward_A[None], REFERENCE_A[None], beta, chi=chi)[0]
        ratio_J2 = torch.from_numpy(np.stack([ratio_A[first_J], ratio_A[other_J]], axis=1))
        y_J1 = torch.ones(len(first_J), 1, dtype=torch.float64)
        made = PolicyLoss(name[method], beta, R_MAX)
        assert not made.saturated(ratio_J2).any()
        return float(made.loss(ratio_J2, y_J1) @ weight_J)

    least = total(learnt_A, 0.05)
    assert least == pytest.approx(total(learnt_A, 0.5))  # the same reward, whatever β
    generator = np.random.default_rng(2)
    for step in (1e-3, 0.03, 1.0) * 20:
        other_A = learnt_A + step * generator.standard_normal(len(learnt_A))
        assert total(other_A.clip(0.0, R_MAX), 0.05) >= least - 1e-6


def test_a_response_that_nobody_judged_stays_where_the_fit_began():
    wins_AA = np.zeros((len(TRUE_A),) * 2)
    wins_AA[0, 1] = wins_AA[1, 0] = 5.0
    np.testing.assert_allclose(chipo_toy.fitted(wins_AA, "dpo"), R_MAX / 2)


def test_judgements_are_of_the_reference_and_say_the_truth_on_average():
    wins_AA = chipo_toy.judged(200_000, 3)
    kept = 1.0 - float((REFERENCE_A**2).sum())
    assert wins_AA.sum() == pytest.approx(200_000 * kept, rel=0.01)
    assert np.trace(wins_AA) == 0.0
    share = wins_AA[0, 1] / (wins_AA[0, 1] + wins_AA[1, 0])
    assert share == pytest.approx(1 / (1 + np.exp(-(1.0 - 0.7))), abs=0.01)


def test_gaps_of_known_policies():
    assert chipo_toy.policy_gap(TRUE_A, 1e-3, chi=False) == pytest.approx(0.0, abs=1e-9)
    for chi in (False, True):
        far = chipo_toy.policy_gap(TRUE_A, 1e6, chi=chi)
        assert far == pytest.approx(chipo_toy.REFERENCE_GAP, rel=1e-4)


# What is found.


def test_chi_helps_where_rare_responses_are_scarce(rows):
    assert chipo_toy.scarce(1000)
    assert not chipo_toy.scarce(100_000)
    assert best(rows, "DPO", 1000)["times_chipo"] > 1.5
    assert best(rows, "DPO", 1000)["above_chipo_low"] > 0.0
    assert best(rows, "χPO", 1000)["best_gap"] < 0.5 * chipo_toy.REFERENCE_GAP
    assert best(rows, "DPO", 100_000)["best_gap"] < 0.001
    assert chipo_toy.agrees(rows)


def test_dpo_gets_worse_than_it_began(rows):
    gaps = {r["method"]: r["gap_mean"] for r in rows if r.get("beta") == 0.005 and r["n"] == 1000}
    assert gaps["DPO"] > 2.0 * chipo_toy.REFERENCE_GAP
    assert gaps["DPO"] > gaps["χPO"]


def test_the_rule_can_say_no(rows):
    def but(method, n, **changes):
        return [
            {**r, **changes} if "best_gap" in r and (r["method"], r["n"]) == (method, n) else r
            for r in rows
        ]

    assert not chipo_toy.agrees([])
    assert not chipo_toy.agrees(but("DPO", 1000, times_chipo=1.4))
    assert not chipo_toy.agrees(but("Square-DPO", 1000, above_chipo_low=0.0))
    assert not chipo_toy.agrees(but("Square-χPO", 1000, times_chipo=1.6))
    assert chipo_toy.agrees(but("DPO", 100_000, times_chipo=0.1))
