"""Poisson cohorts: every user is in, or not, by a coin of their own.

The accountant's amplification by sampling holds for exactly this draw. A shuffled or fixed-size
cohort is another event, a cohort that is redrawn because it was small or because somebody dropped
out is another distribution: neither can be expressed here.
"""

from dataclasses import dataclass

import numpy as np

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
