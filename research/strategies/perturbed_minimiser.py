"""Objective perturbation over arrays that one trusted party holds.

Source: Chowdhury et al. 2024, Algorithm 2, Theorems 5.2 (labels) and E.1 (everything); Kifer et al.
2012; Iyengar et al. 2019 for approximate minimisers. What the noise must be is derived in
``research.strategies.objective_noise``. It is no federated strategy: to minimise over features that
stay where they are, iterates would have to be sent to the nodes, and these are not released; only
where it ends is.

    theta_D = perturbed_minimiser(
        x_RD, y_R, epsilon=1.0, delta=1e-5, length=2.0, generator=numpy.random.default_rng(0)
    )

Legend: R rows (judgements of pairs), U users, D dimensions.
"""

import numpy as np
import torch

from murmuration.preference.estimation.public_likelihood import (
    PublicLikelihood,
    averaged,
    label_linear_model,
    minimise,
)
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.research.strategies.objective_noise import (
    Calibration,
    FullObjective,
    LabelObjective,
)
from murmuration.strategies.solved.perturbed_minimiser import (
    solve,
    user_weights,
    usual_ridge,
    weighted,
)

TOLERANCE = 1e-7


def perturbed_minimiser(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    *,
    epsilon: float,
    delta: float,
    length: float,
    generator: np.random.Generator,
    start_U: np.ndarray | None = None,
    adjacency: Adjacency = Adjacency.REPLACE_LABELS,
    calibration: Calibration = "analytic",
    cap: int | None = None,
    ridge: float | None = None,
) -> np.ndarray:
    """θ̂ of Algorithm 2 on arrays, (D,) float64: for one trusted party that holds everything.

    Args:
        x_RD: features of the preferred response less those of the other, or of the first less the
            second; rows of a user are consecutive.
        y_R: 1 where the first is preferred, 0 where the other is, ½ for a tie.
        length: bound on ‖x‖. Under ``replace-labels`` users whose labels could move the sum by more
            count less, under ``replace`` longer rows are shortened. (The paper's L bounds features
            of one response: length = 2L.)
        generator: of the noise; for a deployment ``Randomness(None).stream(…)``.
        start_U: offsets of users, U + 1; every row is a user of their own if not given.
        adjacency: ``replace-labels`` (Theorem 5.2) or ``replace`` (Theorem E.1).
        calibration: ``analytic``, or the ``paper``'s constants.
        cap: ``replace``: the most judgements of a user, whose further ones are left out. Without
            ``start_U`` it is 1.
        ridge: β on the scale of the sum over users; by default the least that the guarantee needs,
            and under ``replace-labels`` the noise-aware one.

    Raises:
        ValueError: a parameter is out of range, or the minimisation is not exact enough.
        Unsupported: there is no guarantee under this adjacency.

    Formal guarantee: one user's labels, or everything of one user, (epsilon, delta).
    """
    x_RD, y_R = np.asarray(x_RD, dtype=np.float64), np.asarray(y_R, dtype=np.float64)
    if not (np.isfinite(x_RD).all() and ((y_R >= 0) & (y_R <= 1)).all()):
        raise ValueError("features must be finite and labels in [0, 1]")
    start_U = np.arange(len(y_R) + 1) if start_U is None else np.asarray(start_U, dtype=np.int64)
    if adjacency is Adjacency.REPLACE_LABELS:
        plan = LabelObjective(epsilon, delta, length, calibration)
        examples = _examples(x_RD, y_R, start_U)
        weight_U = user_weights(examples, length)
        loss = weighted(examples, weight_U)
        pull_D = summed(examples, examples.y_R - 0.5, weight_U)
        noisy_D = pull_D.numpy() + plan.std * generator.standard_normal(x_RD.shape[1])
        beta = usual_ridge(loss, plan.std) if ridge is None else ridge
        return solve(loss, noisy_D, beta)
    if adjacency is not Adjacency.REPLACE:
        raise Unsupported(
            f"objective perturbation has no guarantee under {adjacency}; use replace-labels or "
            "replace"
        )
    if cap is None and (np.diff(start_U) > 1).any():
        raise ValueError("name a cap: the most judgements of a user that count")
    return _everything(
        x_RD,
        y_R,
        start_U,
        FullObjective(epsilon, delta, length, cap or 1, TOLERANCE, calibration),
        generator,
        ridge,
    )


def _everything(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    start_U: np.ndarray,
    full: FullObjective,
    generator: np.random.Generator,
    ridge: float | None,
) -> np.ndarray:
    """Under ``replace``."""
    if ridge is not None and ridge < full.ridge:
        raise ValueError(f"the guarantee needs a ridge of at least {full.ridge:g}, got {ridge:g}")
    kept_R = np.arange(len(y_R)) - np.repeat(start_U[:-1], np.diff(start_U)) < full.cap
    start_U = np.concatenate([[0], np.cumsum(np.minimum(np.diff(start_U), full.cap))])
    x_RD, y_R = x_RD[kept_R], y_R[kept_R]
    # A hair inside, so that rounding cannot carry a row out of the bound.
    lengths_R = np.linalg.norm(x_RD, axis=1, keepdims=True)
    x_RD = x_RD * np.minimum(1.0, full.length * (1.0 - 1e-12) / np.maximum(lengths_R, 1e-300))
    examples = _examples(x_RD, y_R, start_U)
    loss = PublicLikelihood(examples, label_linear_model("btl", examples))
    pull_D = summed(examples, examples.y_R - 0.5)
    noise_D = full.std * generator.standard_normal(x_RD.shape[1])
    zero_D = torch.zeros(x_RD.shape[1], dtype=torch.float64)
    linear_D = -loss.gradient(zero_D) - pull_D + torch.from_numpy(noise_D)
    beta = full.ridge if ridge is None else ridge
    result = minimise(loss, linear_D, ridge=beta, tolerance=0.1 * full.tolerance)
    # Half: what rounding may hide in the length of the gradient is far less than the other half.
    if not result.residual <= 0.5 * full.tolerance:
        # Without its length, which depends on everybody's data and has no noise.
        raise ValueError(
            f"the minimisation stopped with a gradient above half the tolerance of "
            f"{full.tolerance:g}; nothing is released"
        )
    return result.theta_D.numpy() + full.output_std * generator.standard_normal(x_RD.shape[1])


def summed(
    examples: PairExamples, pull_R: torch.Tensor, weight_U: torch.Tensor | None = None
) -> torch.Tensor:
    """Σ over users of weight times the mean of pull·x, (D,)."""
    total_D = torch.zeros(examples.dimension, dtype=torch.float64)
    for users, rows_BD in averaged(examples, pull_R[:, None]):
        total_D += rows_BD.sum(0) if weight_U is None else weight_U[users] @ rows_BD
    return total_D


def _examples(x_RD: np.ndarray, y_R: np.ndarray, start_U: np.ndarray) -> PairExamples:
    return PairExamples(torch.from_numpy(x_RD), torch.from_numpy(y_R), torch.from_numpy(start_U))
