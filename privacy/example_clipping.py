"""The bound on what one example can contribute, for gradients that are a number times a row.

The gradient of a linear head at one judgement is r·x with r the loss's derivative by the logit, so
its length is |r|·‖x‖: clipping scales a number. Lengths are computed in float64 and sums are exact,
for the reasons given in ``privacy.clipping``.

Legend: K examples, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from privacy.clipping import ROUNDING, UserClip
from privacy.kernel import kernel


@dataclass(frozen=True)
class ExampleClip:
    """Scales each example's gradient into the ℓ2 ball of radius ``norm`` (Abadi et al. 2016).

    It is then rounded toward zero onto the grid of ``step``, like a ``UserClip``'s.

    Formal guarantee: for any input, finite or not, each example's term in ``clip_sum`` is a
    function of that example alone and has ℓ2 norm at most ``norm``, and the sum is exact; a user
    with G examples in it moves it by at most G·norm.
    """

    norm: float

    def __post_init__(self) -> None:
        _ = self.as_user  # validates the norm

    @property
    def as_user(self) -> UserClip:
        """The same bound, on examples whose gradients have been formed."""
        return UserClip(self.norm)

    @property
    def step(self) -> float:
        """That of the grid on which sums are."""
        return self.as_user.step

    def clip_sum(
        self, x_KD: torch.Tensor, weight_K: torch.Tensor, length_K: torch.Tensor
    ) -> torch.Tensor:
        """Σ clip(weight·x), float64, (D,); ``length_K`` are the norms of the rows, in float64.

        An example that is not finite counts as zero.
        """
        steps_D = np.zeros(x_KD.shape[1])
        bound = self.norm * ROUNDING
        _add_clipped(x_KD.numpy(), weight_K.numpy(), length_K.numpy(), bound, self.step, steps_D)
        return torch.from_numpy(steps_D * self.step)

    def admits(self, sum_D: np.ndarray, examples: int) -> bool:
        """Whether ``sum_D`` can be a sum of ``examples`` clipped gradients."""
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(sum_D.astype(np.float64)))
        return math.isfinite(length) and length <= self.norm * examples * (1.0 + 1e-5)


@kernel()
def _add_clipped(
    x_KD: np.ndarray,
    weight_K: np.ndarray,
    length_K: np.ndarray,
    norm: float,
    step: float,
    steps_D: np.ndarray,
) -> None:
    """Add each weighted row, scaled to at most ``norm``, in whole steps; leave out what is not
    finite."""
    for k in range(len(weight_K)):
        weight = np.float64(weight_K[k])
        length = abs(weight) * length_K[k]
        if math.isfinite(length):
            factor = weight * (norm / max(norm, length)) / step
            for d in range(len(steps_D)):
                steps_D[d] += np.trunc(factor * x_KD[k, d])
