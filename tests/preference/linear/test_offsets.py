"""A user's offset is the best one, and the gradient that of what is left of the loss."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_expit

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.gradients import user_gradients, windows
from murmuration.preference.linear.offsets import VARIANCE, offset
from murmuration.preference.models import preference_model

THUMBS = preference_model("thumbs", "thumbs")
thumbs = st.lists(st.tuples(st.floats(-40, 40), st.booleans()), min_size=1, max_size=30)


def arrays(given_):
    z, y = zip(*given_, strict=True)
    return np.array(z), np.array(y, dtype=float)


def user_loss(z, y, b):
    """By its definition, for one b."""
    return float(
        np.mean(-log_expit(np.where(y > 0.5, z + b, -z - b))) + b * b / (2 * VARIANCE * len(z))
    )


@given(thumbs)
def test_the_best_offset(given_):
    z, y = arrays(given_)

    def slope(b):
        return float((expit(z + b) - y).sum() + b / VARIANCE)

    most = VARIANCE * len(z) + 1.0
    assert offset(z, y) == pytest.approx(brentq(slope, -most, most, xtol=1e-13), abs=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("count", [1, 7, 3000])
@pytest.mark.parametrize("liked", [0.0, 0.02, 0.5, 1.0])
def test_whatever_a_user_has_it_is_finite_and_solves(scale, count, liked):
    draws = np.random.default_rng([count, int(100 * liked)])
    z, y = scale * draws.standard_normal(count), (draws.random(count) < liked).astype(float)
    b = offset(z, y)
    assert -VARIANCE * (count - y.sum()) <= b <= VARIANCE * y.sum()
    if scale <= 1e3:
        assert (expit(z + b) - y).sum() + b / VARIANCE == pytest.approx(0.0, abs=1e-9 * count)


def test_who_likes_everything_has_an_offset_and_no_infinite_one():
    nothing, everything = offset(np.zeros(20), np.zeros(20)), offset(np.zeros(20), np.ones(20))
    assert everything == pytest.approx(-nothing) and 2.0 < everything < 4.0
    assert offset(np.empty(0), np.empty(0)) == 0.0


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_of_rewards_that_are_not_finite_there_is_none(reward):
    assert math.isnan(offset(np.array([0.0, reward]), np.array([1.0, 0.0])))


@given(thumbs)
def test_the_loss_is_the_least_over_offsets(given_):
    z, y = arrays(given_)
    found = THUMBS.loss(torch.from_numpy(z)[:, None], torch.from_numpy(y)[:, None]).mean()
    least = minimize_scalar(lambda b: user_loss(z, y, b), tol=1e-12).fun
    assert float(found) == pytest.approx(least, rel=1e-7, abs=1e-9)
    assert float(found) <= user_loss(z, y, 0.0) + 1e-12


@given(thumbs)
def test_a_shift_of_all_rewards_costs_no_more_than_the_prior(given_):
    """What offsets are for: without a prior, only differences within a user would count."""
    z, y = arrays(given_)
    slopes = THUMBS.residual(torch.from_numpy(z)[:, None], torch.from_numpy(y)[:, None])
    assert float(slopes.sum()) == pytest.approx(-offset(z, y) / VARIANCE, abs=1e-9)


@pytest.mark.parametrize("counts", [[1, 2, 9, 30, 0, 4]])
def test_gradients_are_those_of_the_least_loss(counts):
    """By finite differences of a loss whose offset is found anew, in every direction."""
    generator = torch.Generator().manual_seed(7)
    start_U = torch.tensor([0, *np.cumsum(counts)])
    x_RD = torch.randn(sum(counts), 6, generator=generator)
    y_R = (torch.rand(sum(counts), generator=generator) < 0.7).float()
    examples = PairExamples(x_RD, y_R, start_U, kind="thumbs")
    theta_D = torch.randn(6, generator=generator)
    users = np.arange(len(counts))
    taken = windows(start_U, users, 100, users.astype(np.uint64))
    found_UD = torch.cat(list(user_gradients(examples, theta_D, *taken, THUMBS))).double()

    def loss(user, at_D):
        rows = slice(int(start_U[user]), int(start_U[user + 1]))
        z_J1 = (x_RD[rows].double() @ at_D)[:, None]
        return float(THUMBS.loss(z_J1, y_R[rows].double()[:, None]).mean())

    for user, count in enumerate(counts):
        for d in range(6) if count else ():
            step_D = 1e-5 * torch.eye(6, dtype=torch.float64)[d]
            rise = loss(user, theta_D.double() + step_D) - loss(user, theta_D.double() - step_D)
            assert float(found_UD[user, d]) == pytest.approx(rise / 2e-5, rel=1e-4, abs=2e-6)
    assert not found_UD[4].any()


def test_a_user_s_thumbs_belong_together():
    z_J1 = torch.zeros(3, 1)
    with pytest.raises(ValueError, match="of a user's judgements"):
        THUMBS.each(z_J1, torch.ones(3, 1))


def people(users, each, seed):
    """Who likes by r = x₀ and how they are inclined, which goes with what they are shown (x₁)."""
    draws = np.random.default_rng(seed)
    inclined_U = 2.0 * draws.standard_normal(users)
    x_URD = draws.standard_normal((users, each, 3))
    x_URD[:, :, 1] += inclined_U[:, None]
    liked = draws.random((users, each)) < expit(x_URD[:, :, 0] + inclined_U[:, None])
    x_RD = torch.from_numpy(x_URD.reshape(-1, 3)).float()
    start_U = torch.arange(users + 1) * each
    return PairExamples(x_RD, torch.from_numpy(liked.ravel()).float(), start_U, kind="thumbs")


def test_an_offset_keeps_peoples_inclinations_out_of_the_reward():
    """Where those who like everything are shown other things, a model without offsets takes what
    they are shown for what is liked."""
    examples = people(600, 12, seed=3)
    plain = PairExamples(examples.x_RD, examples.y_R, examples.start_U)
    users = np.arange(600)
    taken = windows(examples.start_U, users, 100, users.astype(np.uint64))
    found = {}
    for name, kept, model in (
        ("thumbs", examples, THUMBS),
        ("btl", plain, preference_model("btl")),
    ):
        theta_D = torch.zeros(3)
        for _ in range(150):
            theta_D -= 2.0 * torch.cat(list(user_gradients(kept, theta_D, *taken, model))).mean(0)
        found[name] = theta_D
    assert 0.9 < found["thumbs"][0] < 1.1
    assert abs(found["thumbs"][1]) < 0.5 * found["btl"][1]
