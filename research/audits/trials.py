"""Trials of an audit on both of its data sets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.auditing import Measured, Scores, Task, scratch_ledger
from murmuration.privacy.mechanisms.randomness import Randomness


@dataclass(frozen=True, eq=False)
class Trials:
    """The attacker's scores on both data sets, and what the mechanism charged on each."""

    scores: Scores
    ledgers: tuple[Ledger, Ledger]

    @property
    def claimed(self) -> float:
        """The epsilon of the dearer ledger."""
        return max(ledger.epsilon() for ledger in self.ledgers)

    def measured(self, task: Task, *, fit: bool = False) -> Measured:
        """The epsilon charged, beside the lower bound from the scores."""
        return Measured.of(self.scores, self.claimed, task, fit=fit)


def both_sides(task: Task, one: Callable[[bool, Ledger, Randomness], np.ndarray]) -> Trials:
    """Scores of ``one``, (N,), called for the first data set and for the second.

    It is told whether it is the second, and given a ledger and draws for that side alone.
    """
    result, ledgers = [], []
    for second in (False, True):
        with scratch_ledger(task.adjacency) as ledger:
            result.append(one(second, ledger, task.side(second)))
            ledgers.append(ledger)
    return Trials(Scores(*result), (ledgers[0], ledgers[1]))
