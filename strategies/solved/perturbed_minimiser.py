"""Objective perturbation of labels: users' public weights, and the minimiser.

Source: Chowdhury et al. 2024, Algorithm 2, Theorem 5.2. The minimiser is post-processing of one
Gaussian release. What is noised is Σ_u weight_u · mean of x·(y − ½) over user u's judgements. How
far all labels of a user together can move their mean is public, being a matter of features: at most
the mean of ‖x‖, and at most ‖X‖/√m, the largest singular value of their m rows, which for rows in
different directions is far less. A user who could move it by more than ``length`` gets less weight,
instead of having features shortened: the likelihood stays that of the model.

Legend: R rows (judgements of pairs), U users, D dimensions.
"""

import itertools
import math

import numpy as np
import torch

from murmuration.preference.estimation.public_likelihood import (
    PublicLikelihood,
    label_linear_model,
    minimise,
    reciprocal,
)
from murmuration.preference.linear.examples import PairExamples
from murmuration.strategies.solved.moment_solver import noise_aware_ridge


def reach(examples: PairExamples) -> torch.Tensor:
    """The most that a user's labels can move the mean of x·y over their pairs, (U,) float64.

    It depends on features only, and not on their signs. Labels move the mean by Xᵀs/m, |s_j| ≤ 1,
    whose length is at most that of the mean of ‖x‖, and at most ‖X‖·‖s‖/m ≤ ‖X‖/√m.
    """
    starts, lengths_R = examples.start_U.tolist(), examples.lengths_R
    found_U = torch.zeros(len(starts) - 1, dtype=torch.float64)
    for user, (first, last) in enumerate(itertools.pairwise(starts)):
        mean = math.fsum(lengths_R[first:last].tolist()) / max(1, last - first)
        if not math.isfinite(mean):
            continue  # whose vector is not finite, and counts as zero
        if last - first > 1:
            x_RD = examples.x_RD[first:last].double()
            gram = x_RD @ x_RD.T if len(x_RD) <= x_RD.shape[1] else x_RD.T @ x_RD
            # Rounding is far below what is added.
            largest = max(0.0, float(torch.linalg.eigvalsh(gram)[-1])) * (1.0 + 1e-9)
            mean = min(mean, math.sqrt(largest / (last - first)))
        found_U[user] = mean
    return found_U


def user_weights(examples: PairExamples, length: float) -> torch.Tensor:
    """Public weights with which no user's labels move the sum by more than ``length``, (U,).

    min(1, length / reach); with a ``length`` of 0, 1 / reach: every user's by exactly one.
    """
    reach_U = reach(examples)
    return (length / reach_U).clamp_max(1.0) if length else reciprocal(reach_U)


def weighted(
    examples: PairExamples, weight_U: torch.Tensor, model: str = "btl"
) -> PublicLikelihood:
    """The likelihood in which users count by their public weights."""
    return PublicLikelihood(examples, label_linear_model(model, examples), weight_U)


def usual_ridge(loss: PublicLikelihood, std: float) -> float:
    """The noise-aware ridge."""
    zero_D = torch.zeros(loss.examples.dimension, dtype=torch.float64)
    moments_U = loss.weight_U * loss.spread_U(zero_D)
    return noise_aware_ridge(loss, std, float(moments_U.square().sum()))


def solve(loss: PublicLikelihood, noisy_D: np.ndarray, ridge: float) -> np.ndarray:
    """The minimiser from the noisy Σ mean of a·x·(y − ½)."""
    pull_D = torch.from_numpy(noisy_D)
    zero_D = torch.zeros_like(pull_D)
    # With labels of one half the gradient at zero is zero; the stand-in labels say one.
    linear_D = -loss.gradient(zero_D) - pull_D
    scale = 1.0 + float(linear_D.norm())
    return minimise(loss, linear_D, ridge=ridge, tolerance=1e-6 * scale).theta_D.numpy()
