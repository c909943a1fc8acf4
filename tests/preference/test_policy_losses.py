"""Losses of a policy: their definitions, their slopes, and what randomized labels do to them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.errors import InputError
from murmuration.preference.models import ABSENT, preference_model
from murmuration.preference.policy_losses import (
    CLIPPED_LOSSES,
    PAIR_LOSSES,
    POLICY_LOSSES,
    PolicyLoss,
)

BEST = preference_model("plackett-luce", "top-1", 3)
RANKING = preference_model("plackett-luce", "ranking", 3)
each_loss = pytest.mark.parametrize("name", POLICY_LOSSES)


def drawn(size=1.0, judgements=50, responses=2, seed=0):
    """Log-ratios (J, K), some of them far out."""
    return size * np.random.default_rng(seed).standard_normal((judgements, responses))


def as_defined(name, first, other, y, beta, r_max):
    """One pair's loss, as the papers write it, in Python's numbers."""
    if name == "ipo":
        margin = first - other
        return y * (margin - 0.5 / beta) ** 2 + (1 - y) * (margin + 0.5 / beta) ** 2
    if "chipo" in name:
        z = beta * (math.exp(first) + first - math.exp(other) - other)
    else:
        z = beta * (first - other)
    if name in CLIPPED_LOSSES:
        z = max(min(z, 2 * r_max), -2 * r_max)
    p = 1 / (1 + math.exp(-z))
    if name.startswith("square"):
        return (2 * p - 1 - (2 * y - 1)) ** 2
    return -y * math.log(p) - (1 - y) * math.log(1 - p)


@each_loss
@pytest.mark.parametrize("y", [1.0, 0.5])
def test_losses_are_as_the_papers_define_them(name, y):
    loss = PolicyLoss(name, beta=0.3, r_max=0.4)
    ratio_JK = drawn()
    found = loss.loss(torch.from_numpy(ratio_JK), torch.full((50, 1), y, dtype=torch.float64))
    expected = [as_defined(name, *pair, y, 0.3, 0.4) for pair in ratio_JK.tolist()]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@each_loss
@given(
    u=st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    y=st.sampled_from([1.0, 0.5]),
    flip=st.sampled_from([None, 0.0, 0.2, 0.45]),
    beta=st.sampled_from([0.05, 1.0]),
)
def test_slopes_are_derivatives(name, u, y, flip, beta):
    loss = PolicyLoss(name, beta, r_max=1.0)
    ratio_JK = torch.tensor([u], dtype=torch.float64, requires_grad=True)
    y_JW = torch.tensor([[y]], dtype=torch.float64)
    flip_J = None if flip is None else torch.tensor([flip], dtype=torch.float64)
    z = loss.logits(ratio_JK.detach()).abs().item()
    if abs(z - loss.most) < 1e-3:
        return  # at the clip there is a corner
    assert torch.autograd.gradcheck(lambda r: loss.loss(r, y_JW, flip_J), (ratio_JK,))


@pytest.mark.parametrize("model", [BEST, RANKING], ids=["best", "ranking"])
@pytest.mark.parametrize("name", [name for name in POLICY_LOSSES if name not in PAIR_LOSSES])
def test_of_several_responses_they_are_plackett_and_luces(name, model):
    loss = PolicyLoss(name, beta=0.5, r_max=50.0)
    ratio_JK = torch.from_numpy(drawn(responses=4, judgements=6)).requires_grad_(True)
    y_JW = torch.ones(6, 3, dtype=torch.float64)
    y_JW[3:, 2] = ABSENT  # three responses only
    found_J = loss.loss(ratio_JK, y_JW, None, model)
    reward_JK = loss.rewards(ratio_JK.detach()).numpy()
    for row, found in enumerate(found_J.tolist()):
        shown = reward_JK[row, : 4 if row < 3 else 3]
        stages = range(len(shown) - 1) if model is RANKING else [0]
        chance = [np.exp(shown[k]) / np.exp(shown[k:]).sum() for k in stages]
        assert found == pytest.approx(-np.log(chance).sum(), rel=1e-10)
    found_J.sum().backward()
    assert (ratio_JK.grad[3:, 3] == 0).all() and (ratio_JK.grad[:3] != 0).all()


@pytest.mark.parametrize("name", ["robust-dpo", "square-dpo", "square-chipo"])
@pytest.mark.parametrize("flip", [0.1, 0.38])
def test_coins_cancel_in_slopes_on_average(name, flip):
    """Of the log loss also in the loss itself; a square has the coins' variance beside it."""
    loss = PolicyLoss(name, beta=0.3, r_max=2.0)

    def slope(u, first, flip):
        ratio_JK = torch.tensor([u if first else u[::-1]], dtype=torch.float64, requires_grad=True)
        one = torch.ones(1, 1, dtype=torch.float64)
        of = loss.loss(
            ratio_JK, one, None if flip is None else torch.tensor([flip], dtype=torch.float64)
        )
        of.sum().backward()
        grad = ratio_JK.grad[0].tolist()
        return np.array(grad if first else grad[::-1]), of.item()

    for u in drawn(judgements=5).tolist():
        told, flipped = slope(u, True, flip), slope(u, False, flip)
        truth = slope(u, True, None)
        mean = (1 - flip) * told[0] + flip * flipped[0]
        np.testing.assert_allclose(mean, truth[0], rtol=1e-9, atol=1e-12)
        if name == "robust-dpo":
            assert (1 - flip) * told[1] + flip * flipped[1] == pytest.approx(truth[1])


def test_coins_cancel_among_several_responses():
    loss, flip, shown = PolicyLoss("robust-dpo", beta=0.7), 0.5, 4
    ratio_1K = torch.from_numpy(drawn(judgements=1, responses=shown))
    one = torch.ones(1, shown - 1, dtype=torch.float64)
    chances = [1 - flip] + [flip / (shown - 1)] * (shown - 1)
    mean = 0.0
    for stated, chance in enumerate(chances):  # the stated one stands first
        order = [stated, *(k for k in range(shown) if k != stated)]
        mean += (
            chance
            * loss.loss(
                ratio_1K[:, order], one, torch.tensor([flip], dtype=torch.float64), BEST
            ).item()
        )
    assert mean == pytest.approx(loss.loss(ratio_1K, one, None, BEST).item())


@pytest.mark.parametrize("name", ["dpo", "ipo", "chipo"])
def test_others_take_statements_for_true(name):
    loss, ratio_JK = PolicyLoss(name), torch.from_numpy(drawn())
    one = torch.ones(50, 1, dtype=torch.float64)
    assert not loss.objective.unbiased
    assert torch.equal(loss.loss(ratio_JK, one, torch.full((50,), 0.3)), loss.loss(ratio_JK, one))


def test_the_square_loss_counts_labels_c_times():
    """Zhou et al. 2025, Algorithm 1: at ε = ½ c is 4.08."""
    epsilon = 0.5
    flip = 1 / (math.exp(epsilon) + 1)
    c = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    zero = torch.zeros(1, 2, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    found = PolicyLoss("square-chipo").loss(zero, one, torch.tensor([flip], dtype=torch.float64))
    assert found.item() == pytest.approx(c**2) and c == pytest.approx(4.083, abs=1e-3)


@each_loss
def test_numbers_stay_finite_wherever_a_policy_goes(name):
    extremes = [-1e6, -800.0, -1.0, 0.0, 1.0, 29.0, 31.0, 800.0, 1e6]
    pairs = torch.tensor(list(itertools.product(extremes, repeat=2)), dtype=torch.float64)
    pairs.requires_grad_(True)
    one = torch.ones(len(pairs), 1, dtype=torch.float64)
    loss_J = PolicyLoss(name).loss(pairs, one, torch.full((len(pairs),), 0.4).double())
    loss_J.sum().backward()
    assert torch.isfinite(loss_J).all() and torch.isfinite(pairs.grad).all()


@pytest.mark.parametrize("name", CLIPPED_LOSSES)
def test_what_is_saturated_has_no_gradient(name):
    loss = PolicyLoss(name, beta=1.0, r_max=0.5)
    ratio_JK = torch.from_numpy(drawn()).requires_grad_(True)
    saturated_J = loss.saturated(ratio_JK.detach())[:, 0]
    loss.loss(ratio_JK, torch.ones(50, 1, dtype=torch.float64)).sum().backward()
    assert 0.2 < saturated_J.double().mean() < 0.8
    assert torch.equal((ratio_JK.grad == 0).all(1), saturated_J)


@pytest.mark.parametrize("name", [name for name in POLICY_LOSSES if name not in CLIPPED_LOSSES])
def test_others_do_not_clip(name):
    assert not PolicyLoss(name).saturated(torch.from_numpy(drawn(1e4))).any()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "kto"}, "--loss must be one of dpo, ipo"),
        ({"beta": 0.0}, "--beta must be a positive number; got 0.0"),
        ({"beta": math.nan}, "--beta"),
        ({"r_max": -1.0}, "--r-max"),
        ({"r_max": math.inf}, "--r-max"),
    ],
)
def test_what_cannot_be_is_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        PolicyLoss(**wrong)
