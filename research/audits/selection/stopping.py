"""Audit of random stopping: the best of a random number of private candidates.

The worst case of a candidate that is (ε, 0)-DP has three outcomes, here by rank: one in the middle
that the canary makes e^ε times as likely, a best one that it makes e^ε times less likely, and the
rest. The middle one is released if it comes up and the best one never does: of a geometric number
of candidates nearly e^(3ε) times as often with the canary as without (Liu and Talwar 2019). What is
seen is the outcome, and its probabilities are known exactly.

Legend: N trials, O outcomes (3) from the lowest rank to the highest.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from murmuration.audits.auditing import DELTA, Measured, Target, Task
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.privacy.theorems import COMES_OR_GOES
from murmuration.research.audits.trials import both_sides

#: Without the canary: the probabilities of the middle outcome and of the best one.
_MIDDLE, _BEST = 0.04, 0.5
_RUNS = 20.0
#: So nearly everybody is held out, and rounds have so much noise, that the score is all that costs.
_HELD_OUT, _NOISE = 1.0 - 2.0**-20, 1e9


def outcomes(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of a candidate's outcomes, (O,), with the canary and without."""
    sides = []
    for factor in (math.exp(epsilon), 1.0):
        middle, best = _MIDDLE * factor, _BEST / factor
        sides.append(np.array([1.0 - middle - best, middle, best]))
    return sides[0], sides[1]


def released(probability_O: np.ndarray, stopping: StoppingTime) -> np.ndarray:
    """Probabilities of what is released, (O,): the highest of K outcomes."""
    mass_K = stopping.masses(5_000)
    below_O = np.cumsum(probability_O)
    at_most_O = [mass_K @ below ** np.arange(1, len(mass_K) + 1) for below in below_O]
    return np.diff(at_most_O, prepend=0.0)


def event_of(epsilon: float, stopping: StoppingTime) -> RandomStopping:
    """The event that is charged: candidates whose only cost is that of their score."""
    cost = CandidateCost(1.0, _NOISE, 1, share=_HELD_OUT, heldout_epsilon=epsilon)
    return RandomStopping(stopping.eta, stopping.gamma, (cost,))


def audit_stopping(
    task: Task,
    *,
    eta: float = 1.0,
    charge: Callable[[float, StoppingTime], Event] = event_of,
) -> Measured:
    """The best of 20 expected candidates that each cost a third of the task's epsilon.

    ``charge`` gives what the ledger is charged, from a candidate's epsilon; it may be broken.
    """
    alone, stopping = task.epsilon / 3.0, StoppingTime.with_mean(_RUNS, eta)
    sides = outcomes(alone)
    seen = [released(side, stopping) for side in sides]
    ratio_O = np.log(seen[0]) - np.log(seen[1])

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        ledger.charge(charge(alone, stopping), round_=0, covers="the best of a search")
        generator = source.stream("candidates of a search")
        best_N = [
            generator.choice(3, size=stopping.draw(generator), p=sides[second]).max()
            for _ in range(task.trials)
        ]
        return ratio_O[best_N]

    result = both_sides(task, one)
    return Measured.from_scores(result.scores, result.claimed, task, delta=DELTA)


TARGETS = {
    "random-stopping": Target(
        "the best of a geometric number of candidates",
        audit_stopping,
        adjacencies=COMES_OR_GOES,
        trials=20_000,
        epsilon=3.0,
    ),
    "random-stopping:logarithmic": Target(
        "the best of a logarithmic number of candidates",
        partial(audit_stopping, eta=0.0),
        adjacencies=COMES_OR_GOES,
        trials=20_000,
        epsilon=3.0,
    ),
}
