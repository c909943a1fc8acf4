"""Judgements without their labels: what was shown, in an order that reveals nothing.

Where labels are what is protected, prompts and responses are public, but the order in which a
judgement lists its responses is the label. The *canonical order* sorts responses as strings, so it
depends on the responses alone; a label is then a place in that order. An *item* is a prompt with
its unordered responses, named by 64 bits; the name can be computed from the texts.

Shape suffixes: R rows (judgements), U users.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from murmuration.preference.data.judgements import InputError, Judgements


def canonical_order(responses: Sequence[str]) -> tuple[int, ...]:
    """Places in ``responses`` of its texts in canonical order; equal texts stay as they are."""
    return tuple(sorted(range(len(responses)), key=responses.__getitem__))


def canonical(responses: Sequence[str]) -> tuple[str, ...]:
    """The responses in canonical order: sorted as strings, by code points."""
    return tuple(sorted(responses))


def item_id(prompt: str, responses: Sequence[str]) -> int:
    """A 64-bit name of a prompt with its responses in any order."""
    digest = hashlib.blake2b(digest_size=8, person=b"murmuration item")
    for text in (prompt, *canonical(responses)):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def item_ids(judgements: Judgements) -> np.ndarray:
    """The item of each judgement, (R,) uint64."""
    pairs = zip(judgements.prompts, judgements.responses, strict=True)
    return np.fromiter((item_id(*pair) for pair in pairs), dtype=np.uint64, count=len(judgements))


def public_order(judgements: Judgements, ids_R: np.ndarray | None = None) -> np.ndarray:
    """Rows grouped by user as they are, and by item inside a user, (R,) int64.

    The order in which a user gave judgements, or a file lists them, may reveal labels; this order
    does not. Several judgements of one item by one user stay in their order. ``ids_R`` are the
    ``item_ids``, if already computed.
    """
    users_R = np.repeat(np.arange(len(judgements.user_ids)), judgements.counts_U)
    return np.lexsort((item_ids(judgements) if ids_R is None else ids_R, users_R))


def best_places(judgements: Judgements, row: int) -> tuple[int, ...]:
    """A judgement's label: the place of the best response in canonical order, or of all tied best.

    Raises:
        InputError: the label is a whole ranking, a thumb, or no answer but a number.
    """
    y = float(judgements.y_R[row])
    tied = round(1.0 / y) if y > 0.0 else 0
    shown = len(judgements.responses[row])
    if judgements.kind == "thumbs":
        raise InputError("thumbs up or down is no choice among responses; give pairs")
    if judgements.kind == "ranking":
        raise InputError("a whole ranking is no single label; give the best response only")
    if not 1 <= tied <= shown or np.float32(1.0 / tied) != judgements.y_R[row]:
        # Without its value: what is refused may be told to whoever asked.
        raise InputError("the label of a judgement is no answer, but a number in between")
    order = canonical_order(judgements.responses[row])
    return tuple(sorted(order.index(place) for place in range(tied)))
