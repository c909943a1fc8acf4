"""A model that is solved for instead of trained: in place of an optimizer where rounds are few.

A strategy of one or two rounds releases statistics once and computes the model from them, which is
post-processing. There is no step size and no schedule, only the model so far.

Legend: D dimensions.
"""

from collections.abc import Mapping

import numpy as np
import torch


class SolvedModel:
    """θ in float64, zero until it is solved for."""

    def __init__(self, dimension: int) -> None:
        self.theta = torch.zeros(dimension, dtype=torch.float64)

    @property
    def theta_D(self) -> np.ndarray:
        """The model so far; float32."""
        return self.theta.numpy().astype(np.float32)

    @property
    def result_D(self) -> np.ndarray:
        """The model to hand out; float32."""
        return self.theta_D

    def rate(self, round_: int | None = None) -> None:
        """There are no steps."""

    def set(self, theta_D: np.ndarray) -> float:
        """Take a solution; how far it is from the model before. ValueError if it is not finite."""
        if not np.isfinite(theta_D).all():
            raise ValueError("the solution is not finite")
        moved = float(np.linalg.norm(theta_D - self.theta.numpy()))
        self.theta.copy_(torch.from_numpy(np.asarray(theta_D, dtype=np.float64)))
        return moved

    def state(self) -> dict[str, np.ndarray]:
        """θ."""
        return {"theta": self.theta.numpy().copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        self.theta.copy_(torch.from_numpy(state["theta"]))
