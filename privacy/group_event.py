"""One round of example-level DP-SGD, to be accounted for whole users by group privacy.

Apart from ``privacy.group``, which does that, because ledgers must know the event and the
conversion must know the accountant.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from privacy.adjacency import Adjacency


@dataclass(frozen=True)
class GroupGaussian:
    """A Gaussian sum of clipped examples, as the black-box conversion for ≤ ``group_size`` sees it.

    ``noise_multiplier`` is the standard deviation over the clip norm of one example, each of which
    is in with ``probability``. Group privacy converts a whole composition, not a round: the event
    has no privacy loss distribution, and ``accounting.epsilon`` hands all of its rounds to
    ``group.group_epsilon`` together. Only with others of its kind can it be composed.
    """

    kind: ClassVar[str] = "group-gaussian"
    noise_multiplier: float
    group_size: int
    probability: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0.0):
            raise ValueError(f"the noise multiplier must be positive, got {self.noise_multiplier}")
        if not (type(self.group_size) is int and self.group_size >= 1):
            raise ValueError(f"the group size must be a whole number ≥ 1, got {self.group_size!r}")
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(f"the sampling probability must be in (0, 1], got {self.probability}")

    def loss(self, adjacency: Adjacency, interval: float) -> NoReturn:
        """There is none for a round; ValueError."""
        raise ValueError("group privacy converts all rounds together; other events cannot join")
