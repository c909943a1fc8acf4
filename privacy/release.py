"""The one place where an exact sum becomes a noisy one.

``GaussianSum`` is the plan of a round as one object: who is sampled, how each user is clipped, how
much noise is added, what it costs, and under which adjacency. None of them can be changed without
the others following. ``release`` charges the ledger first and adds the noise second.

Legend: D dimensions.
"""

import hashlib
import hmac
import math
from dataclasses import dataclass

import numpy as np

from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.events import PoissonGaussian
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from privacy.sampling import PoissonSampler


@dataclass(frozen=True)
class GaussianSum:
    """The Poisson-subsampled Gaussian mechanism on sums of clipped user vectors.

    Releases Σ_{u in cohort} clip(v_u) + N(0, (σC)² I), where C is the clip norm and σ the noise
    multiplier. To average, divide by a constant fixed beforehand: never by the realised cohort.

    Formal guarantee: one release is the event ``self.event`` under ``adjacency``, provided that
    the cohort was drawn by ``sampler`` and every user's vector passed through ``clip``
    (Mironov et al. 2019; Koskela et al. 2020).
    """

    sampler: PoissonSampler
    clip: UserClip
    noise_multiplier: float
    adjacency: Adjacency

    def __post_init__(self) -> None:
        if not math.isfinite(self.clip.sensitivity(self.adjacency)):
            raise ValueError("noise cannot be calibrated: contributions are not clipped")
        _ = self.event  # validates the parameters

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the *sum*."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> PoissonGaussian:
        """What one release costs."""
        return PoissonGaussian(self.sampler.probability, self.noise_multiplier)

    def release(
        self, sum_D: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> np.ndarray:
        """``sum_D`` with noise, float64, shape (D,); charged to ``ledger`` before it exists.

        Raises:
            ValueError: the sum is not finite, or the ledger is for another adjacency.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if not np.isfinite(sum_D).all():
            raise ValueError("a sum with a value that is not finite may not be released")
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        sum_D = np.asarray(sum_D, dtype=np.float64)
        replay = None
        if source.seeded:
            # The scale counts: the same draw at two scales would cancel out of the difference.
            message = f"{covers}\x1f{round_}\x1f{self.std!r}\x1f".encode() + sum_D.tobytes()
            replay = hmac.new(source.key("replay"), message, hashlib.sha256).hexdigest()
        charge = ledger.charge(self.event, round_=round_, covers=covers, replay=replay)
        # Keyed by the attempt too: noise drawn for one sum is never reused on another.
        noise = source.stream(f"noise {covers}", round_, charge.attempt)
        return sum_D + self.std * noise.standard_normal(sum_D.shape)
