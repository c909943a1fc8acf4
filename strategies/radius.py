"""How a bound follows the users' gradients, and how long a step is when the bound moves.

The next bound is computed from what has been released, so it costs nothing more.

**Steps are counted in radii.** The gradient that the optimizer gets is divided by the radius it was
clipped with, so noise has the same size in every round, whatever the data made of the radius, and
the step size can be limited by it beforehand (see ``strategies.optimizer``). Only where noise is
small would such steps be longer than of any use: features of unit scale that spread evenly over D
dimensions curve the log loss by ¼ · 2 / D, and a run whose steps add up to a few times the inverse
of that has converged; noise from longer steps is not averaged out any more. Below the radius at
which the two limits meet, gradients are divided by that radius instead.
"""

import math
from dataclasses import dataclass

from strategies.optimizer import OptimizerSettings

#: Time constants of evenly spread features in a run: these leave a twelfth of the way, which makes
#: up for the few percent that clipping overshoots (measured on ``sims.btl``).
_CONVERGED = 2.5
#: How far, as a factor, a radius may get from where it started: no run of bad luck ends at zero.
_RANGE = 1e4
_FARTHEST = 2.0 * math.log(_RANGE)  # from one end of that range to the other


@dataclass(frozen=True)
class QuantileRule:
    """Moves a radius until a share ``quantile`` of users is within it (Andrew et al. 2021, Eq. 2).

    Geometric: radius · exp(−rate · (share − quantile)). Too few within it makes the radius larger,
    too many smaller. ``start`` is where it begins.
    """

    start: float
    quantile: float
    rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise ValueError(f"--quantile must be between 0 and 1, got {self.quantile}")
        if not (math.isfinite(self.rate) and self.rate > 0.0):
            raise ValueError(f"the rate of adaptation must be positive, got {self.rate}")

    def next(self, radius: float, share: float) -> float:
        """The radius after one in which a (noisy) ``share`` of users was within ``radius``."""
        # Noise on the count of a small cohort can be any number of cohorts.
        step = min(max(-self.rate * (share - self.quantile), -_FARTHEST), _FARTHEST)
        return bounded(radius * math.exp(step), self.start)


def bounded(radius: float, start: float) -> float:
    """``radius``, no further than a large factor from ``start``."""
    return min(max(radius, start / _RANGE), start * _RANGE)


def least_unit(settings: OptimizerSettings, dimension: int) -> float:
    """The least radius to divide gradients by, at this step size; see the module's docstring.

    Zero for optimizers that divide by the gradient's own scale.
    """
    if settings.kind != "sgd":
        return 0.0
    steps = sum(settings.factor(t) for t in range(1, settings.rounds + 1))
    return settings.rate * steps / (_CONVERGED * 2.0 * dimension)
