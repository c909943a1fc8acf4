"""Minimising over a ball: quadratics in closed form, other functions against a reference."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

from murmuration.preference.estimation.ball_newton import eigh_robust, minimise, project


def quadratic(curvature_DD, target_D):
    """½ (θ − target)ᵀ H (θ − target)."""

    def value(theta_D):
        off_D = theta_D - target_D
        return 0.5 * (off_D * (curvature_DD @ off_D.unsqueeze(-1)).squeeze(-1)).sum(-1)

    def expand(theta_D):
        gradient_D = (curvature_DD @ (theta_D - target_D).unsqueeze(-1)).squeeze(-1)
        return gradient_D, lambda: curvature_DD

    return value, expand


def spread(problems: int, dimension: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(problems, dimension, dimension, generator=generator).double()
    return root @ root.transpose(-1, -2), 3 * torch.randn(
        problems, dimension, generator=generator
    ).double()


def test_inside_the_ball_it_is_the_minimum():
    curvature_DD, target_D = spread(4, 3)
    found = minimise(*quadratic(curvature_DD, target_D), torch.zeros(4, 3).double(), ball=100.0)
    assert torch.allclose(found.theta_D, target_D, atol=1e-6)
    assert found.converged and not found.on_sphere.any()


def test_on_the_sphere_the_gradient_points_outwards_along_theta():
    curvature_DD, target_D = spread(5, 4)
    value, expand = quadratic(curvature_DD, target_D)
    found = minimise(value, expand, torch.zeros(5, 4).double(), ball=1.0)
    assert found.converged and found.on_sphere.all()
    assert torch.allclose(found.theta_D.norm(dim=-1), torch.ones(5).double())
    gradient_D, _ = expand(found.theta_D)
    cosine = torch.cosine_similarity(-gradient_D, found.theta_D, dim=-1)
    assert torch.allclose(cosine, torch.ones(5).double(), atol=1e-8)


def test_ridge():
    curvature_DD, target_D = spread(2, 3)
    found = minimise(
        *quadratic(curvature_DD, target_D), torch.zeros(2, 3).double(), ball=math.inf, ridge=2.5
    )
    wanted = torch.linalg.solve(
        curvature_DD + 2.5 * torch.eye(3), (curvature_DD @ target_D.unsqueeze(-1)).squeeze(-1)
    )
    assert torch.allclose(found.theta_D, wanted, atol=1e-9)


def test_directions_without_data_are_left_alone():
    curvature_DD = torch.diag(torch.tensor([4.0, 0.0, 1.0])).double()
    target_D = torch.tensor([1.0, 7.0, -1.0]).double()
    found = minimise(*quadratic(curvature_DD, target_D), torch.zeros(3).double(), ball=50.0)
    assert torch.allclose(found.theta_D, torch.tensor([1.0, 0.0, -1.0]).double(), atol=1e-6)


def test_a_function_that_is_not_quadratic_against_a_reference():
    curvature_DD, target_D = spread(1, 3, seed=4)
    curvature_DD, target_D = curvature_DD[0], target_D[0]

    def value(theta_D):  # convex, with flat tails
        return torch.log(torch.cosh((theta_D - target_D) @ curvature_DD)).sum(-1)

    def expand(theta_D):
        t_D = torch.tanh((theta_D - target_D) @ curvature_DD)
        return curvature_DD @ t_D, lambda: curvature_DD @ torch.diag(1 - t_D**2) @ curvature_DD

    for ball in (0.7, 2.0):
        found = minimise(value, expand, torch.zeros(3).double(), ball=ball)
        reference = optimize.minimize(
            lambda t: float(value(torch.from_numpy(t))),
            np.zeros(3),
            constraints={"type": "ineq", "fun": lambda t, b=ball: b**2 - t @ t},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert float(value(found.theta_D)) <= reference.fun + 1e-9
        assert found.theta_D.norm() <= ball * (1 + 1e-12)


def test_what_is_unbounded_below_ends_on_the_sphere():
    slope_D = torch.tensor([3.0, -4.0]).double()
    found = minimise(
        lambda theta_D: (slope_D * theta_D).sum(-1),
        lambda theta_D: (slope_D, lambda: torch.zeros(2, 2).double()),
        torch.zeros(2).double(),
        ball=5.0,
    )
    assert torch.allclose(found.theta_D, torch.tensor([-3.0, 4.0]).double())


def test_projection():
    points = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]).double()
    assert torch.allclose(
        project(points, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]).double()
    )


@pytest.mark.parametrize(("ball", "ridge"), [(0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (1.0, -1.0)])
def test_impossible_bounds_are_refused(ball, ridge):
    with pytest.raises(ValueError, match="ball must be positive"):
        minimise(*quadratic(torch.eye(2), torch.zeros(2)), torch.zeros(2), ball=ball, ridge=ridge)


def test_it_does_without_the_fast_algorithm(monkeypatch):
    curvature_DD, target_D = spread(3, 4)
    quick = minimise(*quadratic(curvature_DD, target_D), torch.zeros(3, 4).double(), ball=1.0)

    def fails(_):
        raise RuntimeError("too many repeated eigenvalues")

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    slow = minimise(*quadratic(curvature_DD, target_D), torch.zeros(3, 4).double(), ball=1.0)
    assert torch.allclose(slow.theta_D, quick.theta_D, atol=1e-9)


def test_a_curvature_is_kept_in_many_dimensions():
    dimension, asked = 70, []
    weight_D = torch.linspace(0.1, 3.0, dimension).double()

    def expand(theta_D):
        def curvature():
            asked.append(1)
            return torch.diag(weight_D * (1 + 0.03 * theta_D**2))

        return weight_D * (theta_D + 0.01 * theta_D**3 - 1.0), curvature

    def value(theta_D):
        return (weight_D * (theta_D**2 / 2 + 0.0025 * theta_D**4 - theta_D)).sum(-1)

    found = minimise(value, expand, torch.zeros(dimension).double(), ball=100.0)
    assert found.converged and found.steps > len(asked)
    assert torch.allclose(
        found.theta_D + 0.01 * found.theta_D**3, torch.ones(1).double(), atol=1e-4
    )


def test_axes_are_found_where_the_fast_algorithm_fails(monkeypatch):
    def failing(matrix_DD):
        raise torch.linalg.LinAlgError("failed to converge")

    x_RD = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gram_DD = x_RD.transpose(-1, -2) @ x_RD  # of rank 3
    monkeypatch.setattr(torch.linalg, "eigh", failing)
    bends_D, axes_DD = eigh_robust(gram_DD)
    torch.testing.assert_close(axes_DD @ (bends_D[..., None] * axes_DD.transpose(-1, -2)), gram_DD)
