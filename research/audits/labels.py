"""Audits of randomized labels: one of two answers, one of several, and all labels of a user.

The truth is known in closed form, the mechanism's own matrix, so the likelihood ratio of an answer
is its logarithm, and of several labels the sum.

Legend: N trials, M labels of a user, K possible answers.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from murmuration.audits.auditing import Measured, Scores, Target, Task
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.theorems import LABELS

_DELTA = 1e-3
_MANY = 10


def label_scores(
    mechanism: RandomizedResponse,
    task: Task,
    *,
    labels: int = 1,
    answer: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Scores:
    """Users of ``labels`` labels, all 0 on the first data set and all 1 on the second.

    ``answer`` stands in for the mechanism's, from true labels and uniform words.
    """
    answer = answer or mechanism.answer
    matrix_KK = mechanism.matrix()
    ratio_K = np.log(matrix_KK[0] / matrix_KK[1])

    def one(second: bool) -> np.ndarray:
        size = task.trials * labels
        words = task.side(second).stream("labels").integers(0, 2**64, size=size, dtype=np.uint64)
        answer_R = answer(np.full(size, int(second)), words)
        return ratio_K[answer_R].reshape(task.trials, labels).sum(axis=1)

    return Scores(one(False), one(True))


def audit_response(task: Task, *, choices: int = 2) -> Measured:
    """Audit one label; the claim is (ε, 0)."""
    mechanism = RandomizedResponse(task.epsilon, choices)
    return Measured.from_scores(label_scores(mechanism, task), mechanism.epsilon, task, delta=0.0)


def audit_user(task: Task, *, delta: float = 0.0) -> Measured:
    """Audit all ten labels of a user, with (ε, δ) for all of them together."""
    promise = LabelPromise(task.epsilon, _MANY, delta)
    each = promise.per_label(_MANY)
    scores = label_scores(RandomizedResponse(each), task, labels=_MANY)
    claimed = promise.spent(each, _MANY)
    if not math.isclose(claimed, task.epsilon, rel_tol=1e-6):
        raise AssertionError(f"a promise of {task.epsilon} spends {claimed}")
    return Measured.from_scores(scores, claimed, task, delta=delta)


TARGETS = {
    "randomized-response": Target(
        "one randomized label of two",
        audit_response,
        adjacencies=LABELS,
        trials=500_000,
        power=0.8,
    ),
    "randomized-response:four": Target(
        "one randomized label of four",
        partial(audit_response, choices=4),
        adjacencies=LABELS,
        trials=500_000,
        power=0.8,
    ),
    "randomized-response:user": Target(
        "ten labels of one user, a pure promise for all of them",
        audit_user,
        adjacencies=LABELS,
        trials=500_000,
        power=0.6,
    ),
    "randomized-response:user-delta": Target(
        "the same with delta = 0.001 and the exact composition",
        partial(audit_user, delta=_DELTA),
        adjacencies=LABELS,
        trials=500_000,
        epsilon=2.0,
        power=0.6,
    ),
}
