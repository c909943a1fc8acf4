"""Audit of the exponential mechanism, as it chooses a median number of judgements.

The outcome is one size of a public grid, so the exact probabilities on the two data sets are the
whole truth; they are computed by the mechanism's own ``probabilities`` and used as the attacker's
likelihood ratio. The trials then go through ``release_median``.

Legend: N trials, J buckets.
"""

import numpy as np

from murmuration.audits.auditing import Measured, Scores, Target, Task, derived, scratch_ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.median import GRID, histogram, probabilities, release_median
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import ALL, LABELS


def neighbours(adjacency: Adjacency) -> tuple[np.ndarray, np.ndarray]:
    """Histograms (J,) of users, one of whom has many judgements, and is gone or has few.

    The most revealing of a search over numbers of other users with few and with many judgements.
    """
    replaced = adjacency.vectors_changed == 2
    others = [512] * 10 if replaced else []
    moved = [*others, 1] if replaced else others
    return histogram(np.array([*others, 512])), histogram(np.array(moved, dtype=np.int64))


def audit_median(task: Task) -> Measured:
    """The median where one of the users has 512 judgements, or 1, or is gone."""
    sides = neighbours(task.adjacency)
    chance_J, other_J = (probabilities(h, task.epsilon, task.adjacency) for h in sides)
    ratio: dict[int, float] = dict(zip(GRID, np.log(chance_J / other_J), strict=True))
    result = []
    for second, users_J in enumerate(sides):
        source = task.side(bool(second))
        trials = (derived(source, "median", trial) for trial in range(task.trials))
        result.append(np.array([ratio[_choice(task, users_J, trial)] for trial in trials]))
    return Measured.from_scores(Scores(*result), task.epsilon, task, delta=0.0)


def _choice(task: Task, users_J: np.ndarray, source: Randomness) -> int:
    """The result of one release, with a ledger of its own."""
    with scratch_ledger(task.adjacency) as ledger:
        return release_median(
            users_J, task.epsilon, adjacency=task.adjacency, ledger=ledger, source=source
        )


TARGETS = {
    "median": Target(
        "the exponential mechanism, choosing a median number of judgements",
        audit_median,
        adjacencies=ALL - LABELS,
        trials=20_000,
        power=0.6,
    )
}
