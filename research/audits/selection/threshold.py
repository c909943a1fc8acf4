"""Audit of AboveThreshold: a series of questions asked until the first "no".

What is seen is at which question the series ended. The two data sets pull the answers apart by the
full sensitivity: all but the last question are likelier to pass on the first, the last likelier to
pass on the second; where questions are monotone all go one way. The likelihood ratio of the
outcomes is computed from the noise that the mechanism states, by quadrature.

Legend: N trials, K questions, J outcomes (K + 1), Z points of a quadrature.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from scipy import stats

from murmuration.audits.auditing import Measured, Target, Task
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import COMES_OR_GOES
from murmuration.research.audits.trials import both_sides, charged_alone

#: Questions before the last, and how far below and above the threshold, in units of Δ/ε, they are:
#: the most revealing of a search over these.
_QUESTIONS, _BASE, _LAST = 8, 0.5, -1.0


def outcomes(mechanism: AboveThreshold, values_K: np.ndarray) -> np.ndarray:
    """Probability that the series ends at each question, or not at all; (J,)."""
    scale = mechanism.threshold_scale
    noise_Z = np.linspace(-30.0 * scale, 30.0 * scale, 60_001)
    weight_Z = stats.laplace.pdf(noise_Z, scale=scale)
    weight_Z /= weight_Z.sum()
    result = []
    for value in values_K:
        gap_Z = mechanism.threshold - noise_Z - value
        below_Z = stats.laplace.cdf(gap_Z, scale=mechanism.query_scale)
        result.append(float(weight_Z @ below_Z))
        weight_Z = weight_Z * (1.0 - below_Z)
    return np.array([*result, float(weight_Z.sum())])


def ends(
    mechanism: AboveThreshold,
    values_K: np.ndarray,
    trials: int,
    ledger: Ledger,
    source: Randomness,
) -> np.ndarray:
    """The question at which each of ``trials`` series ended, int64 (N,); K if all passed."""
    ended_N = np.full(trials, len(values_K))
    for trial in range(trials):
        series = mechanism.open(round_=trial, covers="test", ledger=ledger, source=source)
        for index, value in enumerate(values_K):
            if not series.ask(float(value), index):
                ended_N[trial] = index
                break
    return ended_N


def questions(mechanism: AboveThreshold, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """The answers, (K,), on the two data sets, ``apart`` from each other."""
    unit = mechanism.sensitivity / mechanism.epsilon
    shape = np.array([_BASE] * _QUESTIONS + [_LAST]) * unit + mechanism.threshold
    half = np.full(len(shape), apart / 2.0)
    if not mechanism.monotone:
        half[-1] = -half[-1]
    return shape + half, shape - half


def audit_threshold(task: Task, *, monotone: bool = False, apart: float = 1.0) -> Measured:
    """A series with sensitivity 1 whose answers lie ``apart``: 1, or more for a seeded fault."""
    mechanism = AboveThreshold(0.0, task.epsilon, 1.0, task.adjacency, monotone)
    first_K, second_K = questions(mechanism, apart)
    # The attacker knows the noise as it is.
    with np.errstate(divide="ignore"):
        ratio_J = np.log(outcomes(mechanism, first_K)) - np.log(outcomes(mechanism, second_K))

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        values_K = second_K if second else first_K
        return ratio_J[ends(mechanism, values_K, task.trials, ledger, source)]

    result = both_sides(task, one)
    charged_alone(result, mechanism.event)
    return Measured.from_scores(result.scores, mechanism.event.epsilon, task, delta=0.0)


_PLAIN = Target(
    "AboveThreshold: nine questions of sensitivity 1, until the first no",
    audit_threshold,
    trials=25_000,
    epsilon=2.0,
)
TARGETS = {
    "above-threshold": _PLAIN,
    "above-threshold:monotone": replace(
        _PLAIN,
        about="the same with the noise that suffices where all answers move one way",
        measure=partial(audit_threshold, monotone=True),
        adjacencies=COMES_OR_GOES,
    ),
}
