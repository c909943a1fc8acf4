"""Cohorts: by a coin of every user in each round (Poisson), or in one round of each block.

The accountant's amplification by sampling holds for exactly these draws. A shuffled or fixed-size
cohort is another event, a cohort that is redrawn because it was small or because somebody dropped
out is another distribution: neither can be expressed here.
"""

from dataclasses import dataclass, field

import numpy as np

from murmuration.privacy.accounting.allocation import check_block
from murmuration.privacy.mechanisms.coins import bernoulli, user_words
from murmuration.privacy.mechanisms.randomness import Randomness


@dataclass(frozen=True)
class PoissonSampler:
    """Independent Bernoulli(``probability``) inclusion of each user.

    The probability is a public constant fixed before any data is looked at. Who was drawn, and how
    many, must stay secret: against somebody who sees it there is no amplification.
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0:
            raise ValueError(
                f"the sampling probability must be in (0, 1], got {self.probability}; "
                "it is cohort / users: lower --cohort or raise --users"
            )

    def draw(self, names_N: np.ndarray, source: Randomness, round_: int) -> np.ndarray:
        """Places (ascending, int64) of the sampled among users of these distinct 64-bit names.

        Each user's coin is a function of their own name and of a key that nobody else sees, fresh
        or, with a seed, of this round: who else is sampled does not change when a user comes, goes,
        moves or changes.
        """
        words_N = user_words(source.key("cohort", round_), names_N)
        return np.flatnonzero(bernoulli(words_N, self.probability))


@dataclass(frozen=True)
class AllocationSampler:
    """Each user in exactly one round of each block of so many ``rounds``, by a word of their own.

    How long a block is is a public constant. In which round a user is, and how many are in one,
    must stay secret: against somebody who sees it there is no amplification.
    """

    rounds: int

    def __post_init__(self) -> None:
        check_block(self.rounds, 1.0)

    @property
    def probability(self) -> float:
        """The share of the users that a round has, on average."""
        return 1.0 / self.rounds

    def begin(self, source: Randomness, round_: int) -> "Block":
        """A block that holds this round, with a key of its own.

        It begins with this round; with a seed where blocks begin that are counted from round 1,
        so that a simulation that is gone on with draws the same again. Without one the key is
        nowhere but in memory: whoever goes on with a run begins, and pays for, another block.
        """
        first = round_ - (round_ - 1) % self.rounds if source.seeded else round_
        return Block(first, self.rounds, source.key("allocation", first))


@dataclass(frozen=True)
class Block:
    """The rounds from ``first`` on in one of which each user is."""

    first: int
    rounds: int
    key: bytes = field(repr=False)

    def holds(self, round_: int) -> bool:
        """Return whether a round is in it."""
        return self.first <= round_ < self.first + self.rounds

    def draw(self, names_N: np.ndarray, round_: int) -> np.ndarray:
        """Places (ascending, int64) of those in a round among users of these distinct names.

        A user's round is ⌊word · rounds / 2⁶⁴⌋: each as likely as any other, to 2⁻⁶⁴.
        """
        words_N, low = user_words(self.key, names_N), np.uint64(32)
        rounds = np.uint64(self.rounds)
        carried_N = ((words_N & np.uint64(2**32 - 1)) * rounds) >> low
        place_N = ((words_N >> low) * rounds + carried_N) >> low
        return np.flatnonzero(place_N == np.uint64(round_ - self.first))
