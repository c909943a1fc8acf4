"""Answers of a node whose labels were randomized before they came to it.

A file that ``murmuration privatize`` wrote holds labels that anybody may see: nothing is drawn for
them, and their flip rates state their promise. They answer requests for that promise or a weaker
one. A request for a stronger one is refused, because the server would state it.

Legend: N labels, U users.
"""

import math
from itertools import pairwise

import numpy as np

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.public_items import best_places, canonical, item_ids, public_order
from murmuration.privacy.mechanisms.randomized_response import (
    LabelPromise,
    RandomizedResponse,
    ToldLabels,
)

_ROUNDING = 1e-9


def stated_labels(
    judgements: Judgements, promise: LabelPromise, left_out: LeftOut | None = None
) -> ToldLabels:
    """All labels of a file, unchanged, in public order.

    A user whose labels cannot be sent is left out; ``left_out`` takes their name, and the reason.
    Nobody else's answer depends on it.

    Raises:
        InputError: labels are ties or rankings, a user's have several flip rates, or some were
            randomized under a weaker promise, or are more than its cap; and ``left_out`` is not
            given.
    """
    order_N, ids_R = public_order(judgements), item_ids(judgements)
    taken = left_out or LeftOut("refuse")
    told: list[int] = []
    start, answers, per_label = [0], list[int](), list[float]()
    for user, (low, high) in zip(
        judgements.user_ids, pairwise(judgements.start_U.tolist()), strict=True
    ):
        rows, each = order_N[low:high].tolist(), promise.epsilon  # of no label
        try:
            mine = [_answer(judgements, row) for row in rows]
            each = _epsilon(judgements, rows, promise)
        except ValueError as reason:
            taken.add(f"labels of {user!r}", BadRow(str(reason)))
            rows, mine = [], []
        told += rows
        answers += mine
        per_label.append(each)
        start.append(len(told))
    return ToldLabels(
        start_U=np.array(start, dtype=np.int64),
        items_N=ids_R[told],
        answers_N=np.array(answers, dtype=np.int64),
        choices_N=np.array([len(judgements.responses[row]) for row in told], dtype=np.int64),
        per_label_U=np.array(per_label, dtype=np.float64),
    )


def _answer(judgements: Judgements, row: int) -> int:
    best, *others = best_places(judgements, row)
    shown = canonical(judgements.responses[row])
    # A file shows all equal texts as best, whichever of them was the answer.
    if any(shown[other] != shown[best] for other in others):
        raise InputError(f"judgement {row + 1} is a tie, which no randomized label is")
    return best


def _epsilon(judgements: Judgements, rows: list[int], promise: LabelPromise) -> float:
    """ε of each label of one user, from how likely they are false."""
    if not rows:
        return promise.epsilon  # of no label
    if promise.cap and len(rows) > promise.cap:
        raise InputError(
            f"a user here told {len(rows)} labels, more than the cap of {promise.cap} allows: ask "
            "without --label-cap, or with that many"
        )
    flip_R = judgements.flip_R
    assert flip_R is not None  # these are randomized
    result = []
    for row in rows:
        p = float(flip_R[row])
        if not p > 0:
            raise InputError(
                "some labels have flip probability 0: they were not randomized, and are not told"
            )
        result.append(math.log((1.0 - p) * (len(judgements.responses[row]) - 1) / p))
    if max(result) - min(result) > _ROUNDING * max(result):
        raise InputError("the labels of a user were randomized with several epsilons")
    each = max(result)
    spent = promise.spent(each, len(result))
    if not spent <= promise.epsilon * (1 + _ROUNDING):
        raise InputError(
            f"these labels were randomized with less protection than is asked for: {promise} "
            f"against {spent:.6g} of a user; ask with the --epsilon that they were randomized with"
        )
    for row in rows:
        RandomizedResponse(each, len(judgements.responses[row]))  # or there is no such mechanism
    return each
