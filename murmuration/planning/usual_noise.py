"""The noise of a run with the usual settings, by which people see what they are enough for."""

from dataclasses import dataclass

from murmuration.planning import advice
from murmuration.planning.plan import plan
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.settings.sampling import ROUNDS, usual_cohort


@dataclass(frozen=True)
class UsualNoise:
    """Noise by ``uls`` in clip norms, for each coordinate.

    Attributes:
        of_sum: of a round's sum.
        of_average: of its average over the cohort.
    """

    of_sum: float
    of_average: float


def usual_noise(users: int, epsilon: float) -> UsualNoise:
    """Return the noise with so many users to train on, a fifth of all being held out."""
    cohort = usual_cohort(users)
    numbers = plan(
        epsilon=epsilon,
        users=users,
        cohort=cohort,
        rounds=ROUNDS,
        delta=advice.delta_for(users),
        heldout=Settings.heldout,
    )
    noise = numbers["noise_multiplier"]
    return UsualNoise(noise, noise / cohort)
