"""The compiled kernel against the same losses differentiated automatically, user by user."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.linear import numba_gradients
from murmuration.preference.models import ABSENT, preference_model

MODELS = [
    ("btl", "pairs", 1),
    ("thurstone", "pairs", 1),
    ("plackett-luce", "pairs", 1),
    ("plackett-luce", "top-1", 3),
    ("plackett-luce", "ranking", 3),
]
#: Also those of a user's judgements together.
EVERY = [*MODELS, ("thumbs", "thumbs", 1)]


def judgements(kind, width, number, dimension, seed, scale=1.0):
    """Rows (R, D) and labels (R,): ties among pairs and the best, absent last rows elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    x_RD = torch.randn(number * width, dimension, generator=generator) * scale
    y_JW = torch.ones(number, width)
    if kind == "ranking":
        y_JW[::5, -2:] = 0.5
        y_JW[2::5, 0] = 0.5
    else:
        y_JW[::3, 0] = 0.0 if kind == "thumbs" else 0.5
    if width > 1:
        y_JW[1::4, -1] = ABSENT
        x_RD.view(number, width, dimension)[1::4, -1] = 0.0
    return x_RD, y_JW.reshape(-1)


def run(x_RD, y_R, width, taken_N, ends_B, theta_D, model, steps=1, rate=1.0):
    out_BD = np.full((len(ends_B), x_RD.shape[1]), np.nan, dtype=np.float32)
    arrays = (x_RD.numpy(), y_R.numpy(), width, np.asarray(taken_N), np.asarray(ends_B))
    numba_gradients.local_updates(*arrays, theta_D.numpy(), model.code, steps, rate, out_BD)
    return torch.from_numpy(out_BD)


def expected(x_RD, y_R, width, taken_N, ends_B, theta_D, model, steps=1, rate=1.0):
    """θ − θ_u by autograd in float64, one user after the other."""
    found = []
    for first, last in zip([0, *ends_B[:-1]], ends_B, strict=True):
        theta = theta_D.double()
        for _ in range(steps if last > first else 0):
            theta = theta.detach().requires_grad_()
            rows = [n * width + k for n in taken_N[first:last] for k in range(width)]
            logits_JW = (x_RD.double()[rows] @ theta).view(-1, width)
            loss = model.loss(logits_JW, y_R.double()[rows].view(-1, width)).mean()
            theta = theta - rate * torch.autograd.grad(loss, theta)[0]
        found.append((theta_D.double() - theta).detach())
    return torch.stack(found)


@pytest.mark.parametrize(("name", "kind", "width"), EVERY)
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_equal_to_autograd_for_ragged_users(name, kind, width, scale):
    model = preference_model(name, kind, width)
    x_RD, y_R = judgements(kind, width, 40, 37, seed=width, scale=scale)
    theta_D = torch.randn(37, generator=torch.Generator().manual_seed(9))
    taken_N, ends_B = [3, 4, 5, 6, 7, 0, 30, 31, 32, 12, 2], [5, 6, 6, 9, 11]  # one has none
    found = run(x_RD, y_R, width, taken_N, ends_B, theta_D, model)
    wanted = expected(x_RD, y_R, width, taken_N, ends_B, theta_D, model)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-6)
    assert not found[2].any()


@pytest.mark.parametrize(("name", "kind", "width"), EVERY)
def test_several_local_steps_are_those_of_the_loss(name, kind, width):
    model = preference_model(name, kind, width)
    x_RD, y_R = judgements(kind, width, 12, 9, seed=4)
    theta_D = torch.linspace(-1, 1, 9)
    args = (x_RD, y_R, width, list(range(12)), [5, 12], theta_D, model, 4, 0.3)
    torch.testing.assert_close(run(*args).double(), expected(*args), rtol=2e-5, atol=2e-6)


@given(
    which=st.integers(0, len(MODELS) - 1),
    exponent=st.floats(-3, 3),
    seed=st.integers(0, 2**31),
)
def test_slopes_are_those_of_the_model_for_logits_of_any_size(which, exponent, seed):
    name, kind, width = MODELS[which]
    model = preference_model(name, kind, width)
    _, y_R = judgements(kind, width, 8, 1, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    z_JW = torch.randn(8, width, generator=generator) * 10**exponent
    y_JW, found = y_R.view(8, width), torch.empty(8, width)
    numba_gradients.residuals(z_JW.numpy(), y_JW.numpy(), model.code, found.numpy())
    wanted = model.residual(z_JW.double(), y_JW.double())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)


def test_what_is_not_finite_stays_so_and_with_its_user():
    model = preference_model("btl")
    for bad in (torch.nan, torch.inf):
        x_RD, y_R = judgements("pairs", 1, 6, 33, seed=0)
        x_RD[2, 5] = bad
        found = run(x_RD, y_R, 1, range(6), [2, 4, 6], torch.ones(33), model)
        assert not torch.isfinite(found[1]).all()
        assert torch.isfinite(found[[0, 2]]).all()


def test_rows_that_are_read_ahead_of_their_turn_change_nothing():
    """The last users' rows lie at the end of x: nothing past them may be touched or needed."""
    model = preference_model("btl")
    x_RD, y_R = judgements("pairs", 1, 300, 64, seed=1)
    theta_D = torch.ones(64) / 8
    whole = run(x_RD, y_R, 1, range(300), list(range(3, 301, 3)), theta_D, model)
    each = [run(x_RD, y_R, 1, range(n, n + 3), [3], theta_D, model) for n in range(0, 300, 3)]
    assert torch.equal(whole, torch.cat(each))
