"""Trials of an audit on both of its data sets.

Legend: N trials, V coordinates of a sum.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from murmuration.audits.auditing import Measured, Scores, Task, scratch_ledger
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.sums import RoundMechanism


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
        return Measured.from_scores(self.scores, self.claimed, task, fit=fit)


def charged_alone(result: Trials, event: Event) -> None:
    """AssertionError unless every charge on both sides is of this event."""
    if any(set(ledger.spent()) != {event} for ledger in result.ledgers):
        raise AssertionError("the ledger was charged something else")


def projected(
    task: Task,
    mechanism: RoundMechanism,
    first_V: np.ndarray,
    second_V: np.ndarray,
    release: str,
) -> Measured:
    """Releases of two sums, each projected on their difference: that is all that Gaussian noise
    leaves to be known of which it was (Neyman and Pearson)."""
    apart_V, middle_V = first_V - second_V, (first_V + second_V) / 2.0

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        exact_NV = np.tile(second_V if second else first_V, (task.trials, 1))
        noisy_NV = mechanism.release(
            exact_NV.reshape(-1), round_=1, covers=release, ledger=ledger, source=source
        ).reshape(exact_NV.shape)
        return (noisy_NV - middle_V) @ apart_V / mechanism.std**2

    return both_sides(task, one).measured(task, fit=True)


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
