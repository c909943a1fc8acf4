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

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special, stats

from privacy.adjacency import Adjacency, Unsupported

_MOST = 500.0
_BEYOND = 1e-290  # for what is left out


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

    @property
    def unprotected(self) -> bool:
        """Whether so much is told that it counts as no protection at all."""
        return self.epsilon * self.labels > _MOST

    def loss(self, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
        """The worst such release (Kairouz et al. 2015), composed; Unsupported elsewhere."""
        if adjacency is not Adjacency.REPLACE_LABELS:
            raise Unsupported(
                f"randomized labels have no guarantee under {adjacency}: prompts, responses and "
                f"numbers of judgements are not protected; use {Adjacency.REPLACE_LABELS}"
            )
        if self.unprotected:
            everything = pld_pmf.SparsePLDPmf({0: 0.0}, interval, 1.0, True)
            return pld.PrivacyLossDistribution(everything)
        return pld.PrivacyLossDistribution(self._composed(interval))

    def _composed(self, interval: float) -> pld_pmf.PLDPmf:
        """The binomial distribution of the loss, divided between the cells around each point.

        Of k labels j are told falsely: a loss of (k − 2j)ε, with probability Binomial(k, 1/(e^ε +
        1)) at j, or an infinite one if any label breaks its promise. Without convolution: exact.
        """
        chance = float(special.expit(-self.epsilon))
        # All but e^-800 of it (Bernstein).
        reach = 40.0 * math.sqrt(self.labels * chance) + 1600.0
        low = max(0, math.floor(self.labels * chance - reach))
        high = min(self.labels, math.ceil(self.labels * chance + reach))
        flips_J = np.arange(high, low - 1, -1)
        kept = math.exp(self.labels * math.log1p(-self.delta))
        mass_J = np.asarray(stats.binom.pmf(flips_J, self.labels, chance)) * kept
        mass_J *= 1.0 + 2e-12 + 1e-16 * self.labels  # the library's masses may fall short
        steps_J = (self.labels - 2 * flips_J) * (self.epsilon / interval)
        cell_J = np.floor(steps_J).astype(np.int64)
        # Same sums of mass and of mass · e^(−loss), which dominates (Doroshenko et al. 2022).
        share_J = np.expm1(-(steps_J - cell_J) * interval) / math.expm1(-interval)
        first = int(cell_J[0])
        mass_N = np.bincount(cell_J - first, mass_J * (1.0 - share_J))
        mass_N = np.append(mass_N, 0.0)
        mass_N[1:] += np.bincount(cell_J - first, mass_J * share_J)
        infinite = -math.expm1(self.labels * math.log1p(-self.delta)) + _BEYOND
        occupied = np.flatnonzero(mass_N)
        masses = dict(zip((first + occupied).tolist(), mass_N[occupied].tolist(), strict=True))
        return pld_pmf.SparsePLDPmf(masses, interval, infinite, True)
