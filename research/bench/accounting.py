"""The time to find the noise for a budget, beside dp-accounting's own evaluation.

Ours searches for a noise multiplier, over many evaluations; dp-accounting is asked for the epsilon
of the multiplier that was found, once, at the same discretization. Both sides are given the same
event, and what they say must agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

from murmuration.privacy.accounting import accountant as accounting
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.bench.setting import timed

_INTERVAL = 1e-4


@dataclass(frozen=True)
class Task:
    """Find σ for ``epsilon`` over ``rounds`` events made by ``event``; ``theirs`` is the same."""

    name: str
    epsilon: float
    delta: float
    rounds: int
    event: Callable[[float], Event]
    theirs: Callable[[float], Any]


def _poisson(probability: float) -> Callable[[float], Any]:
    def event(sigma: float) -> Any:
        import dp_accounting  # takes as long as a calibration

        gaussian = dp_accounting.GaussianDpEvent(sigma)
        return dp_accounting.PoissonSampledDpEvent(probability, gaussian)

    return event


def _mixture(group_size: int, probability: float) -> Callable[[float], Any]:
    counts = np.arange(group_size + 1)
    weights = stats.binom.pmf(counts, group_size, probability)
    chances = (weights / weights.sum()).tolist()

    def event(sigma: float) -> Any:
        from dp_accounting.dp_event import MixtureOfGaussiansDpEvent  # as above

        return MixtureOfGaussiansDpEvent(sigma, counts.tolist(), chances)

    return event


TASKS = (
    Task("uls, q = 0.2", 3.0, 1e-5, 200, lambda s: PoissonGaussian(0.2, s), _poisson(0.2)),
    Task("uls, q = 0.01", 3.0, 1e-6, 2000, lambda s: PoissonGaussian(0.01, s), _poisson(0.01)),
    Task("els, G = 8", 3.0, 1e-6, 1000, lambda s: MixtureGaussian(s, 8, 0.01), _mixture(8, 0.01)),
    Task(
        "els, G = 32", 3.0, 1e-6, 1000, lambda s: MixtureGaussian(s, 32, 0.01), _mixture(32, 0.01)
    ),
)


def measure(task: Task, repetitions: int) -> dict[str, Any]:
    """A row: medians of both, and both epsilons."""
    from dp_accounting.pld import PLDAccountant  # as above

    def calibrated() -> float:
        return accounting.calibrate_noise(
            task.epsilon,
            lambda s: {task.event(s): task.rounds},
            adjacency=Adjacency.ADD_REMOVE,
            delta=task.delta,
        )

    def theirs() -> float:
        accountant = PLDAccountant(value_discretization_interval=_INTERVAL)
        accountant.compose(task.theirs(sigma), task.rounds)
        return float(accountant.get_epsilon(task.delta))

    seconds = []
    sigma = epsilon = 0.0
    for _ in range(repetitions):
        sigma, ours = timed(calibrated)
        epsilon, rival = timed(theirs)
        seconds.append((ours, rival))
    ours, rival = map(median, zip(*seconds, strict=True))
    return {
        "task": task.name,
        "rounds": task.rounds,
        "noise_multiplier": sigma,
        "epsilon_target": task.epsilon,
        "calibration_seconds": ours,
        "rival": "dp-accounting, one evaluation",
        "rival_epsilon": epsilon,
        "rival_seconds": rival,
        "ratio": ours / rival,
    }
