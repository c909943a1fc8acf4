"""Poisson sampling: of users in each round, of users in the group whose turn it is, or of single
examples.

The accountant's amplification by sampling holds for exactly these draws. A shuffled or fixed-size
cohort is another event, a cohort that is redrawn because it was small or because somebody dropped
out is another distribution: neither can be expressed here.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import GroupGaussian, PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.mechanisms.coins import bernoulli, user_words
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Participation


@dataclass(frozen=True)
class PoissonSampler:
    """Independent Bernoulli(``probability``) inclusion of each user.

    The probability is a public constant fixed before any data is looked at. The cohort, and its
    size, must stay secret: against somebody who sees it there is no amplification.
    """

    participation: ClassVar[Participation] = Participation.POISSON
    charged_as: ClassVar[str] = PoissonGaussian.kind
    probability: float

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(
                f"the sampling probability must be in (0, 1], got {self.probability}; "
                "it is cohort / users: lower --cohort or raise --users"
            )

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """Places (ascending, int64) of the sampled among users of these distinct 64-bit names.

        Each user's draw is a function of their own name and of a secret key, fresh or, with a seed,
        of this round: when a user comes, goes, moves or changes, the draws of others stay.
        """
        key = source.key("cohort", round_)
        return np.flatnonzero(bernoulli(user_words(key, names_N), self.probability))

    def event(self, noise_multiplier: float) -> PoissonGaussian:
        """The event of a sum with this much Gaussian noise."""
        return PoissonGaussian(self.probability, noise_multiplier)


@dataclass(frozen=True)
class ExampleSampler:
    """Independent Bernoulli(``probability``) inclusion of each example, on its user's node.

    Every user has at most ``group_size`` examples, the same in all rounds. ``accounting`` says how
    a round is charged for the whole user: as a mixture (Charles et al. 2024, Theorem 1), or by
    group privacy, which costs more.
    """

    participation: ClassVar[Participation] = Participation.EXAMPLES
    probability: float
    group_size: int
    accounting: type[MixtureGaussian] | type[GroupGaussian] = MixtureGaussian

    @property
    def charged_as(self) -> str:
        """The kind of the event."""
        return self.accounting.kind

    def event(self, noise_multiplier: float) -> MixtureGaussian | GroupGaussian:
        """The event of a sum with this much Gaussian noise."""
        return self.accounting(noise_multiplier, self.group_size, self.probability)


def whole_groups(users: int, cohort: int) -> int:
    """Return into how many groups users are divided who take turns, users / cohort.

    Raises:
        ValueError: no whole number of groups has such a cohort; says which ones there are.
    """
    near = users / cohort
    fits = sorted({max(1, math.floor(near)), math.ceil(near)})
    for groups in fits:
        if cohort in (math.floor(users / groups), math.ceil(users / groups)):
            return groups
    able = " or ".join(f"--cohort {round(users / b):,} ({b} rounds)" for b in reversed(fits))
    raise ValueError(
        f"each of {users:,} users is in one of a whole number of rounds, and "
        f"--cohort {cohort:,} would take {near:.3g}: use {able}"
    )


def _one_among(places: int, key: bytes, names_N: np.ndarray) -> np.ndarray:
    """Each user's place of so many: ⌊word · places / 2⁶⁴⌋, uint64 (N,)."""
    words_N, low, places_ = user_words(key, names_N), np.uint64(32), np.uint64(places)
    carried_N = ((words_N & np.uint64(2**32 - 1)) * places_) >> low
    return ((words_N >> low) * places_ + carried_N) >> low


#: What users are divided into groups by, beside their names: a name is made with the run's salt,
#: and in which group somebody is need not be secret.
_GROUPS = b"groups of users, which take turns"


@dataclass(frozen=True)
class CyclicSampler:
    """Poisson sampling within one of ``groups`` groups of users, which take turns from round to
    round.

    A user's group depends on their own name alone, is the same in all rounds and may be known.
    Sampling within a group is as in ``PoissonSampler``, and as secret; its probability is
    ``groups`` times as large, so that ``probability`` of all users are in a round, on average. If
    that is one, everybody in the group takes part.
    """

    participation: ClassVar[Participation] = Participation.TURNS
    charged_as: ClassVar[str] = ""  # that depends on the noise that rounds share
    probability: float
    groups: int

    def __post_init__(self) -> None:
        if not (type(self.groups) is int and self.groups >= 1):
            raise ValueError(f"users take turns in at least one group, got {self.groups!r}")
        if self.groups * self.probability > 1.0 + 1e-9:
            raise ValueError(
                f"a round of one group of {self.groups} has {1 / self.groups:.3g} of the users at "
                f"most, not {self.probability:.3g}: lower --cohort, or raise --users"
            )
        _ = self.of_group  # validates the probability

    @property
    def of_group(self) -> PoissonSampler:
        """The sampler within the group whose turn it is."""
        return PoissonSampler(min(1.0, self.groups * self.probability))

    def group(self, round_: int) -> int:
        """Return whose turn it is."""
        return (round_ - 1) % self.groups

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """As ``PoissonSampler.draw``: of those of the round's group."""
        group_N = _one_among(self.groups, _GROUPS, names_N)
        turn_S = np.flatnonzero(group_N == np.uint64(self.group(round_)))
        return turn_S[self.of_group.draw(names_N[turn_S], source, round_)]


#: Who is asked in a round.
Sampler = PoissonSampler | CyclicSampler
