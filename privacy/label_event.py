"""What randomized labels cost the one user who told them: the event of local label privacy.

The loss is suffered when a label leaves its user; a server charges it all the same, so that its
ledger says what one user's labels have cost in what it holds. A user's labels cost ``epsilon`` at
``delta`` all together, told ``labels`` times over: once at user level, where a budget is split over
their labels, and as often as the user with the most labels at item level, where each label costs
ε by itself. So a ledger never takes an item's ε for a user's. Labels that add up to more than 500
count as unprotected.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from privacy.adjacency import Adjacency, Unsupported

_MOST = 500.0


@dataclass(frozen=True)
class RandomizedLabels:
    """``labels`` releases, each (``epsilon``, ``delta``)-DP in the labels of one user."""

    kind: ClassVar[str] = "randomized-labels"
    epsilon: float
    delta: float = 0.0
    labels: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and 0.0 < self.epsilon <= _MOST):
            raise ValueError(f"epsilon of labels must be in (0, {_MOST:g}], got {self.epsilon}")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(f"delta of labels must be in [0, 1), got {self.delta}")
        if self.labels < 1:
            raise ValueError(f"there must be at least one label, got {self.labels}")

    def loss(self, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
        """The worst such release (Kairouz et al. 2015), composed; Unsupported elsewhere."""
        if adjacency is not Adjacency.REPLACE_LABELS:
            raise Unsupported(
                f"randomized labels have no guarantee under {adjacency}: prompts, responses and "
                f"numbers of judgements are not protected; use {Adjacency.REPLACE_LABELS}"
            )
        bounded = self.epsilon * self.labels <= _MOST
        parameters = (self.epsilon, self.delta) if bounded else (0.0, 1.0)
        once = pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(*parameters),
            value_discretization_interval=interval,
        )
        return once.self_compose(self.labels) if bounded and self.labels > 1 else once
