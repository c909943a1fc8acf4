"""Users' averaged gradients by tensor operations, for any preference model.

The weighted sums read rows where they lie: nothing is copied but logits and slopes.

Legend: R rows (W of each judgement), N judgements taken, K their rows, B users, D dimensions.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from preference.examples import PairExamples
from preference.models import PreferenceModel


class Steps(Protocol):
    """See ``preference.gradients.LocalSteps``."""

    @property
    def steps(self) -> int: ...  # noqa: D102
    @property
    def rate(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Bags:
    """The rows of B users, and where each user's begin."""

    examples: PairExamples
    rows_K: torch.Tensor
    weight_K: torch.Tensor  # one over the user's number of judgements
    begin_B: torch.Tensor

    @classmethod
    def of(cls, examples: PairExamples, taken_N: torch.Tensor, ends_B: np.ndarray) -> "Bags":
        """User b takes judgements ``taken_N[ends_B[b − 1]:ends_B[b]]``."""
        width = examples.width
        rows_NW = taken_N[:, None] * width + torch.arange(width)
        count_B = np.diff(ends_B, prepend=0)
        weight_B = np.float32(1) / np.maximum(count_B, 1, dtype=np.float32)
        return cls(
            examples,
            rows_NW.reshape(-1),
            torch.from_numpy(np.repeat(weight_B, count_B * width)),
            torch.from_numpy((ends_B - count_B) * width),
        )

    def descents(self, theta_D: torch.Tensor, model: PreferenceModel, local: Steps) -> torch.Tensor:
        """θ − θ_u after each user's own gradient steps from θ, (B, D)."""
        logits_K = self._dots(theta_D[None], self.begin_B[:1])
        # Kept as the way travelled: as the difference of two models it would be rounded like them.
        descent_BD = self._means(logits_K, model).mul_(local.rate)
        for _ in range(local.steps - 1):
            moved_K = self._dots(descent_BD, self.begin_B)
            descent_BD.add_(self._means(logits_K - moved_K, model), alpha=local.rate)
        return descent_BD

    def _dots(self, vectors_BD: torch.Tensor, begin_B: torch.Tensor) -> torch.Tensor:
        """Inner products (K,) of rows with vectors, one vector for all rows from a bag's start on.

        Computed as the derivative of weighted sums by their weights, which is the one operation in
        torch that does not copy the rows first.
        """
        return torch.ops.aten._embedding_bag_per_sample_weights_backward(
            vectors_BD, self.examples.x_RD, self.rows_K, begin_B, begin_B[:0], mode=0
        )

    def _means(self, logits_K: torch.Tensor, model: PreferenceModel) -> torch.Tensor:
        """Mean of each user's rows times slopes, (B, D)."""
        width = self.examples.width
        y_NW = self.examples.y_R[self.rows_K].view(-1, width)
        slope_K = model.residual(logits_K.view(-1, width), y_NW).reshape(-1) * self.weight_K
        # What functional.embedding_bag calls.
        return torch.embedding_bag(
            self.examples.x_RD, self.rows_K, self.begin_B, mode=0, per_sample_weights=slope_K
        )[0]
