"""The length of a text as a feature.

Readers often prefer the longer text, whatever it says, so feature maps have one feature for it. A
reward that pays for length without end is gamed at once by any optimizer: by default the feature is
bounded and centred. It is tanh(log((1 + words) / 25)): 0 for 24 words, ±0.6 for half and twice as
many, 0.88 for 100, and between −1 and 1 whatever the text; of 200 words or of 5,000 it is the same
to within 0.02. Its constants are fixed and public. They contain nothing of any data.
"""

import math
from collections.abc import Sequence

import numpy as np

from murmuration.preference.choices import LENGTHS
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.words import words_of

#: One more than the words for which the bounded feature is 0.
TYPICAL = 25
#: At most so many are counted.
WORDS_COUNTED = 10_000


def length_feature(texts: Sequence[str], length: str, weight: float) -> np.ndarray:
    """``weight`` times how a setting, one of ``choices.LENGTHS``, counts length: (R,) float32.

    - ``bounded``: tanh(log((1 + words) / 25)), within [−1, 1];
    - ``none``: 0;
    - ``log``: log(1 + words), which hardly ends.
    """
    # One by one: an array's logarithms may differ in their last bits with their place in it.
    words_R = [min(len(words_of(text)), WORDS_COUNTED) for text in texts]
    if length == "bounded":  # tanh(log x) = (x² − 1) / (x² + 1)
        squares = [((1 + words) / TYPICAL) ** 2 for words in words_R]
        result = [(square - 1.0) / (square + 1.0) for square in squares]
    elif length == "log":
        result = [math.log1p(words) for words in words_R]
    else:
        result = [0.0] * len(words_R)
    return np.float32(weight) * np.array(result, dtype=np.float32)


def check_length(length: str, weight: float) -> None:
    """Raises InputError for another way to count length, or a weight that no feature can have."""
    if length not in LENGTHS:
        raise InputError(f"--length must be one of {', '.join(LENGTHS)}; got {length!r}")
    if not (math.isfinite(weight) and weight >= 0):
        raise InputError(f"length_weight must be a finite number >= 0, not {weight}")
