"""Poisson cohorts: every user is in, or not, by a coin of their own.

The accountant's amplification by sampling holds for exactly this draw. A shuffled or fixed-size
cohort is another event, a cohort that is redrawn because it was small or because somebody dropped
out is another distribution: neither can be expressed here.
"""

from dataclasses import dataclass

import numpy as np


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

    def draw(self, users: int, generator: np.random.Generator) -> np.ndarray:
        """Indices (ascending, int64) of the sampled among ``users`` users, in O(cohort) time.

        The gaps between successes of independent coins are geometric, so only the included users
        cost a draw.
        """
        if self.probability == 1.0:
            return np.arange(users)
        picked, last = [], -1
        while last < users - 1:
            expected = (users - last) * self.probability
            gaps = generator.geometric(self.probability, size=int(expected + 4 * expected**0.5 + 8))
            # A gap beyond the end is as good as any other beyond the end; it must not overflow.
            places = last + np.cumsum(np.minimum(gaps, users + 1))
            picked.append(places)
            last = int(places[-1])
        places = np.concatenate(picked) if picked else np.empty(0, dtype=np.int64)
        return places[places < users].astype(np.int64)
