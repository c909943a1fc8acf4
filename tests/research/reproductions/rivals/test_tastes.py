"""One reward, local steps, groups and tastes on people's judgements: who learns what from whom."""

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.linear.tastes import NEITHER
from murmuration.preference.models import preference_model
from murmuration.research.reproductions.rivals import tastes
from murmuration.research.reproductions.rivals.tastes import (
    GROUPS,
    LOCAL,
    ONE,
    TASTES,
    GroupExamples,
    nearest,
    own_reward,
)
from murmuration.sims.population.population import Population


@pytest.fixture(scope="module")
def groups():
    rows = Population(users=80, median_judgements=14, tastes=2, camps=True).rows("train")
    return tastes.groups_of(Judgements.from_rows(rows), "hashing")


def test_those_who_tune_and_test_have_enough_and_are_nobody_else():
    ample_U = np.random.default_rng(0).random(200) < 0.5
    chosen = tastes.in_groups(ample_U)
    assert sorted(np.concatenate([*chosen.values()])) == [*range(200)]
    assert ample_U[chosen["tuning"]].all() and ample_U[chosen["test"]].all()
    assert len(chosen["test"]) == round(0.25 * ample_U.sum())


def test_a_user_has_no_more_than_the_most_and_ties_are_none(groups):
    for people in groups.values():
        assert people.pairs.counts_U.max() <= tastes.MOST
        assert (people.pairs.y_R != 0.5).all()
        assert (people.half_J != NEITHER).mean() > 0.5


def test_a_users_gradient_of_groups_moves_one_group(groups):
    people = groups["training"]
    examples = GroupExamples(people.pairs, 3, people.half_J)
    counts_S = people.pairs.counts_U
    rows_N = torch.arange(int(counts_S.sum()))
    theta_E = torch.zeros(examples.dimension)
    chunks = examples.user_gradients(theta_E, rows_N, counts_S, preference_model("btl"))
    gradients = torch.cat([*chunks])
    assert len(gradients) == len(counts_S)
    basis_KD = examples.basis_KD(theta_E)
    x_RD, y_R = people.pairs.x_RD.numpy(), people.pairs.y_R.numpy()
    for user, grad_E in enumerate(gradients):
        rows = slice(int(people.pairs.start_U[user]), int(people.pairs.start_U[user + 1]))
        mine = nearest(basis_KD, x_RD[rows], y_R[rows])
        grad_KD = grad_E.reshape(basis_KD.shape).numpy()
        assert np.flatnonzero(np.abs(grad_KD).sum(1)).tolist() == [mine]
        p_M = 1.0 / (1.0 + np.exp(-(x_RD[rows] @ basis_KD[mine])))
        expected_D = (p_M - y_R[rows]) @ x_RD[rows] / len(p_M)
        np.testing.assert_allclose(grad_KD[mine], expected_D, rtol=1e-4, atol=1e-6)


def test_own_rewards_come_from_the_known_half():
    basis_KD, x_MD = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]), np.array([[1.0, 0.0]])
    likes, dislikes = np.array([1.0]), np.array([0.0])
    assert own_reward(ONE, basis_KD, 0.0)(x_MD, likes).tolist() == [0.0, 1.0]
    assert own_reward(LOCAL, basis_KD, 0.5)(x_MD, likes)[0] > 0.0
    assert own_reward(GROUPS, basis_KD, 0.0)(x_MD, dislikes).tolist() == [-1.0, 0.0]
    assert own_reward(TASTES, basis_KD, 0.0)(x_MD, likes)[0] > 0.0


def test_a_miniature_has_a_row_for_each_learner(monkeypatch):
    monkeypatch.setattr(tastes, "STEPS", (0.1,))
    monkeypatch.setattr(tastes, "MANY", (2,))
    rows = Population(users=200, median_judgements=14, tastes=2, camps=True).rows("train")
    plan = tastes.Plan(("hashing",), (8.0,), seeds=2, rounds=10, rates=(1.0,))
    result = tastes.compared(Judgements.from_rows(rows), plan, workers=1)
    assert [row["learner"] for row in result.rows] == [ONE, LOCAL, GROUPS, TASTES]
    assert result.rows[0]["gain"] == 0.0
    for row in result.rows:
        assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
        assert row["worst_tenth"] <= row["gain"]
    assert len(result.remarks) == 3
