"""Charge a sum, and add noise to it.

``GaussianSum`` is the plan of a round as one object: what is sampled, how it is clipped, how much
noise is added, what it costs, and under which adjacency. None of them can be changed without the
others following. ``release`` charges the ledger first and adds the noise second.

Legend: D dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.privacy.accounting.accountant import joint_noise_multiplier
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.clipping import ExampleClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.mechanisms.grid import COUNT_STEP
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import ExampleSampler, PoissonSampler
from murmuration.privacy.theorems import Mechanism, Theorem, Unit, find


@dataclass(frozen=True)
class SampledGaussian:
    """The parts of a Gaussian mechanism on sampled, clipped vectors, and what follows from them.

    Raises Unsupported for parts of which nothing is proven together.
    """

    sampler: PoissonSampler | ExampleSampler
    clip: UserClip | ExampleClip
    noise_multiplier: float
    adjacency: Adjacency
    discrete: DiscreteNoise | DistributedNoise | None = None

    def __post_init__(self) -> None:
        theorem = self.theorem
        if self.sampler.event(self.effective).kind != theorem.event:
            raise ValueError(f"{self.sampler} charges another event than {theorem.event}")
        _ = self.event  # validates the parameters

    @property
    def theorem(self) -> Theorem:
        """The theorem about a release; Unsupported if there is none."""
        noise = self.discrete.mechanism if self.discrete else Mechanism.GAUSSIAN
        parts = self.unit, self.sampler.participation, noise
        return find(*parts, self.adjacency, event=self.sampler.charged_as)

    @property
    def unit(self) -> Unit:
        """The bound on one user's part."""
        return self.clip.unit

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the *sum*."""
        return self.noise_multiplier * self.clip.norm

    @property
    def effective(self) -> float:
        """The noise multiplier of all that is released together."""
        return self.noise_multiplier

    @property
    def event(self) -> Event:
        """The event of one release."""
        event: Any = self.sampler.event(self.effective)  # of a kind that the theorem names
        return self.discrete.charged(event) if self.discrete else event


@dataclass(frozen=True)
class GaussianSum(SampledGaussian):
    """The Poisson-subsampled Gaussian mechanism on sums of clipped vectors, of users or examples.

    Releases Σ clip(v) + N(0, (σC)² I) over those sampled, where C is the clip norm of one vector
    and σ the noise multiplier. To average, divide by a constant fixed beforehand: never by the
    realised cohort.

    Formal guarantee: for a whole user, one release is the event ``self.event`` under ``adjacency``,
    provided that users or examples were drawn as ``sampler`` says, and every vector passed through
    ``clip`` (Mironov et al. 2019; Koskela et al. 2020; of examples Charles et al. 2024, Theorem 1,
    or by group privacy). With ``discrete`` noise see ``privacy.accounting.grid_noise``.
    """

    def release(
        self,
        sum_D: np.ndarray,
        *,
        round_: int,
        covers: str,
        ledger: Ledger,
        source: Randomness,
    ) -> np.ndarray:
        """``sum_D`` with noise, float64, shape (D,); charged to ``ledger`` before it exists.

        Raises:
            ValueError: the sum is not finite, or the ledger is for another adjacency.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        return _release(self, sum_D, round_=round_, covers=covers, ledger=ledger, source=source)


def _release(
    mechanism: SampledGaussian,
    values_D: np.ndarray,
    *,
    round_: int,
    covers: str,
    ledger: Ledger,
    source: Randomness,
    last: tuple[float, float] | None = None,
) -> np.ndarray:
    """Noise on the sum of a mechanism, charged before it exists; ``last`` is scale and step of the
    last value, if they are others."""
    if not np.isfinite(values_D).all():
        raise ValueError("a sum with a value that is not finite may not be released")
    if ledger.adjacency is not mechanism.adjacency:
        raise ValueError(
            f"the ledger is for {ledger.adjacency}, the plan for {mechanism.adjacency}"
        )
    values_D = np.asarray(values_D, dtype=np.float64)
    std_D = np.broadcast_to(mechanism.std, values_D.shape)
    step_D = np.broadcast_to(mechanism.clip.step, values_D.shape)
    if last is not None or mechanism.discrete is not None:  # else they take no memory
        std_D, step_D = std_D.copy(), step_D.copy()
    if last is not None:
        std_D[-1], step_D[-1] = last
    charge = ledger.charge(mechanism.event, round_=round_, covers=covers, seeded=source.seeded)
    if mechanism.discrete is not None:
        return mechanism.discrete.add(values_D, std_D, step_D, source)
    # No two lines of a ledger have the same round, coverage and attempt, nor the same noise.
    stream = source.stream(f"noise {covers}", round_, charge.attempt)
    released_D = stream.standard_normal(values_D.shape)
    released_D *= std_D  # in place: of a whole network these are long
    released_D += values_D
    return released_D


# A sum of clipped vectors and a count of who was not clipped, released as one Gaussian vector.
#
# A bound that adapts needs to know how many users it binds: nodes send both by a ``CountingClip``,
# where each user's bit moves the count by no more than ½ either way. Scaled by their noises the two
# are one bounded vector, so both cost one event (Andrew et al. 2021, Theorem 1): two separate
# charges would be more, none for the count too little.
#
# Noise on the sum is for the C that nodes clipped with. The mechanism holds that C and knows of no
# other: what C becomes next is computed from what has been released, afterwards.
#
# Legend: D dimensions.


@dataclass(frozen=True, kw_only=True)
class JointSum(SampledGaussian):
    """The Poisson-subsampled Gaussian mechanism on a clipped sum and a centred count together.

    Releases Σ clip(v_u) + N(0, (σC)² I) and Σ (b_u − ½) + N(0, σ_b²) over one cohort, where C is
    the clip norm, σ the noise multiplier and σ_b ``count_noise``.

    Formal guarantee: one release is the event ``self.event`` under ``adjacency``, PoissonGaussian
    with 1/σ_eff² = 1/σ² + (½)²/σ_b², provided that the cohort was drawn by ``sampler`` and that
    vectors and bits come from a ``CountingClip`` of the same norm, ``middle`` ½, with a
    centre that was released before. ``discrete`` noise is for both
    (``privacy.accounting.grid_noise``): on a grid of ``grid.COUNT_STEP`` the count's, too, is at
    least σ_eff · 2^precision steps.
    """

    count_noise: float

    def __post_init__(self) -> None:
        if self.clip.unit is not Unit.VECTOR:
            raise Unsupported(f"nothing is proven of a count beside {self.clip.unit}")
        super().__post_init__()

    @property
    def unit(self) -> Unit:
        """The bound on one user's part: a vector, and a bit."""
        return Unit.VECTOR_AND_BIT

    @property
    def effective(self) -> float:
        """The noise multiplier of both together."""
        return joint_noise_multiplier(self.noise_multiplier, self.count_noise)

    def release(
        self,
        sum_D: np.ndarray,
        count: float,
        *,
        round_: int,
        covers: str,
        ledger: Ledger,
        source: Randomness,
    ) -> tuple[np.ndarray, float]:
        """Sum (D,) and centred count with noise, float64, for one charge, made before they exist.

        Raises:
            ValueError: a value is not finite, or the ledger is for another adjacency.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        values_D1 = np.append(np.asarray(sum_D, dtype=np.float64), count)
        noisy_D1 = _release(
            self,
            values_D1,
            round_=round_,
            covers=covers,
            ledger=ledger,
            source=source,
            last=(self.count_noise, COUNT_STEP),
        )
        return noisy_D1[:-1], float(noisy_D1[-1])


def sum_noise_for(effective: float, count_noise: float) -> float:
    """The σ of the sum with which sum and count together are ``effective``; ``JointSum``'s rule.

    Raises:
        ValueError: the count alone costs as much or more: give it more noise.
    """
    left = 1.0 / effective**2 - 0.25 / count_noise**2
    if left <= 0.0:
        raise ValueError(
            f"a count with noise {count_noise:g} leaves nothing of {effective:g} to the sum"
        )
    return 1.0 / math.sqrt(left)
