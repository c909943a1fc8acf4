"""The protocol of all kinds of releases (``events`` lists the kinds)."""

import math
from typing import ClassVar, Protocol

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.adjacency import Adjacency


class Event(Protocol):
    """One mechanism, run once."""

    kind: ClassVar[str]

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The privacy loss of one run, discretized pessimistically to ``interval``.

        For a user who is removed and one who is added; one where the two agree.
        """
        ...


def check_gaussian(noise_multiplier: float, probability: float, group_size: int = 1) -> None:
    """ValueError, naming it, for a parameter of a sampled Gaussian sum that is out of range."""
    if not (math.isfinite(noise_multiplier) and noise_multiplier > 0.0):
        raise ValueError(f"the noise multiplier must be positive, got {noise_multiplier}")
    if not (type(group_size) is int and group_size >= 1):
        raise ValueError(f"the group size must be a whole number ≥ 1, got {group_size!r}")
    if not 0.0 < probability <= 1.0:
        raise ValueError(f"the sampling probability must be in (0, 1], got {probability}")
