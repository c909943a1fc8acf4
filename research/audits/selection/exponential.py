"""Audit of the exponential mechanism, as it chooses by the losses of users.

There are two choices. The other users make one of them unlikely; the canary, of several judgements
that all agree, is for it, and on the second data set against it or gone. What is seen is what was
chosen, so the mechanism's own probabilities are the whole truth.

Legend: N trials, P choices (2), J judgements of the canary.
"""

import math
from functools import partial

import numpy as np

from murmuration.audits.auditing import Measured, Target, Task
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.trials import both_sides, charged_alone
from murmuration.research.strategies.choice.exponential_mechanism import (
    ExponentialMechanism,
    span_of,
)

#: Judgements of the canary.
JUDGEMENTS = 4
#: Minus the logarithm of the odds of the unlikely choice, of the others alone: the rarer, the
#: nearer the ratio of its probabilities comes to the claim, and the more trials it takes to see.
_ODDS = 3.0


def neighbours(
    mechanism: ExponentialMechanism, losses_JP: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums, (P,), with a canary of these losses and with one of the reverse, or none."""
    swapped = mechanism.adjacency.vectors_changed == 2
    each = mechanism.span / mechanism.most * _ODDS / float(mechanism.rate)
    users = math.ceil(each / mechanism.span)
    row = np.array([each / users, 0.0])
    others_P = users * mechanism.contribution(np.tile(row, (max(1, mechanism.cap), 1)))
    other_P = mechanism.contribution(losses_JP[:, ::-1]) if swapped else 0.0
    return others_P + mechanism.contribution(losses_JP), others_P + other_P


def audit_choice(
    task: Task,
    *,
    make: type[ExponentialMechanism] = ExponentialMechanism,
    cap: int = 0,
    wide: float = 1.0,
) -> Measured:
    """A choice between two; the claim is for all of the canary's judgements.

    ``make`` may be broken; the claim is the honest mechanism's. ``wide``: how far the canary's
    losses lie apart, in spans.
    """
    terms = (task.epsilon / max(1, cap), span_of(1.0), 2, task.adjacency, cap)
    made, claimed = make(*terms), ExponentialMechanism(*terms).event
    losses_JP = np.tile([0.0, wide * made.span], (JUDGEMENTS, 1))
    sides = neighbours(made, losses_JP)
    ratio_P = np.log(made.probabilities(sides[0])) - np.log(made.probabilities(sides[1]))

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        chosen_N = [
            made.choose(sides[second], round_=trial, covers="choice", ledger=ledger, source=source)
            for trial in range(task.trials)
        ]
        return ratio_P[chosen_N]

    result = both_sides(task, one)
    charged_alone(result, claimed)
    return Measured.from_scores(result.scores, task.epsilon, task, delta=0.0)


_USER = Target(
    "the exponential mechanism, choosing by the mean losses of users",
    audit_choice,
    trials=20_000,
    power=0.65,
)
TARGETS = {
    "exponential-mechanism": _USER,
    "exponential-mechanism:item": Target(
        "the same by the losses of single judgements, claimed for a user with four",
        partial(audit_choice, cap=JUDGEMENTS),
        trials=20_000,
        power=0.65,
    ),
}
