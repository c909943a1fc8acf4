"""Corrupted labels, before and after they are randomized.

Source: Zhou et al. 2025 ("S"), Definitions 2.1 to 2.3. Under Huber's model each label is
independently, with probability α, replaced by an adversary's. *CTL* corrupts and then randomizes
for label privacy (people who lie), *LTC* randomizes and then corrupts (an attacker between them and
the server); both may happen. The order matters: a corruption after the randomization is multiplied
by a loss that corrects for the latter, by c(ε) = (e^ε + 1)/(e^ε − 1).

An adversary is any function of the true labels; it may know everything else, being a closure.
``opposite`` makes the mask of S, Appendix E: there corruption *sets* the flip, so the stated label
is the opposite of the truth, whatever the randomization.

The learner knows ``flip_probability`` and nothing of the corruption.

Legend: J judgements.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse

#: From true labels (is the first response preferred?) to those the adversary would have stated.
Adversary = Callable[[np.ndarray], np.ndarray]


def opposite(first_J: np.ndarray) -> np.ndarray:
    """The opposite of every true label."""
    return ~first_J


@dataclass(frozen=True)
class Corruption:
    """The corruption and randomization of a label on its way to the learner.

    Attributes:
        before: α of the corruption before the randomization.
        after: α of the corruption after it.
        epsilon: of the randomized response; None: the label is not randomized.
        adversary: gives the corrupted labels.

    Raises ValueError for shares outside [0, 1/2], where the paper's model ends.
    """

    before: float = 0.0
    after: float = 0.0
    epsilon: float | None = None
    adversary: Adversary = opposite

    def __post_init__(self) -> None:
        for share in (self.before, self.after):
            if not 0.0 <= share <= 0.5:
                raise ValueError(f"a share of corrupted labels must be in [0, 1/2], got {share}")

    @property
    def flip_probability(self) -> float:
        """The flip probability of the randomized response alone, which the learner knows."""
        return RandomizedResponse(self.epsilon).flip_probability if self.epsilon else 0.0

    def stated(self, first_J: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """The labels that the learner sees, (J,) bool; always three uniform draws per label."""
        coins_3J = generator.random((3, *first_J.shape))
        wanted_J = self.adversary(first_J)
        said_J = np.where(coins_3J[0] < self.before, wanted_J, first_J)
        told_J = said_J ^ (coins_3J[1] < self.flip_probability)
        return np.where(coins_3J[2] < self.after, wanted_J, told_J)
