"""A loss of a policy: max(0, 1 − z), as of SLiC-HF (Zhao et al. 2023)."""

import torch

from murmuration.preference.policy_losses import PolicyObjective


def hinge(z_J: torch.Tensor, y_J: torch.Tensor, beta: float) -> torch.Tensor:
    """The loss of each pair; a tie, y = ½, loses half on either side."""
    del beta  # it is in z already
    return y_J * (1.0 - z_J).relu() + (1.0 - y_J) * (1.0 + z_J).relu()


HINGE = PolicyObjective("hinge", hinge)
