"""Settings of users' local steps; light to import."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LocalSteps:
    """``steps`` gradient steps of length ``rate`` on a user's own judgements."""

    steps: int
    rate: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--local-steps must be at least 1, got {self.steps}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"--local-rate must be positive, got {self.rate}")
