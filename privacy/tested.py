"""The cost of a Gaussian whose sensitivity was tested first, and can be wrong, rarely.

Propose, test, release (Dwork and Lei 2009): a bound on the sensitivity is proposed, a noisy test
says whether it holds, and only then is a value with noise for that bound released. The test can
pass although the bound does not hold; the probability of that is an addition to delta.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from privacy.adjacency import Adjacency

#: How much more than the test's own failure probability is charged; see ``TestedGaussian``.
OVERCHARGE = 1.02
#: Up to this total delta the addition covers what composition leaves out.
LARGEST_DELTA = 0.01


@dataclass(frozen=True)
class TestedGaussian:
    """A Poisson-sampled Gaussian vector whose sensitivity bound fails with some probability.

    ``noise_multiplier`` is that of test and value together, as one vector: 1/σ² = 1/σ_test² +
    1/σ_value². ``failure`` is what is added to delta by each run: ``OVERCHARGE`` times the
    probability with which a cohort that breaks the bound passes the test.

    Formal guarantee: let runs of the mechanism be dominated by the Gaussian one but for an event of
    probability f in each. Restricted to the complement, T runs compose as Gaussians do, so their
    delta is at most T f + δ_G(ε). Composing with a mass of 1.02 f at an infinite loss gives
    1 − (1 − 1.02 f)^T + (1 − 1.02 f)^T δ_G(ε), which is at least as much as long as it is at most
    0.01.
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
        if not 0.0 < self.failure <= LARGEST_DELTA:
            raise ValueError(f"the failure probability must be in (0, 0.01], got {self.failure}")

    def loss(self, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
        """The Gaussian's loss, and an infinite one with probability ``failure``."""
        gaussian = pld.from_gaussian_mechanism(
            standard_deviation=self.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=self.probability,
            neighboring_relation=adjacency.relation,
        )
        removed = _failing(gaussian._pmf_remove, self.failure)
        if gaussian._symmetric:
            return pld.PrivacyLossDistribution(removed)
        return pld.PrivacyLossDistribution(removed, _failing(gaussian._pmf_add, self.failure))


def _failing(pmf: pld_pmf.PLDPmf, failure: float) -> pld_pmf.PLDPmf:
    """``pmf``, and an infinite loss with probability ``failure`` whatever else happens."""
    dense = pmf.to_dense_pmf()
    probs = np.asarray(dense._probs, dtype=np.float64) * (1.0 - failure)
    infinite = dense._infinity_mass + failure - dense._infinity_mass * failure
    return pld_pmf.DensePLDPmf(dense._discretization, dense._lower_loss, probs, infinite, True)
