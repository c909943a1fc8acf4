"""Where an exact sum becomes a noisy one.

``GaussianSum`` (whole users) and ``ExampleSum`` (single examples) are the plan of a round as one
object: what is sampled, how it is clipped, how much noise is added, what it costs, and under which
adjacency. None of them can be changed without the others following. ``release`` charges the ledger
first and adds the noise second.

Legend: D dimensions.
"""

import hashlib
import hmac
import math
from dataclasses import dataclass

import numpy as np

from privacy.adjacency import Adjacency, Unsupported
from privacy.clipping import UserClip
from privacy.discrete import DiscreteNoise
from privacy.distributed import DistributedNoise
from privacy.events import Event, PoissonGaussian
from privacy.example_clipping import ExampleClip
from privacy.group_event import GroupGaussian
from privacy.ledger import Ledger
from privacy.mixture import MixtureGaussian
from privacy.randomness import Randomness
from privacy.sampling import PoissonSampler


@dataclass(frozen=True)
class GaussianSum:
    """The Poisson-subsampled Gaussian mechanism on sums of clipped user vectors.

    Releases Σ_{u in cohort} clip(v_u) + N(0, (σC)² I), where C is the clip norm and σ the noise
    multiplier. To average, divide by a constant fixed beforehand: never by the realised cohort.

    Formal guarantee: one release is the event ``self.event`` under ``adjacency``, provided that
    the cohort was drawn by ``sampler`` and every user's vector passed through ``clip``
    (Mironov et al. 2019; Koskela et al. 2020). With ``discrete`` noise see ``privacy.on_grid``.
    """

    sampler: PoissonSampler
    clip: UserClip
    noise_multiplier: float
    adjacency: Adjacency
    discrete: DiscreteNoise | DistributedNoise | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.clip.sensitivity(self.adjacency)):
            raise ValueError("noise cannot be calibrated: contributions are not clipped")
        _ = self.event  # validates the parameters

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the *sum*."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> Event:
        """What one release costs."""
        event = PoissonGaussian(self.sampler.probability, self.noise_multiplier)
        return self.discrete.charged(event) if self.discrete else event

    def release(
        self,
        sum_D: np.ndarray,
        *,
        round_: int,
        covers: str,
        ledger: Ledger,
        source: Randomness,
        beside: float | None = None,
    ) -> np.ndarray:
        """``sum_D`` with noise, float64, shape (D,); charged to ``ledger`` before it exists.

        ``beside`` is not released here: an exact value of the same cohort that is used next, which
        must be the same too for a seeded round to be an exact replay.

        Raises:
            ValueError: the sum is not finite, or the ledger is for another adjacency.
            LedgerError: a seeded round was released before from other values; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        noise = self.std, self.clip.step, self.discrete
        return _release(sum_D, noise, self.event, round_, covers, ledger, source, beside)


@dataclass(frozen=True)
class ExampleSum:
    """The Gaussian mechanism on sums of clipped examples, each sampled by a coin of its own.

    Releases Σ clip(v_e) + N(0, (σC)² I) over the examples e whose coins came up, where C is the
    clip norm of an *example*. To average, divide by a constant fixed beforehand.

    Formal guarantee: for the whole user, one release is the event ``self.event``, provided that
    every user has at most ``group_size`` examples, the same in all rounds, that each is in by an
    independent coin of probability ``probability``, and that each passed through ``clip``. With
    ``event_kind`` a mixture (Charles et al. 2024, Theorem 1) under add-remove and zero-out only;
    by group privacy, which costs more, under all four relations.
    """

    probability: float
    group_size: int
    clip: ExampleClip
    noise_multiplier: float
    adjacency: Adjacency
    event_kind: type[MixtureGaussian] | type[GroupGaussian] = MixtureGaussian
    discrete: DiscreteNoise | DistributedNoise | None = None

    def __post_init__(self) -> None:
        if self.event_kind is MixtureGaussian and self.adjacency.vectors_changed != 1:
            raise Unsupported(
                f"sampling examples has no guarantee under {self.adjacency}; "
                "use add-remove or zero-out"
            )
        _ = self.event  # validates the parameters

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of the *sum*."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> Event:
        """What one release costs."""
        event = self.event_kind(self.noise_multiplier, self.group_size, self.probability)
        return self.discrete.charged(event) if self.discrete else event

    def release(
        self, sum_D: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> np.ndarray:
        """As ``GaussianSum.release``."""
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        noise = self.std, self.clip.step, self.discrete
        return _release(sum_D, noise, self.event, round_, covers, ledger, source)


def fingerprint(
    values: np.ndarray, scale: float, round_: int, covers: str, source: Randomness
) -> str | None:
    """The keyed hash by which a seeded run recognises an exact replay; None without a seed."""
    if not source.seeded:
        return None
    # The scale counts: the same draw at two scales would cancel out, so that is no replay.
    message = f"{covers}\x1f{round_}\x1f{scale!r}\x1f".encode() + values.tobytes()
    return hmac.new(source.key("replay"), message, hashlib.sha256).hexdigest()


def _release(
    sum_D: np.ndarray,
    noise: tuple[float, float, DiscreteNoise | DistributedNoise | None],
    event: Event,
    round_: int,
    covers: str,
    ledger: Ledger,
    source: Randomness,
    beside: float | None = None,
) -> np.ndarray:
    if not np.isfinite(sum_D).all():
        raise ValueError("a sum with a value that is not finite may not be released")
    std, step, discrete = noise
    sum_D = np.asarray(sum_D, dtype=np.float64)
    seen = sum_D if beside is None else np.append(sum_D, beside)
    replay = fingerprint(seen, std, round_, covers, source)
    charge = ledger.charge(event, round_=round_, covers=covers, replay=replay)
    if discrete is not None:
        return discrete.add(sum_D, np.full_like(sum_D, std), np.full_like(sum_D, step), source)
    # A seeded round that meets other values was refused, so its noise is never used twice.
    stream = source.stream(f"noise {covers}", round_, charge.attempt)
    return sum_D + std * stream.standard_normal(sum_D.shape)
