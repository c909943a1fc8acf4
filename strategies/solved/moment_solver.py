"""From noisy label moments to a model, on public features; see ``strategies.solved.label_moment``.

All of this is post-processing of releases: it uses public features, the releases, and random draws
with a fixed seed.

Legend: J judgements, W rows in each, U users, B users in a chunk, D dimensions, T moments,
S drawn sets of labels, G candidate ridges.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.estimation.public_likelihood import (
    PublicLikelihood,
    averaged,
    label_linear_model,
    minimise,
    reciprocal,
    spread,
)
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.clipping import UserClip

_DRAWS = 8
#: How often weights are computed at the solution so far; fewer if it moves by less than a share.
_PASSES, _STILL = 6, 0.01


@dataclass(frozen=True, eq=False)
class Moment:
    """A released sum of clipped scaled moments, the model they were taken at, and its noise."""

    noisy_D: np.ndarray
    centre_D: np.ndarray
    clip: UserClip
    std: float


class MomentSolver:
    """The solver of the model from noisy moments.

    Args:
        examples: the public examples of all users in the sums; labels are not used.
        model: as in ``--model``.
        ridge: added curvature; None for the rule of ``strategies.solved.label_moment``.
        start_D: where the ridge is least, a public θ; None: zero.

    Raises:
        InputError: with this model, labels enter in more than their sum with the features.
    """

    def __init__(
        self,
        examples: PairExamples,
        model: str = "btl",
        *,
        ridge: float | None = None,
        start_D: np.ndarray | None = None,
    ) -> None:
        self.examples = examples
        start_D = np.zeros(examples.dimension) if start_D is None else start_D
        self._centre_D = torch.from_numpy(start_D).double()
        self._ridge = ridge
        self._model = label_linear_model(model, examples)

    def solve(self, moments: Sequence[Moment]) -> np.ndarray:
        """The model that explains the moments, (D,) float64.

        Several count by the inverse square of their noise.
        """
        theta_D = torch.from_numpy(moments[-1].centre_D)
        share_T = np.array([1.0 / moment.std**2 for moment in moments])
        share_T /= share_T.sum()
        ridge = self.ridge_for(moments)
        for _ in range(_PASSES):
            weight_U = torch.zeros(len(self.examples.counts_U), dtype=torch.float64)
            parts = []
            for moment, share in zip(moments, share_T, strict=True):
                part_U, extra_D = self._clipped(moment, theta_D)
                parts.append((moment, share * part_U, share, share * extra_D))
                weight_U += share * part_U
            linear_D = torch.zeros_like(theta_D)
            for moment, part_U, share, extra_D in parts:
                centre_D = torch.from_numpy(moment.centre_D)
                linear_D -= share * torch.from_numpy(moment.noisy_D) - extra_D
                linear_D -= self._base.reweighted(part_U).gradient(centre_D)
            result = minimise(
                self._base.reweighted(weight_U),
                linear_D,
                ridge=ridge,
                centre_D=self._centre_D,
                start_D=theta_D,
                tolerance=1e-5 * (1.0 + float(linear_D.norm())),
            )
            moved = float((result.theta_D - theta_D).norm())
            theta_D = result.theta_D
            if moved <= _STILL * float(theta_D.norm()):
                break
        return theta_D.numpy()

    def ridge_for(self, moments: Sequence[Moment]) -> float:
        """The ridge that was given, or the one that minimises the expected error of log-odds."""
        if self._ridge is not None:
            return self._ridge
        # Moments are scaled to length one.
        return noise_aware_ridge(self._base, self._noise(moments), len(self.examples.counts_U))

    def noise_length(self, moments: Sequence[Moment]) -> float:
        """About how far the noise moves the solution: to first order, without clipping."""
        bends_D = self._base.axes[0].numpy()
        return self._noise(moments) * float(
            np.sqrt((1.0 / (bends_D + self.ridge_for(moments)) ** 2).sum())
        )

    @staticmethod
    def _noise(moments: Sequence[Moment]) -> float:
        """Standard deviation of the noise on each coordinate of the weighted mean of moments."""
        return sum(moment.std**-2 for moment in moments) ** -0.5

    @cached_property
    def _base(self) -> PublicLikelihood:
        """The likelihood with each user weighted by the inverse of their public length at θ = 0."""
        plain = PublicLikelihood(self.examples, self._model)
        zero_D = torch.zeros(self.examples.dimension, dtype=torch.float64)
        return plain.reweighted(reciprocal(plain.spread_U(zero_D)))

    def _clipped(self, moment: Moment, theta_D: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The effect of clipping on the expected sum if labels come from the model at θ.

        Returns:
            The weight of each user, mean clipping factor over public length (U,), and the
            difference between the expected sum and the weighted one (D,).
        """
        centre_p_JW = self._base.others(torch.from_numpy(moment.centre_D))
        scale_U = reciprocal(spread(self.examples, centre_p_JW))
        chances_JW = self._base.others(theta_D)
        generator = np.random.default_rng(0)
        norm = moment.clip.norm
        factors_U = torch.zeros(len(scale_U), dtype=torch.float64)
        drawn = []
        for _ in range(_DRAWS):
            drawn.append(_draw(chances_JW, generator) - centre_p_JW)
        sum_D = torch.zeros(self.examples.dimension, dtype=torch.float64)
        chunks = [averaged(self.examples, slopes_JW) for slopes_JW in drawn]
        for same in zip(*chunks, strict=True):
            users = same[0][0]
            # Rows are φ(first) − φ(other): a drawn other pulls against its row.
            moments_SBD = [-rows_BD * scale_U[users][:, None] for _, rows_BD in same]
            factor_SB = torch.stack([_factors(rows_BD, norm) for rows_BD in moments_SBD])
            mean_B = factor_SB.mean(0)
            factors_U[users] = mean_B
            for factor_B, rows_BD in zip(factor_SB, moments_SBD, strict=True):
                sum_D += (factor_B - mean_B) @ rows_BD
        # The covariance of factor and moment, unbiased.
        return factors_U * scale_U, sum_D / (_DRAWS - 1)


def noise_aware_ridge(loss: PublicLikelihood, noise: float, sampling: float) -> float:
    """The ridge with the least expected squared error of log-odds; looks at public things only.

    Weights are taken to be independent, with a variance at which the log-odds of a typical
    judgement are about one; errors to come from the noise (``noise`` per coordinate of the moment),
    from labels being random (``sampling``, the trace of the moment's covariance at θ = 0, spread
    over directions like the curvature), and from the ridge itself.
    """
    bends_D = loss.axes[0].numpy()
    squares_R = loss.examples.lengths_R**2
    there = float((squares_R > 0).sum())
    if not there:
        return 1.0
    variance = there / float(squares_R.sum())
    sampling_D = bends_D / max(float(bends_D.sum()), 1e-300) * sampling
    grid = noise / math.sqrt(variance) * np.logspace(-3, 3, 121)
    shrink_GD = grid[:, None] / (bends_D + grid[:, None])
    spread_GD = (noise**2 + sampling_D) / (bends_D + grid[:, None]) ** 2
    risk_G = (bends_D * (variance * shrink_GD**2 + spread_GD)).sum(axis=1)
    return float(grid[int(np.argmin(risk_G))])


def _factors(rows_BD: torch.Tensor, norm: float) -> torch.Tensor:
    return (norm / torch.linalg.vector_norm(rows_BD, dim=1)).clamp_max(1.0)


def _draw(chances_JW: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """Draw which other response is the best, one-hot (J, W); a row of zeros if the first is."""
    edges_JW = chances_JW.cumsum(1)
    at_J1 = torch.from_numpy(generator.random(len(edges_JW)))[:, None]
    below_JW = at_J1 < edges_JW
    return (below_JW & ~torch.nn.functional.pad(below_JW, (1, 0))[:, :-1]).double()
