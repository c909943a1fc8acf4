"""How long it takes to find the noise for a budget, beside dp-accounting's own evaluation.

Ours searches for a noise multiplier, over many evaluations; dp-accounting is asked for the epsilon
of the multiplier that was found, once, at the same discretization. Both sides are given the same
event, and what they say must agree.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from scipy import stats

from murmuration.privacy.accounting import accountant as accounting
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency

_INTERVAL = 1e-4


@dataclass(frozen=True)
class Task:
    """Find σ for ``epsilon`` over ``rounds`` events made by ``event``; ``theirs`` is the same."""

    name: str
    epsilon: float
    delta: float
    rounds: int
    event: Callable[[float], Event]
    theirs: Callable[[float], dp_accounting.DpEvent]


def _poisson(probability: float) -> Callable[[float], dp_accounting.DpEvent]:
    return lambda sigma: dp_accounting.PoissonSampledDpEvent(
        probability, dp_accounting.GaussianDpEvent(sigma)
    )


def _mixture(group_size: int, probability: float) -> Callable[[float], dp_accounting.DpEvent]:
    counts = np.arange(group_size + 1)
    weights = stats.binom.pmf(counts, group_size, probability)
    return lambda sigma: dp_accounting.dp_event.MixtureOfGaussiansDpEvent(
        sigma, counts.tolist(), (weights / weights.sum()).tolist()
    )


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
    ours, theirs = [], []
    sigma = epsilon = 0.0
    for _ in range(repetitions):
        begun = time.perf_counter()
        sigma = accounting.calibrate_noise(
            task.epsilon,
            lambda s: {task.event(s): task.rounds},
            adjacency=Adjacency.ADD_REMOVE,
            delta=task.delta,
        )
        ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        accountant = PLDAccountant(value_discretization_interval=_INTERVAL)
        accountant.compose(task.theirs(sigma), task.rounds)
        epsilon = float(accountant.get_epsilon(task.delta))
        theirs.append(time.perf_counter() - begun)
    return {
        "task": task.name,
        "rounds": task.rounds,
        "noise_multiplier": sigma,
        "epsilon_target": task.epsilon,
        "calibration_seconds": median(ours),
        "rival": "dp-accounting, one evaluation",
        "rival_epsilon": epsilon,
        "rival_seconds": median(theirs),
        "ratio": median(ours) / median(theirs),
    }
