"""A linear bandit with judges, who judge pairs of responses; a policy then answers other prompts.

Rewards are φ·θ*, features have length one and point everywhere. Every user gives one judgement, so
a promise to users is one to labels.

Legend: J judgements, S prompts, A responses to each, D dimensions.
"""

from dataclasses import dataclass

import numpy as np

from murmuration.research.reproductions.btl import directions

#: ‖θ*‖, known to the estimators, as B of the papers.
BALL = 4.0


@dataclass(frozen=True, eq=False)
class Bandit:
    """Judged pairs, prompts to answer, and the truth."""

    x_JD: np.ndarray
    first_J: np.ndarray
    phi_SAD: np.ndarray
    truth_D: np.ndarray

    @classmethod
    def draw(cls, seed: int, *, users: int, dimension: int) -> "Bandit":
        """``users`` judgements, and 200 prompts with eight responses each."""
        generator = np.random.default_rng([2025, seed])
        truth_D = BALL * directions(generator, dimension)
        phi_SAD = directions(generator, 200, 8, dimension)
        pairs_J2D = directions(generator, users, 2, dimension)
        x_JD = pairs_J2D[:, 0] - pairs_J2D[:, 1]
        first_J = generator.random(users) < 1.0 / (1.0 + np.exp(-x_JD @ truth_D))
        return cls(x_JD, first_J, phi_SAD, truth_D)
