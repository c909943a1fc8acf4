"""Lengths of public users' averaged gradients, where they are known."""

import numpy as np
import pytest
import torch

from murmuration.planning import gradient_norms
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.models import preference_model

BTL = preference_model("btl")


def examples(x_RD, counts, y_R=None):
    x_RD = torch.as_tensor(np.asarray(x_RD), dtype=torch.float32)
    start_U = torch.tensor([0, *np.cumsum(counts)])
    return PairExamples(x_RD, torch.ones(len(x_RD)) if y_R is None else y_R, start_U)


def test_alike_judgements_have_one_length():
    norms = GroupNorms.of(examples(np.tile([[2.0, 0.0]], (12, 1)), [6, 6]), BTL)
    assert norms.lengths == pytest.approx({1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0})
    assert norms.drift == pytest.approx(1.0)  # |σ(0) − 1| · 2


def test_orthogonal_judgements_shorten_with_the_root():
    norms = GroupNorms.of(examples(np.tile(np.eye(8), (3, 1)), [8, 8, 8]), BTL)
    assert norms.lengths == pytest.approx({g: 0.5 * g**-0.5 for g in (1, 2, 4, 8)})
    assert norms.length(5) == norms.lengths[4]
    assert norms.length(64) == norms.lengths[8]


def test_users_with_fewer_give_what_they_have():
    norms = GroupNorms.of(examples(np.eye(8), [1, 1, 1, 5]), BTL)
    assert norms.lengths[8] == pytest.approx(0.5)  # the median user has one
    assert norms.used(2) == pytest.approx(1.25)
    assert norms.median_judgements == 1


def test_opposite_users_leave_no_drift():
    norms = GroupNorms.of(examples([[1.0, 0.0], [-1.0, 0.0]], [1, 1]), BTL)
    assert norms.drift == 0.0
    assert norms.lengths[1] == 0.5


def test_users_without_judgements_do_not_count():
    norms = GroupNorms.of(examples([[2.0, 0.0]], [0, 1, 0]), BTL)
    assert norms.lengths == {1: 1.0}


def test_several_responses():
    """Best of three at θ = 0: each other response gets a third."""
    x_RD = torch.eye(2)
    three = PairExamples(x_RD, torch.ones(2), torch.tensor([0, 1]), width=2)
    norms = GroupNorms.of(three, preference_model("plackett-luce", "top-1", 2))
    assert norms.lengths[1] == pytest.approx(np.hypot(1 / 3, 1 / 3))


def test_the_same_seed_gives_the_same(monkeypatch):
    monkeypatch.setattr(gradient_norms, "USERS", 5)
    x_RD = np.random.default_rng(1).standard_normal((60, 3))
    people = examples(x_RD, [3] * 20)
    first, again, other = (GroupNorms.of(people, BTL, seed) for seed in (0, 0, 1))
    assert first.lengths == again.lengths
    assert first.lengths != other.lengths


def test_of_very_many_judgements_some(monkeypatch):
    monkeypatch.setattr(gradient_norms, "ROWS", 4 * gradient_norms.USERS)
    norms = GroupNorms.of(examples(np.eye(16), [16]), BTL)
    assert norms.lengths[16] == pytest.approx(0.25)  # four of sixteen
    assert norms.median_judgements == 16


def test_what_says_nothing_is_refused():
    with pytest.raises(ValueError, match="most users' gradients are zero"):
        GroupNorms.of(examples([[1.0, 0.0]], [1], torch.tensor([0.5])), BTL)
    with pytest.raises(ValueError, match="no judgements"):
        GroupNorms.of(examples(np.zeros((0, 2)), [0]), BTL)
