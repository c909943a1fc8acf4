"""Minimising a smooth function over the ball ‖θ‖ ≤ B: Newton steps that stay inside.

Each step minimises a convex quadratic model over the *whole ball* (not over a region around the
point), exactly: with the eigenvectors of the curvature that is a search for one multiplier. The
ball is convex, so going part of the way stays inside, and a line search makes every step a descent.
For convex functions this converges to the minimum, fast once it is near; for others to a point
where no direction inside the ball goes down. Many problems of one size are solved at once.

In many dimensions a curvature costs as much as hundreds of gradients, so one is kept for as long as
steps with it get shorter fast enough.

Legend: D dimensions; every array may have leading axes, one problem each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg

#: A step shorter than this, relative to 1 + ‖θ‖, ends the search.
_TOLERANCE = 1e-8
_MOST_STEPS = 100
#: From so many dimensions on a curvature is kept while each step promises less than this share of
#: what the last one did.
_MANY, _KEPT_BELOW = 64, 0.4
_HALVINGS = 40

#: Eigenvalues (…, D) and eigenvectors (…, D, D) of a curvature.
Axes = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Minimum:
    """The end of the search.

    Attributes:
        theta_D: the point.
        on_sphere: whether ‖θ‖ = B, so that the constraint is active.
        converged: whether the last step was negligible, for every problem.
        steps: their number.
    """

    theta_D: torch.Tensor
    on_sphere: torch.Tensor
    converged: bool
    steps: int


def minimise(
    value: Callable[[torch.Tensor], torch.Tensor],
    expand: Callable[[torch.Tensor], tuple[torch.Tensor, Callable[[], torch.Tensor]]],
    start_D: torch.Tensor,
    *,
    ball: float,
    ridge: float = 0.0,
    flat: float = 1e-10,
) -> Minimum:
    """Minimise ``value(θ) + ridge/2 ‖θ‖²`` over ‖θ‖ ≤ ``ball``, from ``start_D``.

    Args:
        value: the function, (…, D) to (…).
        expand: its gradient (…, D), and what computes a positive semi-definite curvature there,
            (…, D, D).
        flat: a step that promises to lower the value by less than this share of it is the last.

    Raises:
        ValueError: the ball is not positive or the ridge negative.
    """
    if not ball > 0 or math.isnan(ridge) or ridge < 0:
        raise ValueError(f"the ball must be positive and the ridge not negative: {ball}, {ridge}")

    def total(theta_D: torch.Tensor) -> torch.Tensor:
        return value(theta_D) + 0.5 * ridge * (theta_D**2).sum(-1)

    theta_D, settled, steps = project(start_D, ball), False, 0
    now, kept, before = total(theta_D), None, None
    while not settled and steps < _MOST_STEPS:
        steps += 1
        gradient_D, curvature = expand(theta_D)
        gradient_D = gradient_D + ridge * theta_D

        def step_with(axes: Axes, theta_D=theta_D, gradient_D=gradient_D):
            step_D = _model_minimum(gradient_D, axes, theta_D, ball, ridge) - theta_D
            return step_D, (gradient_D * step_D).sum(-1)

        renewed = kept is None or start_D.shape[-1] < _MANY
        kept = eigh_robust(curvature()) if kept is None or renewed else kept
        step_D, slope = step_with(kept)
        if not renewed and before is not None and bool((slope < _KEPT_BELOW * before).any()):
            kept = eigh_robust(curvature())
            step_D, slope = step_with(kept)
        before = slope
        share = torch.ones_like(slope)
        for _ in range(_HALVINGS):
            then = total(theta_D + share.unsqueeze(-1) * step_D)
            # Rounding of the value must not hold up a step that is nearly done.
            good = then <= now + 1e-4 * share * slope + 1e-13 * now.abs()
            if good.all():
                break
            share = torch.where(good, share, share / 2)
        share = torch.where(good, share, 0.0)
        theta_D = theta_D + share.unsqueeze(-1) * step_D
        now = torch.where(good, then, now)
        length = torch.linalg.vector_norm(step_D, dim=-1)
        near = length <= _TOLERANCE * (1.0 + torch.linalg.vector_norm(theta_D, dim=-1))
        settled = bool((near | (-slope <= flat * now.abs())).all())
    on_sphere = torch.linalg.vector_norm(theta_D, dim=-1) >= ball * (1.0 - 1e-6)
    return Minimum(theta_D, on_sphere, settled, steps)


def eigh_robust(curvature_DD: torch.Tensor) -> Axes:
    """Eigenvalues (…, D) and vectors (…, D, D) of symmetric matrices, whatever their rank."""
    try:
        return torch.linalg.eigh(curvature_DD)
    except RuntimeError:
        # The fast algorithm can fail on matrices of low rank; this one is slow and does not.
        every = curvature_DD.reshape(-1, *curvature_DD.shape[-2:]).numpy()
        result = [linalg.eigh(matrix_DD, driver="ev") for matrix_DD in every]
        bends_D = torch.from_numpy(np.stack([bends for bends, _ in result]))
        axes_DD = torch.from_numpy(np.stack([axes for _, axes in result]))
        return bends_D.reshape(curvature_DD.shape[:-1]), axes_DD.reshape(curvature_DD.shape)


def project(theta_D: torch.Tensor, ball: float) -> torch.Tensor:
    """The nearest point of the ball."""
    length = torch.linalg.vector_norm(theta_D, dim=-1, keepdim=True)
    return theta_D * (ball / length.clamp_min(1e-300)).clamp_max(1.0)


def _model_minimum(
    gradient_D: torch.Tensor,
    axes: Axes,
    theta_D: torch.Tensor,
    ball: float,
    ridge: float,
) -> torch.Tensor:
    """The minimum over the ball of the quadratic model at θ, (…, D).

    It is (H + λ)⁻¹ (Hθ − g), with the smallest λ ≥ 0 for which that lies in the ball.
    """
    bends_D, axes_DD = axes
    bends_D = bends_D.clamp_min(0.0) + ridge
    along = axes_DD.transpose(-1, -2)
    pull_D = bends_D * _times(along, theta_D) - _times(along, gradient_D)
    # Directions that the data say nothing about: nothing pulls there but rounding.
    floor = 1e-13 * bends_D.amax(-1, keepdim=True).clamp_min(1e-300)
    bends_D = torch.maximum(bends_D, floor)
    low = torch.zeros_like(bends_D[..., :1])
    if math.isfinite(ball):
        outside = torch.linalg.vector_norm(pull_D / bends_D, dim=-1, keepdim=True) > ball
        high = torch.linalg.vector_norm(pull_D, dim=-1, keepdim=True) / ball
        for _ in range(60 if bool(outside.any()) else 0):
            # Halved in the logarithm once λ is known to be far below its bound.
            middle = torch.where(low > 0, (low * high).sqrt(), high * 1e-3)
            too_far = torch.linalg.vector_norm(pull_D / (bends_D + middle), dim=-1, keepdim=True)
            low = torch.where(too_far > ball, middle, low)
            high = torch.where(too_far > ball, high, middle)
        low = torch.where(outside, high, 0.0)
    return project(_times(axes_DD, pull_D / (bends_D + low)), ball)


def _times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
