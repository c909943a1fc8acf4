"""A sum of clipped vectors and a count of who was not clipped, released as one Gaussian vector.

A bound that adapts needs to know how many users it binds. Each sampled user contributes, beside
their clipped vector, a bit b = 1[norm ≤ C], sent as b − ½ so that it moves the count by no more
than ½ either way. Scaled by their noises the two are one bounded vector, so both cost one event
(Andrew et al. 2021, Theorem 1): two separate charges would be more, none for the count too little.

Noise on the sum is for the C that nodes clipped with. The mechanism holds that C and knows of no
other: what C becomes next is computed from what has been released, afterwards.

Legend: B users in a chunk, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from privacy.accounting import joint_noise_multiplier
from privacy.adjacency import Adjacency
from privacy.clipping import ROUNDING, UserClip, square
from privacy.discrete import DiscreteNoise
from privacy.distributed import DistributedNoise
from privacy.events import Event, PoissonGaussian
from privacy.grid import COUNT_STEP
from privacy.kernel import kernel
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from privacy.release import fingerprint
from privacy.sampling import PoissonSampler


@dataclass(frozen=True, eq=False)
class CountingClip:
    """Clips users' vectors, less a common centre, to ``norm`` and counts who was within it.

    ``middle`` is subtracted from each user's bit: ½, or 0 for a plain count. ``centre_D`` (float64)
    is the centre, none for zero. Vectors are rounded onto the grid of ``UserClip``; bits need none.

    Formal guarantee: for any input, finite or not, each user adds to ``clip_sum`` a vector of ℓ2
    norm at most ``norm`` and a number of magnitude at most max(``middle``, 1 − ``middle``), both
    functions of that user's vector and the centre alone; a user who is not finite adds zero to
    both. The sums are exact.
    """

    norm: float
    middle: float = 0.5
    centre_D: torch.Tensor | None = None

    def clip_sum(self, vectors_BD: torch.Tensor) -> torch.Tensor:
        """Over B users: the sum of clipped vectors and, last, of centred bits; float64 (D + 1,)."""
        dimension = vectors_BD.shape[1]
        sum_D1 = np.zeros(dimension + 1)
        centre_D = np.zeros(dimension) if self.centre_D is None else self.centre_D.numpy()
        step = UserClip(self.norm).step
        _add_clipped_and_count(
            vectors_BD.cpu().numpy(),
            centre_D,
            self.norm,
            self.norm * ROUNDING,
            self.middle,
            step,
            sum_D1,
        )
        sum_D1[:-1] *= step
        return torch.from_numpy(sum_D1)


@kernel()
def _add_clipped_and_count(
    vectors_BD: np.ndarray,
    centre_D: np.ndarray,
    radius: float,
    norm: float,
    middle: float,
    step: float,
    sum_D1: np.ndarray,
) -> None:
    """Add each row less the centre, scaled to at most ``norm``, in whole steps, and last whether it
    lay within ``radius``, less ``middle``; leave out what is not finite."""
    dimension = len(centre_D)
    apart_D = np.empty(dimension)
    for b in range(len(vectors_BD)):
        for d in range(dimension):
            apart_D[d] = vectors_BD[b, d] - centre_D[d]
        length = math.sqrt(square(apart_D))
        if math.isfinite(length):
            factor = norm / max(norm, length) / step
            for d in range(dimension):
                sum_D1[d] += np.trunc(factor * apart_D[d])
            sum_D1[dimension] += (1.0 if length <= radius else 0.0) - middle


@dataclass(frozen=True)
class JointSum:
    """The Poisson-subsampled Gaussian mechanism on a clipped sum and a centred count together.

    Releases Σ clip(v_u) + N(0, (σC)² I) and Σ (b_u − ½) + N(0, σ_b²) over one cohort, where C is
    the clip norm, σ the noise multiplier and σ_b ``count_noise``.

    Formal guarantee: one release is the event ``self.event`` under ``adjacency``, PoissonGaussian
    with 1/σ_eff² = 1/σ² + (½)²/σ_b², provided that the cohort was drawn by ``sampler`` and that
    vectors and bits come from a ``CountingClip`` of the same norm, ``middle`` ½, with a
    centre that was released before. ``discrete`` noise is for both (``privacy.on_grid``): on a grid
    of ``grid.COUNT_STEP`` the count's, too, is at least σ_eff · 2^precision steps.
    """

    sampler: PoissonSampler
    clip: UserClip
    noise_multiplier: float
    count_noise: float
    adjacency: Adjacency
    discrete: DiscreteNoise | DistributedNoise | None = None

    def __post_init__(self) -> None:
        _ = self.event  # validates the parameters

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the *sum*."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> Event:
        """What one release of both costs."""
        effective = joint_noise_multiplier(self.noise_multiplier, self.count_noise)
        event = PoissonGaussian(self.sampler.probability, effective)
        return self.discrete.charged(event) if self.discrete else event

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
            LedgerError: a seeded round was released before from other values; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        values = np.append(np.asarray(sum_D, dtype=np.float64), count)
        if not np.isfinite(values).all():
            raise ValueError("a sum with a value that is not finite may not be released")
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        scales_D1 = np.full(len(values), self.std)
        scales_D1[-1] = self.count_noise
        # Both scales count: the same draw at two scales would cancel out, so that is no replay.
        seen = np.append(values, self.count_noise)
        replay = fingerprint(seen, self.std, round_, covers, source)
        charge = ledger.charge(self.event, round_=round_, covers=covers, replay=replay)
        if self.discrete is not None:
            steps_D1 = np.full(len(values), self.clip.step)
            steps_D1[-1] = COUNT_STEP
            noisy_D1 = self.discrete.add(values, scales_D1, steps_D1, source)
        else:
            noise = source.stream(f"noise {covers}", round_, charge.attempt)
            noisy_D1 = values + scales_D1 * noise.standard_normal(values.shape)
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
