"""The length of a text as a feature.

Readers often prefer the longer text, whatever it says, so every feature map has one feature for it.
Words are counted up to a cap, so that no text, however long, moves a feature by more than a known
amount.
"""

import math
from collections.abc import Sequence

import numpy as np

from murmuration.preference.data.judgements import InputError

WORDS_COUNTED = 10_000


def log_words(texts: Sequence[str]) -> np.ndarray:
    """log(1 + number of words) of each text, float32; at most 10,000 words are counted."""
    words = (min(len(text.split()), WORDS_COUNTED) for text in texts)
    # One by one: an array's logarithms may differ in their last bits with their place in it.
    return np.array([math.log1p(count) for count in words], dtype=np.float32)


def check_length_weight(length_weight: float) -> None:
    """Raises InputError if a length feature cannot have this weight."""
    if not (math.isfinite(length_weight) and length_weight >= 0):
        raise InputError(f"length_weight must be a finite number >= 0, not {length_weight}")
