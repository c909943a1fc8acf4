"""Labels that were randomized before they came to a node, as a node tells them.

A file that ``murmuration privatize`` wrote holds labels that may be told to anybody: no coin is
tossed for them, and their flip rates say what was promised. They are told to whoever asks for no
more than that. A weaker promise than asked for is refused, because the server would state it.

Legend: N labels, U users.
"""

import math
from itertools import pairwise

import numpy as np

from preference.items import best_places, canonical, item_ids, public_order
from preference.judgements import InputError, Judgements
from privacy.randomized_response import LabelPromise
from privacy.told_labels import ToldLabels

_ROUNDING = 1e-9


def stated_labels(judgements: Judgements, promise: LabelPromise) -> ToldLabels:
    """All labels as they stand, in public order.

    Raises:
        InputError: labels are ties or rankings, a user's have several flip rates, or some were
            told under less than ``promise``, or more of them than its cap.
    """
    if promise.cap and int(judgements.counts_U.max(initial=0)) > promise.cap:
        raise InputError(
            f"a user here told {judgements.counts_U.max()} labels, more than the cap of "
            f"{promise.cap} allows: ask without --label-cap, or with that many"
        )
    order_N = public_order(judgements)
    choices_N = np.array([len(judgements.responses[row]) for row in order_N], dtype=np.int64)
    flips_R = judgements.flip_R
    if flips_R is None:
        flips_R = np.full(len(judgements), judgements.channel.flip_probability)
    answers_N = np.array([_answer(judgements, row) for row in order_N], dtype=np.int64)
    start_U = judgements.start_U
    per_label_U = np.array(
        [
            _epsilon(flips_R[order_N[low:high]], choices_N[low:high], promise)
            for low, high in pairwise(start_U.tolist())
        ]
    )
    return ToldLabels(start_U, item_ids(judgements)[order_N], answers_N, choices_N, per_label_U)


def _answer(judgements: Judgements, row: int) -> int:
    best, *others = best_places(judgements, row)
    shown = canonical(judgements.responses[row])
    # Whichever of equal texts was told, a file shows them all as best.
    if any(shown[other] != shown[best] for other in others):
        raise InputError(f"judgement {row + 1} is a tie, which no randomized label is")
    return best


def _epsilon(flips_N: np.ndarray, choices_N: np.ndarray, promise: LabelPromise) -> float:
    """ε of each label of one user, from how likely they are false."""
    if not len(flips_N):
        return promise.epsilon  # of no label
    if not (flips_N > 0).all():
        raise InputError(
            "some labels have flip probability 0: they were not randomized, and are not told"
        )
    found = [
        math.log((1.0 - p) * (k - 1) / p)
        for p, k in zip(flips_N.tolist(), choices_N.tolist(), strict=True)
    ]
    if max(found) - min(found) > _ROUNDING * max(found):
        raise InputError("the labels of a user were randomized with several epsilons")
    each = max(found)
    spent = each if promise.level == "item" else promise.spent(each, len(found))
    if not spent <= promise.epsilon * (1 + _ROUNDING):
        raise InputError(
            f"these labels were randomized with less protection than is asked for: {promise} "
            f"against {spent:.6g} of a {promise.level}; ask with the --epsilon and --level that "
            "they were randomized with"
        )
    return each
