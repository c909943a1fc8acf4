"""The mean of the vectors that most others are near to, released if they are many enough.

What the corrected AUP does in a round, as one object. The filter is ``concentration``'s majority
filter: a user who comes or goes moves the weighted mean μ by less than 4ρ/W and the total weight W
by less than 2. So W is tested, and μ released with noise for a W of at least W₀.

The two are coordinates of one Gaussian vector, (W + s Z, μ + b σ_μ Z′) with b = 4ρ/W₀: the test is
post-processing of the first, and the second is thrown away if it fails. That is what lets test and
mean share a cohort: they cost one Poisson-sampled Gaussian of the joint noise multiplier.

**Why ``failure`` is all that is added.** Take a cohort T and users x, x′ (x′ is needed where one
user is swapped for another). If T ∪ {x} and T ∪ {x′} both have W ≥ W₀, both means are within b of
T's, and the vectors of the three cohorts lie within the joint bound of T's. Otherwise one of them
has W < W₀, so T has W < W₀ + 2 and the third W < W₀ + 4: each of the three passes the test at
W₀ + 4 + z s with probability at most 1 − Φ(z); on the rest, where nothing but the noisy W is
released, the bound of 2 on W is all that is needed.

Legend: S users who are there, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privacy import concentration
from privacy.adjacency import Adjacency
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from privacy.release import fingerprint
from privacy.sampling import PoissonSampler
from privacy.tested import TestedGaussian


@dataclass(frozen=True)
class FilteredMean:
    """Propose-test-release for the majority-weighted mean of a Poisson cohort's vectors.

    Formal guarantee: one call of ``release`` is the event ``self.event`` under ``adjacency``,
    whatever the vectors are, as computed in float64. Nothing is clipped; a vector that is not
    finite, or longer than ``concentration.FARTHEST`` radii, is not there, which depends on that
    user alone. What rounding can add to the mean's movement is part of the bound that the noise is
    made for; see ``concentration``.

    Attributes:
        sampler: drew the cohort.
        radius: ρ; two vectors at most this far apart are near to each other.
        least_weight: W₀, the total weight that the noise on the mean is made for.
        noise_multiplier: σ of test and mean together.
        test_share: the share, in (0, 1), of 1/σ² that the test takes.
        failure: the addition to delta, see ``TestedGaussian``.
        adjacency: the relation between neighbouring data sets.
    """

    sampler: PoissonSampler
    radius: float
    least_weight: float
    noise_multiplier: float
    test_share: float
    failure: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        least, most = concentration.LEAST_RADIUS, concentration.LARGEST_RADIUS
        if not least <= self.radius <= most:
            raise ValueError(
                f"the radius must be a positive number of sensible size, got {self.radius}"
            )
        # Below 2 a neighbouring cohort could have no weight at all, and no mean to be near to.
        if not (math.isfinite(self.least_weight) and self.least_weight >= 2.0):
            raise ValueError(f"the least weight must be at least 2, got {self.least_weight}")
        if not 0.0 < self.test_share < 1.0:
            raise ValueError(f"the test's share must be between 0 and 1, got {self.test_share}")
        _ = self.event  # validates the rest

    @property
    def event(self) -> TestedGaussian:
        """What one release costs, whether or not the test passes."""
        return TestedGaussian(self.sampler.probability, self.noise_multiplier, self.failure)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the mean."""
        bound = concentration.mean_movement(self.radius, self.least_weight)
        return bound * self.noise_multiplier / math.sqrt(1.0 - self.test_share)

    @property
    def test_std(self) -> float:
        """Standard deviation of the noise on W."""
        return test_std(self.noise_multiplier, self.test_share)

    @property
    def bar(self) -> float:
        """The noisy W from which on the test passes."""
        return self.least_weight + test_margin(self.test_std, self.failure)

    def release(
        self, rows_SD: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> np.ndarray | None:
        """The noisy mean, float64 (D,), or None where the test fails; charged in either case.

        ``rows_SD`` are the users' vectors, one each.

        Raises:
            ValueError: the ledger is for another adjacency.
            LedgerError: a seeded round was released before from other values; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        rows_SD = rows_SD[concentration.there(rows_SD, self.radius)]
        near_SS = concentration.near(rows_SD, self.radius)
        weights_S = concentration.majority_weights(concentration.degrees(near_SS))
        weight, mean_D = concentration.weighted_mean(rows_SD, weights_S)
        exact = np.concatenate([[self.test_std, self.bar, weight], mean_D])
        replay = fingerprint(exact, self.std, round_, covers, source)
        charge = ledger.charge(self.event, round_=round_, covers=covers, replay=replay)
        noise = source.stream(f"noise {covers}", round_, charge.attempt)
        if weight + self.test_std * noise.standard_normal() < self.bar:
            return None
        return mean_D + self.std * noise.standard_normal(mean_D.shape)


def test_std(noise_multiplier: float, test_share: float) -> float:
    """Standard deviation of the noise on W when the test takes ``test_share`` of 1/σ²."""
    return concentration.WEIGHT_CHANGE * noise_multiplier / math.sqrt(test_share)


def test_margin(std: float, failure: float) -> float:
    """How far above W₀ the noisy W must lie; see the module's docstring."""
    z = float(stats.norm.isf(failure))
    return 2.0 * concentration.WEIGHT_CHANGE + z * std
