"""The cost of a Gaussian whose sensitivity was tested first, and can be wrong, rarely.

Propose, test, release (Dwork and Lei 2009): a bound on the sensitivity is proposed, a noisy test
says whether it holds, and only then is a value with noise for that bound released. The test can
pass although the bound does not hold; the probability of that is an addition to delta.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting.pld import privacy_loss_distribution as pld

from privacy.adjacency import Adjacency
from privacy.on_grid import moved_to_infinity


@dataclass(frozen=True)
class TestedGaussian:
    """A Poisson-sampled Gaussian vector whose sensitivity bound fails with some probability.

    ``noise_multiplier`` is that of test and value together, as one vector: 1/σ² = 1/σ_test² +
    1/σ_value². ``failure`` is the probability with which a cohort that breaks the bound passes the
    test.

    Formal guarantee: let a run be dominated by the Gaussian one but for an event of probability f,
    in either of two neighbouring worlds. With P restricted to the complement, P(S) − αQ(S) is at
    most H_α + f, where H_α is the Gaussian's, for every event S and every α ≥ 0. Moving mass f from
    the Gaussian's lowest losses to an infinite one gives a pair that dominates that (see the end of
    the proof in ``privacy.on_grid``), and such pairs compose.
    """

    __test__: ClassVar[bool] = False  # no test, whatever its name makes of it

    kind: ClassVar[str] = "tested-gaussian"
    probability: float
    noise_multiplier: float
    failure: float

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(f"the sampling probability must be in (0, 1], got {self.probability}")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier > 0.0):
            raise ValueError(f"the noise multiplier must be positive, got {self.noise_multiplier}")
        if not 0.0 < self.failure < 1.0:
            raise ValueError(f"the failure probability must be in (0, 1), got {self.failure}")

    def loss(self, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
        """The Gaussian's loss, with mass ``failure`` moved from the bottom to infinity."""
        gaussian = pld.from_gaussian_mechanism(
            standard_deviation=self.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=self.probability,
            neighboring_relation=adjacency.relation,
        )
        removed = moved_to_infinity(gaussian._pmf_remove, self.failure)
        if gaussian._symmetric:
            return pld.PrivacyLossDistribution(removed)
        return pld.PrivacyLossDistribution(
            removed, moved_to_infinity(gaussian._pmf_add, self.failure)
        )
