"""The privacy loss of Gaussian noise on an integer grid: the continuous Gaussian's, and a little
more.

Discrete Gaussian noise of scale s (in steps) has probabilities proportional to exp(−z²/2s²) on the
whole numbers (Canonne, Kamath and Steinke 2020). In many dimensions, under sampling, its privacy
loss is not the one-dimensional Gaussian's, and the bounds that are known (concentrated and Rényi
privacy: the same paper; Kairouz, Liu and Steinke 2021) cost 5 to 13 % more noise than exact
accounting and say nothing about sampling with replacement. This bound loses next to nothing.

**The rounded-Gaussian sandwich.** Let D be the discrete Gaussian on Z^d and R what is left of
N(0, s²I) when every coordinate is rounded to the nearest whole number. A vector of whole numbers
plus R is the rounded sum of that vector and N(0, s²I): post-processing of the continuous mechanism.
At every point z of Z^d

    D(z) ≤ e^κ R(z),                   κ = d / 24s²
    R(z) ≤ e^κ′ D(z) if ‖z‖ ≤ r,       κ′ = r² / 24s⁴ + 3d exp(−2π²s²)

The first: R(z)/D(z) = Π (Z/s√2π) ∫ exp(−z_i u/s² − u²/2s²) du over [−½, ½]; the integral is at
least exp(−1/24s²) by Jensen's inequality, and the normalising sum Z at least s√2π by Poisson's
summation formula. The second: leave out −u²/2s²; ∫ exp(−z_i u/s²) du = sinh(a)/a ≤ exp(a²/6) with
a = z_i/2s²; and Z ≤ s√2π (1 + 3 exp(−2π²s²)).

**What follows.** By joint convexity of the hockey-stick divergence it is enough to compare, for
each choice of the other users, the two mixtures P and Q of shifts of D by what the one user can
contribute, at most Δ long. Let G be the ball of radius s(√d + 10) + √d/2 + Δ: outside it P has mass
at most e^κ e⁻⁵⁰ (‖N(0, s²I)‖ is 10 s above its mean with probability at most e⁻⁵⁰). Inside it
P ≤ e^κ P_R and Q ≥ e^−κ′ Q_R, with the bound κ′ at r = s(√d + 10) + √d/2 + 2Δ. So for every α ≥ 0

    H_α(P‖Q) ≤ e^κ H_{α exp(−κ−κ′)}(P_R‖Q_R) + e^{κ−50}
             ≤ H_α(P_R‖Q_R) + f,       f = e^{2κ+κ′} − 1 + e^{κ−50},

where the last step takes H_{α exp(−k)} ≤ H_α + e^k − 1 (on the set where the left side is attained,
α Q_R is at most e^k P_R) and H_α ≤ 1. P_R and Q_R are rounded continuous mixtures, whose H is at
most that of the event that accounts for them. Moving mass f from the lowest losses of the event's
own pair to an infinite one gives a pair whose H is H_α + f for every α ≥ e^ℓ, where ℓ is the
largest loss that was moved. From there down to 1 at α = 0 it is a straight line, and H_α(P‖Q),
which is convex in α and no larger at either end, lies under it. So the new pair dominates for every
α ≥ 0, and such pairs compose (Zhu et al. 2022, Theorem 10). At 10,000 dimensions, noise multiplier
1 and a clip norm of 2²⁸ steps f is about 2·10⁻¹⁴ a round.

Coordinates may have noises of their own (a count beside a sum): then s is the least of them, and
lengths are in units of each coordinate's noise.

**Noise in shares.** Where h parties each add discrete Gaussian noise of scale s₁ = s/√h
(``privacy.mechanisms.distributed``), their sum is not discrete Gaussian of scale s, but almost: at
every point the logarithm of the ratio of the two is at most

    τ = 10 Σ_{k<h} exp(−2π² s₁² k/(k+1)) ≤ 10 (h − 1) exp(−π² s₁²)

a coordinate, in both directions (Kairouz, Liu and Steinke 2021). D is then that sum, and κ and κ′
grow by dτ each. From s₁ = 9 on that is zero in float64.

Legend: d dimensions, s scale of the noise in steps, h parties.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.mixture import MixtureGaussian, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency

_FAR = 10.0  # in standard deviations: beyond it lies exp(−50)


@dataclass(frozen=True)
class DiscretizedGaussian:
    """A Gaussian event whose noise is discrete Gaussian, on sums of vectors of whole numbers.

    ``event`` is the continuous one; ``dimension`` the number d of coordinates; ``precision`` says
    that the norm by which ``event`` counts its noise is at least 2^precision steps, so that the
    scale s is at least ``event.noise_multiplier`` · 2^precision in every coordinate. ``parties``
    is of how many equal shares, each discrete Gaussian, the noise is the sum.
    """

    kind: ClassVar[str] = "on-grid"
    event: PoissonGaussian | MixtureGaussian
    dimension: int
    precision: int
    parties: int = 1

    def __post_init__(self) -> None:
        # Noise that rounds share is not on a grid: its event has bands.
        sampled = hasattr(self.event, "probability") and not hasattr(self.event, "bands")
        if not (sampled and hasattr(self.event, "noise_multiplier")):
            raise ValueError(f"there is no discrete form of {self.event!r}")
        if not (type(self.dimension) is int and self.dimension >= 1):
            raise ValueError(f"the dimension must be a whole number ≥ 1, got {self.dimension!r}")
        if not (type(self.precision) is int and 0 <= self.precision <= 48):
            raise ValueError(f"the precision must be 0 to 48 bits, got {self.precision!r}")
        if not (type(self.parties) is int and self.parties >= 1):
            raise ValueError(f"noise is of at least one party, got {self.parties!r}")
        if self.scale < math.sqrt(self.parties) or self.delta_overhead >= 0.5:
            raise ValueError(
                f"the grid is too coarse for noise of {self.scale:g} steps in {self.dimension} "
                "dimensions: nothing could be said about it"
            )

    @property
    def continuous(self) -> PoissonGaussian | MixtureGaussian:
        """Return the event with noise that is not on a grid."""
        return self.event

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of the continuous event."""
        return self.event.noise_multiplier

    @property
    def scale(self) -> float:
        """The least scale of the noise, in steps."""
        return self.event.noise_multiplier * 2.0**self.precision

    @property
    def delta_overhead(self) -> float:
        """f: what a run may cost beyond the continuous event, as an addition to delta."""
        reach = getattr(self.event, "group_size", 1) / self.event.noise_multiplier
        return delta_overhead(self.dimension, self.scale, reach, self.parties)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The continuous event's loss, with ``delta_overhead`` moved from the bottom to infinity.

        Raises:
            Unsupported: the continuous event has no guarantee under ``adjacency``.
        """
        return tuple(
            masses.moved_to_infinity(self.delta_overhead)
            for masses in self.event.loss(adjacency, interval)
        )


def delta_overhead(dimension: int, scale: float, reach: float, parties: int = 1) -> float:
    """f for discrete Gaussian noise of this ``scale``, in steps; see the top of this file.

    ``reach`` is the longest vector that one user can contribute, in units of the noise, which is
    the sum of the shares of so many ``parties``.
    """
    root, square = math.sqrt(dimension), scale**2
    shares = dimension * shares_apart(scale, parties)
    above = dimension / (24.0 * square) + shares
    radius = root + _FAR + root / (2.0 * scale) + 2.0 * reach
    below = radius**2 / (24.0 * square) + 3.0 * dimension * math.exp(-2.0 * math.pi**2 * square)
    below += shares
    if 2.0 * above + below > 1.0:
        return math.inf
    return math.expm1(2.0 * above + below) + math.exp(above - _FAR**2 / 2.0)


def shares_apart(scale: float, parties: int) -> float:
    """τ: how far the sum of equal shares is from one draw of ``scale``, in logarithm, anywhere."""
    return 10.0 * (parties - 1) * math.exp(-(math.pi**2) * scale**2 / parties)
