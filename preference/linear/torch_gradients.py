"""Users' averaged gradients by tensor operations, for any preference model.

One user is computed after the other, from a copy of that user's rows: a matrix product's last bits
may depend on its shape, on how many threads share it and on where in memory its operands begin, and
none of these depends on other users then.

Legend: R rows (W of each judgement), N judgements taken, K their rows, B users, D dimensions.
"""

from typing import Protocol

import numpy as np
import torch

from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import PreferenceModel
from murmuration.privacy.mechanisms.parallel import one_core


class Rows(Protocol):
    """The data of judgements' gradients; as of `preference.linear.examples.PairExamples`."""

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


def local_updates_alone(
    examples: Rows,
    taken_N: torch.Tensor,
    ends_B: np.ndarray,
    theta_D: torch.Tensor,
    *,
    model: PreferenceModel,
    local: LocalSteps,
) -> torch.Tensor:
    """θ − θ_u after each user's own gradient steps from θ, (B, D).

    User b takes judgements ``taken_N[ends_B[b − 1]:ends_B[b]]``. Their row is a function of these,
    θ, the model and the steps.
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
