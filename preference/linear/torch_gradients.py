"""Users' averaged gradients by tensor operations: for any preference model, on any device.

``local_updates_alone`` computes one user after the other, from a copy of that user's rows: a matrix
product's last bits may depend on its shape, on how many threads share it and on where in memory its
operands begin, and none of these depends on other users then.

``UserBatch`` computes many users at once, as a GPU asks for. The sums read rows where they lie:
nothing is copied but logits and slopes. Every operation gives the same bits each time it is called
on the same device; that no user's depend on the others' is true of torch's kernels as far as can be
seen, and promised by nobody.

Legend: R rows (W of each judgement), N judgements taken, K their rows, B users, D dimensions.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import PreferenceModel
from murmuration.privacy.mechanisms.parallel import one_core

CPU = torch.device("cpu")


class Rows(Protocol):
    """What judgements' gradients are made of; as of `preference.linear.examples.PairExamples`."""

    @property
    def x_RD(self) -> torch.Tensor:
        """float32; the W rows of a judgement are consecutive."""
        ...

    @property
    def y_R(self) -> torch.Tensor:
        """float32."""
        ...

    @property
    def width(self) -> int:
        """W."""
        ...

    @property
    def dimension(self) -> int:
        """D."""
        ...

    @cached_property
    def gpu(self) -> torch.device | None:
        """Return where gradients are computed, if not by the processor."""
        ...

    def on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x and y on a device."""
        ...


@dataclass(frozen=True, eq=False)
class UserBatch:
    """The rows of B users, and where each user's begin; all tensors are on one device."""

    x_RD: torch.Tensor
    y_R: torch.Tensor
    width: int
    rows_K: torch.Tensor
    weight_K: torch.Tensor  # one over the user's number of judgements
    begin_B: torch.Tensor
    user_K: torch.Tensor  # whose row it is

    @classmethod
    def of(
        cls,
        examples: Rows,
        taken_N: torch.Tensor,
        ends_B: np.ndarray,
        device: torch.device = CPU,
    ) -> "UserBatch":
        """User b takes judgements ``taken_N[ends_B[b − 1]:ends_B[b]]``."""
        width = examples.width
        rows_NW = taken_N[:, None] * width + torch.arange(width)
        count_B = np.diff(ends_B, prepend=0)
        weight_B = np.float32(1) / np.maximum(count_B, 1, dtype=np.float32)
        x_RD, y_R = examples.on(device)
        return cls(
            x_RD,
            y_R,
            width,
            rows_NW.reshape(-1).to(device),
            torch.from_numpy(np.repeat(weight_B, count_B * width)).to(device),
            torch.from_numpy((ends_B - count_B) * width).to(device),
            torch.from_numpy(np.repeat(np.arange(len(ends_B)), count_B * width)).to(device),
        )

    def local_updates(
        self, theta_D: torch.Tensor, model: PreferenceModel, local: LocalSteps
    ) -> torch.Tensor:
        """θ − θ_u after each user's own gradient steps from θ, (B, D)."""
        theta_1D = theta_D.to(self.x_RD.device)[None]
        logits_K = self._dots(theta_1D, self.begin_B[:1], torch.zeros_like(self.user_K))
        # Kept as the way travelled: as the difference of two models it would be rounded like them.
        descent_BD = self._means(logits_K, model).mul_(local.rate)
        for _ in range(local.steps - 1):
            moved_K = self._dots(descent_BD, self.begin_B, self.user_K)
            descent_BD.add_(self._means(logits_K - moved_K, model), alpha=local.rate)
        return descent_BD

    def _dots(
        self, vectors_BD: torch.Tensor, begin_B: torch.Tensor, vector_K: torch.Tensor
    ) -> torch.Tensor:
        """Inner products (K,) of each row with its vector, one for all rows from a start on.

        Computed as the derivative of weighted sums by their weights, which is the one operation in
        torch that does not copy the rows first.
        """
        return torch.ops.aten._embedding_bag_per_sample_weights_backward(
            vectors_BD, self.x_RD, self.rows_K, begin_B, vector_K, mode=0
        )

    def _means(self, logits_K: torch.Tensor, model: PreferenceModel) -> torch.Tensor:
        """Mean of each user's rows times slopes, (B, D)."""
        y_NW = self.y_R[self.rows_K].view(-1, self.width)
        slope_K = model.residual(logits_K.view(-1, self.width), y_NW).reshape(-1) * self.weight_K
        # What functional.embedding_bag calls.
        return torch.embedding_bag(
            self.x_RD, self.rows_K, self.begin_B, mode=0, per_sample_weights=slope_K
        )[0]


def local_updates_alone(
    examples: Rows,
    taken_N: torch.Tensor,
    ends_B: np.ndarray,
    theta_D: torch.Tensor,
    model: PreferenceModel,
    local: LocalSteps,
) -> torch.Tensor:
    """θ − θ_u after each user's own gradient steps from θ, (B, D): see ``UserBatch``, and the top.

    A user's row is a function of that user's judgements, θ, the model and the steps.
    """
    out_BD = torch.zeros(len(ends_B), examples.dimension)
    within_W = torch.arange(examples.width)
    with one_core():
        for b, end in enumerate(ends_B.tolist()):
            taken = taken_N[int(ends_B[b - 1]) if b else 0 : end]
            if not len(taken):
                continue
            rows_K = (taken[:, None] * examples.width + within_W).reshape(-1)
            x_KD, y_NW = examples.x_RD[rows_K], examples.y_R[rows_K].view(-1, examples.width)
            logits_K, descent_D = x_KD @ theta_D, torch.zeros(examples.dimension)
            for step in range(local.steps):
                here_K = logits_K - x_KD @ descent_D if step else logits_K
                slope_NW = model.residual(here_K.view(y_NW.shape), y_NW)
                descent_D += local.rate * ((slope_NW.reshape(-1) / len(taken)) @ x_KD)
            out_BD[b] = descent_D
    return out_BD
