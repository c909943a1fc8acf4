"""Likelihoods under a reference that were computed before.

The reference of a policy does not move while it is trained, nor does the text of a judgement: what
it says of a text is the same from round to round, and from run to run. Where the environment names
a folder it is kept there (`row_cache`): it reveals a user's text.

A likelihood is kept under a digest of all that it was computed from: the network
(`LanguageBase.reference_terms`), and the tokens of each text in its batch, which for users is that
text alone (unless they share batches: then another text makes other batches).

Legend: R texts in a batch.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from murmuration.preference.language.row_cache import RowCache, key_of, named_folder
from murmuration.preference.language.tokens import Tokens

_FORMAT = "murmuration references 2"


class References:
    """The cache of texts' likelihoods under one network.

    Args:
        folder: of the cache, if any.
        terms: all that they depend on beside tokens.
    """

    def __init__(self, folder: Path | None = None, terms: str = "") -> None:
        self._cache = RowCache(folder, key_of(_FORMAT, [terms]), "references")

    def of(
        self,
        tokens: Tokens,
        batches: Iterable[np.ndarray],
        compute: Callable[[np.ndarray], np.ndarray],
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of texts with their log-likelihoods, (R,) each.

        Those not in the cache are computed by ``compute``, and cached unless they are NaN.
        """
        if not self._cache.is_kept:
            yield from ((some_R, compute(some_R)) for some_R in batches)
            return
        named = [(some_R, _names(tokens, some_R)) for some_R in batches]
        known = self._cache.find([name for _, names in named for name in names])
        try:
            for some_R, names in named:
                if all(name in known for name in names):
                    yield some_R, np.frombuffer(b"".join(known[name] for name in names))
                    continue
                log_R = compute(some_R)
                rows = zip(names, log_R, strict=True)
                self._cache.add({name: log.tobytes() for name, log in rows if not np.isnan(log)})
                yield some_R, log_R
        finally:
            self._cache.write()


def references(terms: str) -> References:
    """The cache for a network of these terms, in the folder that the environment names; one for the
    whole process.
    """
    folder = named_folder()
    return References() if folder is None else _shared(folder, terms)


@lru_cache(maxsize=4)
def _shared(folder: Path, terms: str) -> References:
    return References(folder, terms)


def _names(tokens: Tokens, texts_R: np.ndarray) -> list[bytes]:
    """The cache key of each text of a batch: a digest of the whole batch, and its place there."""
    batch = hashlib.sha256()
    for text in texts_R.tolist():
        first, end = int(tokens.start_T[text]), int(tokens.start_T[text + 1])
        batch.update(struct.pack("<qq", end - first, int(tokens.second_T[text])))
        batch.update(tokens.ids[first:end].numpy().astype("<i4").tobytes())
    whole = batch.digest()
    return [
        hashlib.sha256(whole + struct.pack("<q", place)).digest() for place in range(len(texts_R))
    ]
