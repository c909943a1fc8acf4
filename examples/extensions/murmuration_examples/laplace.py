"""A kind of event, and a strategy that is charged by it: Laplace noise on sums over sampled users.

Formal guarantee: a sum of clipped vectors moves by at most C·√D in ℓ1 if by C in ℓ2, in whole steps
of its grid. With discrete Laplace noise of the scale C·√D/ε it is (ε, 0)-DP, and drawn from users
who take part with probability q each (log(1 + q·(e^ε − 1)), 0)-DP (Balle et al. 2018, Theorem 8,
under all relations, since noise for a user who is replaced is enough for one who is removed).

Legend: D dimensions.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import Mechanism, Participation, Theorem, Unit
from murmuration.strategies import spec, uls
from murmuration.strategies.sums import CohortPlan


@dataclass(frozen=True)
class SampledPure:
    """A mechanism that is (``epsilon``, 0)-DP, on users who are in with ``probability`` each."""

    kind: ClassVar[str] = "sampled-pure"
    probability: float
    epsilon: float

    def __post_init__(self) -> None:
        if not (0.0 < self.probability <= 1.0 and 0.0 < self.epsilon <= 500.0):
            raise ValueError("probability must be in (0, 1], and epsilon in (0, 500]")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The dominating privacy loss distribution, rounded up."""
        del adjacency
        amplified = math.log1p(self.probability * math.expm1(self.epsilon))
        return (DiscretePMF.worst(amplified * (1.0 + 1e-12), 0.0, interval),)


LAPLACE = Theorem(
    Unit.VECTOR,
    Participation.POISSON,
    Mechanism.LAPLACE,
    event=SampledPure.kind,
    adjacencies=frozenset(Adjacency),
    says="Laplace noise of scale Δ/ε on each coordinate, Δ being how far one user moves the sum in "
    "ℓ1, is (ε, 0)-private; sampled with probability q it is log(1 + q(e^ε − 1)).",
    source="Dwork, McSherry, Nissim and Smith 2006; Balle, Barthe and Gaboardi 2018",
)


@dataclass(frozen=True)
class LaplaceSum:
    """The sum of clipped vectors with discrete Laplace noise, and what it costs."""

    theorem: ClassVar[Theorem] = LAPLACE
    sampler: PoissonSampler
    clip: UserClip
    dimension: int
    epsilon: float
    adjacency: Adjacency

    @property
    def event(self) -> SampledPure:
        """The event of one release, for the accountant."""
        return SampledPure(self.sampler.probability, self.epsilon)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise, in steps of the grid."""
        furthest = self.clip.sensitivity(self.adjacency) * math.sqrt(self.dimension)
        return Fraction(furthest / self.clip.step * (1.0 + 1e-12)) / Fraction(self.epsilon)

    @property
    def std(self) -> float:
        """The noise's standard deviation on each coordinate."""
        return discrete_laplace.std(self.scale) * self.clip.step

    def release(
        self, sum_D: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> np.ndarray:
        """Charge the ledger, then return the noisy sum."""
        charge = ledger.charge(self.event, round_=round_, covers=covers, seeded=source.seeded)
        coins = source.stream(f"noise {covers}", round_, charge.attempt)
        noise_D = [discrete_laplace.draw(self.scale, coins) for _ in sum_D]
        return sum_D + np.array(noise_D, dtype=np.float64) * self.clip.step


@dataclass(frozen=True, kw_only=True)
class LaplacePlan(CohortPlan):
    """Sums with noise of ``noise_multiplier`` clip norms, over √D."""

    clip: UserClip
    dimension: int

    @property
    def mechanism(self) -> LaplaceSum:
        """The mechanism that each round runs and charges."""
        sampler, epsilon = self.coins, 1.0 / self.noise_multiplier
        return LaplaceSum(sampler, self.clip, self.dimension, epsilon, self.adjacency)


class LaplaceUls(uls.Uls):
    """The server half: that of ULS, with a ``LaplacePlan``."""

    name = "laplace-uls"
    plan: Any


def build(context: spec.RunContext, ledger: Ledger) -> spec.BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    clip = UserClip(context.config.clip_norm or uls.DEFAULT_CLIP)
    plan = LaplacePlan.for_epsilon(
        context.config.epsilon, clip=clip, dimension=context.dimension, **context.cohort_sizes
    )
    return context.built(LaplaceUls, plan, ledger, ceiling=uls.RATE_CEILING / clip.norm)


LAPLACE_ULS = spec.Strategy(
    name="laplace-uls",
    help="As uls, with Laplace noise: delta is spent on nothing but held-out users.",
    build=build,
    node_halves={"laplace-uls": spec.NodeHalf(uls.client_update, length=spec.clip_norm)},
    theorems=(LAPLACE,),
)
