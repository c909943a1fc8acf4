"""Likelihoods under a reference that were computed before, from the folder that holds tokens.

What a text's log-likelihood is under the model that a policy began from stays the same from run to
run. Where `token_cache.FOLDER` names a folder it is kept there, too, as privately as tokens: it
tells of a user's text.

A likelihood is kept (`kept_rows`) under a digest of all that it was computed from: the network
(`LanguageBase.reference_terms`), and the tokens of each text in its batch, which for users is that
text alone (unless they share batches: then another text makes other batches). So it has the same
bits whether it is found or computed, and whatever else the folder holds; texts that came or went,
or stand in other files, leave what is known of the others.

Legend: R texts in a batch.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from murmuration.preference.language.kept_rows import KeptRows, name_of
from murmuration.preference.language.token_cache import FOLDER, key_of
from murmuration.preference.language.tokens import Tokens

_FORMAT = "murmuration references 1"


class References:
    """What is known of texts' likelihoods under one network.

    Args:
        folder: where it lies, if anywhere.
        terms: all that they depend on beside tokens.
    """

    def __init__(self, folder: Path | None = None, terms: str = "") -> None:
        key = key_of(_FORMAT, [terms])
        self._kept = None if folder is None else KeptRows(folder, key, "references")

    def of(
        self,
        tokens: Tokens,
        batches: Iterable[np.ndarray],
        compute: Callable[[np.ndarray], np.ndarray],
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches of texts with their log-likelihoods, (R,) each; by ``compute`` where these are
        not known, and kept. NaN is not.

        Where nothing can be read or written all are computed, and the log told.
        """
        kept = self._kept
        if kept is None:
            yield from ((some_R, compute(some_R)) for some_R in batches)
            return
        looked = False
        try:
            for some_R in batches:
                if not looked:
                    kept.look()
                    looked = True
                names = _names(tokens, some_R)
                log_R, known_R = kept.find(names)
                if not known_R.all():
                    log_R = compute(some_R)
                    kept.add(names, log_R)
                yield some_R, log_R
        finally:
            kept.write()


def references(terms: str) -> References:
    """Return what is known under a network of these terms, in the folder that the environment
    names: one for all of a process."""
    named = os.environ.get(FOLDER)
    return _shared(Path(named), terms) if named else References()


@lru_cache(maxsize=4)
def _shared(folder: Path, terms: str) -> References:
    return References(folder, terms)


def _names(tokens: Tokens, texts_R: np.ndarray) -> list[bytes]:
    """Return what each text of a batch is kept under: a digest of the whole batch, and its place
    there."""
    batch = hashlib.sha256()
    for text in texts_R.tolist():
        first, end = int(tokens.start_T[text]), int(tokens.start_T[text + 1])
        batch.update(struct.pack("<qq", end - first, int(tokens.second_T[text])))
        batch.update(tokens.ids[first:end].numpy().astype("<i4").tobytes())
    whole = batch.digest()
    return [
        name_of(hashlib.sha256(whole + struct.pack("<q", place))) for place in range(len(texts_R))
    ]
