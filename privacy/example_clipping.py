"""The bound on what one example can contribute, for gradients that are a number times a row.

The gradient of a linear head at one judgement is r·x with r the loss's derivative by the logit, so
its length is |r|·‖x‖: clipping scales a number, and no gradient is ever formed. Lengths and sums
are computed in float64, for the reasons given in ``privacy.clipping``.

Legend: K examples, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from privacy import grid
from privacy.clipping import ROUNDING

_BLOCK = 2**17  # elements that are converted to float64 at a time: they stay in the cache


@dataclass(frozen=True)
class ExampleClip:
    """Scales each example's gradient into the ℓ2 ball of radius ``norm`` (Abadi et al. 2016).

    Formal guarantee: for any input, finite or not, each example's term in ``clip_sum`` has ℓ2 norm
    at most ``norm``; a user with G examples in the sum moves it by at most G·norm.

    With a ``step`` it is for the grid of ``privacy.grid``: gradients are formed and rounded one by
    one then, by a ``UserClip`` of the same norm and step, and ``clip_sum`` is not for it.
    """

    norm: float
    step: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")
        if self.step:
            grid.check_step(self.step, self.norm)

    @classmethod
    def on_grid(cls, norm: float) -> "ExampleClip":
        """The clip of this norm with rounding."""
        return cls(norm, grid.step_for(norm))

    def clip_sum(
        self, x_KD: torch.Tensor, weight_K: torch.Tensor, length_K: torch.Tensor
    ) -> torch.Tensor:
        """Σ clip(weight·x), float64, (D,); ``length_K`` are the norms of the rows, in float64.

        An example that is not finite counts as zero.
        """
        if self.step:
            raise ValueError("on a grid every example's gradient is rounded: form them one by one")
        lengths_K = weight_K.double().abs() * length_K
        # A zero gradient gives norm / 0 = inf, which the clamp turns into a factor of one.
        weight_K = weight_K.double() * (self.norm * ROUNDING / lengths_K).clamp(max=1.0)
        finite_K = torch.isfinite(lengths_K)
        if not bool(finite_K.all()):
            x_KD, weight_K = x_KD[finite_K], weight_K[finite_K]
        sum_D = x_KD.new_zeros(x_KD.shape[1], dtype=torch.float64)
        rows = max(1, _BLOCK // max(1, len(sum_D)))
        for part_KD, part_K in zip(x_KD.split(rows), weight_K.split(rows), strict=True):
            sum_D += part_K @ part_KD.double()
        return sum_D

    def admits(self, sum_D: np.ndarray, examples: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``examples`` clipped gradients."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * examples * (1.0 + 1e-5)
