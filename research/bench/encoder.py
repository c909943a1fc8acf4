"""The speed of an encoder: batched over one text at a time; and of reading its cache.

All three ways go through the same texts in turn, so that whatever else the machine does meets them
alike; the figures are medians, the ratio of ratios. Texts are random words, so no two are alike.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np

from murmuration.preference.features.encoders import EncoderFeatures
from murmuration.preference.features.frozen_states import WORTH
from murmuration.preference.language.row_cache import FOLDER
from murmuration.research.bench.setting import timed

#: Words of a text, about; each text has up to a fifth more or less.
WORDS = (10, 25, 60, 150)
_KNOWN = ("save", "spend", "later", "now", "bank", "loan", "trip", "rent", "gift", "debt")


def measure_encoder(path: str, words: int, texts: int, repetitions: int) -> dict[str, Any]:
    """The row of texts of about ``words`` words, read by an encoder.

    Raises:
        InputError: it cannot be loaded.
    """
    with _cache(""):
        reading = EncoderFeatures(path)
        _read(reading, _texts(0, words, WORTH), WORTH)  # tries out whether texts may share batches
        rows = [_row(path, reading, _texts(n, words, texts)) for n in range(1, 1 + repetitions)]
    alone, together, kept, same = zip(*rows, strict=True)
    return {
        "words": words,
        "texts": texts,
        "alone_texts_per_second": median(texts / seconds for seconds in alone),
        "texts_per_second": median(texts / seconds for seconds in together),
        "ratio": median(one / many for one, many in zip(alone, together, strict=True)),
        "kept_texts_per_second": median(texts / seconds for seconds in kept),
        "same_bits": "yes" if all(same) else "no",
    }


def _row(path: str, reading: EncoderFeatures, said: list[str]) -> tuple[float, float, float, bool]:
    """Seconds alone, together and from the cache; whether all gave the same bits."""
    # Fewer than WORTH at a time are read one by one.
    alone_RD, alone = timed(lambda: _read(reading, said, WORTH - 1))
    together_RD, together = timed(lambda: _read(reading, said, len(said)))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _cache(folder):
        keeping = EncoderFeatures(path)
        _read(keeping, said, len(said))
        kept_RD, kept = timed(lambda: _read(keeping, said, len(said)))
    same = np.array_equal(alone_RD, together_RD) and np.array_equal(alone_RD, kept_RD)
    return alone, together, kept, same


def _read(features: EncoderFeatures, said: list[str], most: int) -> np.ndarray:
    parts = [said[at : at + most] for at in range(0, len(said), most)]
    return np.concatenate([features(["Spend or save?"] * len(part), part) for part in parts])


def _texts(seed: int, words: int, texts: int) -> list[str]:
    generator = np.random.default_rng([seed, words])
    fifth = max(1, words // 5)
    lengths = generator.integers(words - fifth, words + fifth, texts, endpoint=True)
    return [" ".join([*generator.choice(_KNOWN, n), str(at)]) for at, n in enumerate(lengths)]


@contextmanager
def _cache(folder: str) -> Iterator[None]:
    """Use this folder as the cache inside; no cache if it is empty."""
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = folder
    try:
        yield
    finally:
        del os.environ[FOLDER]
        if before is not None:
            os.environ[FOLDER] = before
