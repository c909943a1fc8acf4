"""The mean of the vectors that most others are near to, released if they are many enough.

What the corrected AUP does in a round, as one object. The filter weighs users by majorities: one
who comes or goes moves the weighted mean μ by less than 4ρ/W and the total weight W by less than 2.
So W is tested, and μ released with noise for a W of at least W₀.

The two are coordinates of one Gaussian vector, (W + s Z, μ + b σ_μ Z′) with b = 4ρ/W₀: the test is
post-processing of the first, and the second is thrown away if it fails. That is what lets test and
mean share a cohort: they cost one Poisson-sampled Gaussian of the joint noise multiplier.

**Why ``failure`` is all that is added.** Take a cohort T and users x, x′ (x′ is needed where one
user is swapped for another). If T ∪ {x} and T ∪ {x′} both have W ≥ W₀, both means are within b of
T's, and the vectors of the three cohorts lie within the joint bound of T's. Otherwise one of them
has W < W₀, so T has W < W₀ + 2 and the third W < W₀ + 4: each of the three passes the test at
W₀ + 4 + z s with probability at most 1 − Φ(z); on the rest, where nothing but the noisy W is
released, the bound of 2 on W is all that is needed.

Legend: S users present, D dimensions.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import check_gaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.mixture import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import square
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import ALL, Mechanism, Participation, Theorem, Unit
from murmuration.strategies.aup.published import degrees, distances

# Concentration filters: whose vector is near to how many others', and how far means then move.
#
# The weights of the filter, from the neighbour counts f_i (oneself included), are
# w_i = max(0, 2 f_i/s − 1), where s is the number of users who are there: by how large a majority
# of them user i is near to. Sound for every s, and tight enough to be written down in a few lines;
# the proof follows. (The published filter is in ``strategies.aup.published``.)
#
# Let S be a cohort of s users, S′ = S ∪ {x}, radius ρ, W = Σ w_i, μ = Σ w_i g_i / W, and S is
# "kept" where w > 0. Primes belong to S′.
#
# **Kept points are within 2ρ of each other**, also one kept in S and one kept in S′. Kept in S
# means 2f_i ≥ s + 1, kept in S′ means 2f′_j ≥ s + 2. Within S′, i has at least f_i neighbours. Two
# of the neighbourhoods hold together at least (s+1)/2 + (s+2)/2 > s + 1 of the s + 1 users of S′,
# so they share a user (for two points kept in S: s + 1 > s of s; for two in S′: s + 2 > s + 1 of s
# + 1), who is within ρ of both.
#
# **Σ|Δw| < 2**, x's own weight included. Let k of the users of S be near to x. Of these each weight
# grows, by at most (2f+2)/(s+1) − 2f/s = 2(s−f)/(s(s+1)); it is positive afterwards only if f ≥
# s/2, so it grows by at most 1/(s+1). Of the others each falls by at most 2f/s − 2f/(s+1) ≤
# 2/(s+1). And x itself gets w′_x = max(0, (2k+2)/(s+1) − 1) = max(0, 2k+1−s)/(s+1). Together this
# is at most (k + 2(s−k) + max(0, 2k+1−s))/(s+1) = max(2s−k, s+k+1)/(s+1) ≤ (2s+1)/(s+1) < 2.
#
# **‖μ′ − μ‖ < 4ρ/max(W, W′).** Since Σ w_i (g_i − μ) = 0, W′(μ′ − μ) = Σ w′_i (g_i − μ)
# = Σ (w′_i − w_i)(g_i − μ). Every g_i with a term is kept in S or in S′, so it is within 2ρ of each
# point kept in S, and therefore of their mean μ: the sum is shorter than 2 · 2ρ. The same with the
# roles of S and S′ exchanged gives the bound in W. (If nothing is kept in one of them, μ is 0 there
# and nothing is promised: its W is 0, and whoever releases μ must first have made sure of W.)
#
# That is the movement when a user comes or goes, the one that accounting for Poisson cohorts needs
# under every relation. Each step needs only that "near" is a symmetric relation between two users
# that does not depend on anybody else, which is why distances are computed pair by pair here and
# not by a matrix product, whose rounding depends on the other rows.
#
# **In float64.** Two things are not what they are in real numbers, and ``mean_movement`` counts
# both.
#
# - A distance that comes out as at most ρ is at most ρ(1 + 2⁻²⁴): of differences, squares and D
#   additions each is off by 2⁻⁵³ of itself, for D ≤ 2²⁸. (Nor are squares lost below what float64
#   holds, as ρ is at least `LEAST_RADIUS`.) What overflows is far, and that is right.
# - Two cohorts' μ are computed, not taken. Were vectors of any length, rounding alone would carry
#   them apart: from 10¹³ on by more than ρ/W. So a vector is *there* only if it is at most
#   `FARTHEST`·ρ long, which depends on that user alone, like not being finite: the others are those
# whom the filter counts. μ is Σ k_i g_i / Σ k_i with the whole numbers k_i = max(0, 2f_i − s); each
# product is off by 2⁻⁵³ of itself, each coordinate's sum is rounded once (``math.fsum``), and so is
# the quotient: with ‖g‖ ≤ `FARTHEST`·ρ(1 + 2⁻²⁴), a coordinate's error is at most 2⁻⁵¹ Σ k_i|g_i| /
#   Σ k_i, and that of μ at most 2⁻⁵¹·`FARTHEST`·ρ(1 + 2⁻²⁴) < 2⁻³⁰ρ, whatever s is. For two cohorts
# together that is below 2⁻²⁹ρ. (W = Σ k_i / s is rounded once; up to s = 2²⁵ that is less than the
#   1/(s+1) by which |ΔW| stays below 2.)
#
# Legend: S users who are there, D dimensions.

#: Bound on Σ|Δw| of the majority weights, and so on |ΔW|, when a user comes or goes.
WEIGHT_CHANGE = 2.0
#: The longest vector that is there, in radii. Gradients that agree are a few radii long.
FARTHEST = 2.0**20
#: Smaller ones have squares that float64 does not hold, larger ones give too long vectors.
LEAST_RADIUS, LARGEST_RADIUS = 2.0**-400, 2.0**400
_ROUNDED_DISTANCE, _ROUNDED_MEANS = 2.0**-24, 2.0**-29


def there(rows_SD: np.ndarray, radius: float) -> np.ndarray:
    """True for each vector that is finite and at most `FARTHEST` radii long, bool (S,): a function
    of each row alone.
    """
    rows_SD = np.asarray(rows_SD, dtype=np.float64)
    lengths = (math.sqrt(square(row_D)) for row_D in rows_SD)
    return np.array([length <= FARTHEST * radius for length in lengths], dtype=bool)


def near(rows_SD: np.ndarray, radius: float) -> np.ndarray:
    """True for each pair of rows within ``radius``, bool (S, S); each row is near to itself."""
    return distances(rows_SD) <= radius


def majority_weights(degrees_S: np.ndarray) -> np.ndarray:
    """max(0, 2 f_i − s) with s the number of users who are there: s·w_i, whole numbers, int64."""
    return np.maximum(0, 2 * np.asarray(degrees_S, dtype=np.int64) - len(degrees_S))


def weighted_mean(rows_SD: np.ndarray, weights_S: np.ndarray) -> tuple[float, np.ndarray]:
    """W = Σ w_i and the mean of the rows with ``majority_weights``, (D,) float64; zero if all are.

    Each coordinate's sum is rounded once, whatever the number of rows.
    """
    total = int(weights_S.sum())
    if total == 0:
        return 0.0, np.zeros(rows_SD.shape[1])
    kept_S = weights_S > 0
    terms_SD = weights_S[kept_S, None] * np.asarray(rows_SD[kept_S], dtype=np.float64)
    sum_D = np.array([math.fsum(terms_S) for terms_S in terms_SD.T.tolist()])
    return total / len(weights_S), sum_D / total


def mean_movement(radius: float, weight: float) -> float:
    """4ρ/W and rounding: how far the computed majority-weighted mean can move when a user comes or
    goes.

    ``weight`` is a lower bound on W in the cohort with or without that user, whichever is larger.
    Formal guarantee: see the module's docstring; for every cohort size and any vectors, of which
    those count that are ``there``.
    """
    exact = 2.0 * WEIGHT_CHANGE * radius / weight
    return exact * (1.0 + _ROUNDED_DISTANCE) + _ROUNDED_MEANS * radius


# The cost of a Gaussian whose sensitivity was tested first, and can be wrong, rarely.
#
# Propose, test, release (Dwork and Lei 2009): a bound on the sensitivity is proposed, a noisy test
# says whether it holds, and only then is a value with noise for that bound released. The test can
# pass although the bound does not hold; the probability of that is an addition to delta.


@dataclass(frozen=True)
class TestedGaussian:
    """A Poisson-sampled Gaussian vector whose sensitivity bound fails with some probability.

    ``noise_multiplier`` is that of test and value together, as one vector: 1/σ² = 1/σ_test² +
    1/σ_value². ``failure`` is the probability with which a cohort that breaks the bound passes the
    test.

    Formal guarantee: let a run be dominated by the Gaussian one except with probability f, in
    either of two neighbouring worlds. With P restricted to the complement, P(S) − αQ(S) is at most
    H_α + f, where H_α is the Gaussian's, for every event S and every α ≥ 0. Moving mass f from the
    Gaussian's lowest losses to an infinite one gives a pair that dominates that (see the end of the
    proof in ``privacy.accounting.grid_noise``), and such pairs compose.
    """

    __test__: ClassVar[bool] = False  # no test, whatever its name makes of it

    kind: ClassVar[str] = "tested-gaussian"
    probability: float
    noise_multiplier: float
    failure: float

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, self.probability)
        if not 0.0 < self.failure < 1.0:
            raise ValueError(f"the failure probability must be in (0, 1), got {self.failure}")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The Gaussian's loss, with mass ``failure`` moved from the bottom to infinity."""
        gaussian = PoissonGaussian(self.probability, self.noise_multiplier)
        return tuple(
            masses.moved_to_infinity(self.failure) for masses in gaussian.loss(adjacency, interval)
        )


#: What is proven of a round.
FILTERED_MEAN = Theorem(
    Unit.NEIGHBOURHOODS,
    Participation.POISSON,
    Mechanism.GAUSSIAN,
    event=TestedGaussian.kind,
    adjacencies=ALL,
    says="Users are weighted by how many others are close to them. If a test of the total weight "
    "passes, one user moves the weighted mean by at most a bounded distance.",
    source="the derivation in `research/strategies/filtered_mean.py`",
    audit="aup-corrected",
)


@dataclass(frozen=True)
class FilteredMean:
    """Propose-test-release for the majority-weighted mean of a Poisson cohort's vectors.

    Formal guarantee: one call of ``release`` is the event ``self.event`` under ``adjacency``,
    whatever the vectors are, as computed in float64. Nothing is clipped; a vector that is not
    finite, or longer than ``FARTHEST`` radii, is not there, which depends on that
    user alone. What rounding can add to the mean's movement is part of the bound that the noise is
    made for; see above.

    Attributes:
        sampler: drew the cohort.
        radius: ρ; two vectors at most this far apart are near to each other.
        least_weight: W₀, the total weight that the noise on the mean is made for.
        noise_multiplier: σ of test and mean together.
        test_share: the share, in (0, 1), of 1/σ² that the test takes.
        failure: the addition to delta, see ``TestedGaussian``.
        adjacency: the relation between neighbouring data sets.
    """

    theorem: ClassVar[Theorem] = FILTERED_MEAN
    sampler: PoissonSampler
    radius: float
    least_weight: float
    noise_multiplier: float
    test_share: float
    failure: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        least, most = LEAST_RADIUS, LARGEST_RADIUS
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
        """The event of one release, whether or not the test passes."""
        return TestedGaussian(self.sampler.probability, self.noise_multiplier, self.failure)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the mean."""
        bound = mean_movement(self.radius, self.least_weight)
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
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        rows_SD = rows_SD[there(rows_SD, self.radius)]
        near_SS = near(rows_SD, self.radius)
        weights_S = majority_weights(degrees(near_SS))
        weight, mean_D = weighted_mean(rows_SD, weights_S)
        charge = ledger.charge(self.event, round_=round_, covers=covers, seeded=source.seeded)
        noise = source.stream(f"noise {covers}", round_, charge.attempt)
        if weight + self.test_std * noise.standard_normal() < self.bar:
            return None
        return mean_D + self.std * noise.standard_normal(mean_D.shape)


def test_std(noise_multiplier: float, test_share: float) -> float:
    """Standard deviation of the noise on W when the test takes ``test_share`` of 1/σ²."""
    return WEIGHT_CHANGE * noise_multiplier / math.sqrt(test_share)


def test_margin(std: float, failure: float) -> float:
    """The margin above W₀ that the noisy W must exceed; see the module's docstring."""
    z = -float(special.ndtri(failure))
    return 2.0 * WEIGHT_CHANGE + z * std
