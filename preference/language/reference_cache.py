"""Likelihoods under a reference that were computed before, from the folder that holds tokens.

What a text's log-likelihood is under the model that a policy began from stays the same from run to
run. Where `token_cache.FOLDER` names a folder it is kept there, too, as privately as tokens: it
tells of a user's text.

A likelihood is kept under a digest of all that it was computed from: the network
(`LanguageBase.reference_terms`), and the tokens of each text in its batch, which for users is that
text alone (unless they share batches: then another text makes other batches). So it has the same
bits whether it is found or computed, and whatever else the folder holds; texts that came or went,
or stand in other files, leave what is known of the others.

A file is digests, ascending, and likelihoods behind a SHA-256 of them and of the network; it is
written whole, under a name that no other has, and never changed. So several processes need no lock,
and whoever is killed loses what was not written yet; what they leave half written `token_cache`
deletes in a later run. A file that is damaged is deleted, and never believed. Files are read, not
mapped: one that another process cuts would end this one. When there are many, a process puts what
it has read into one, and deletes those.

Legend: N likelihoods, R texts in a batch.
"""

import hashlib
import logging
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from murmuration.preference.language.token_cache import FOLDER, key_of, written_whole
from murmuration.preference.language.tokens import Tokens

_FORMAT = "murmuration references 1"
_NAME, _LOG = np.dtype("S32"), np.dtype("<f8")
_CHECK = hashlib.sha256().digest_size
_AT_A_TIME = 1024  # likelihoods that are computed before they are written
_MANY = 16  # files
_log = logging.getLogger("murmuration")

_Rows = tuple[np.ndarray, np.ndarray]  # names of likelihoods, ascending, and these: (N,) each


class References:
    """What is known of texts' likelihoods under one network.

    Args:
        folder: where it lies, if anywhere.
        terms: all that they depend on beside tokens.
    """

    def __init__(self, folder: Path | None = None, terms: str = "") -> None:
        self._folder, self._key = folder, key_of(_FORMAT, [terms])
        self._files: set[Path] = set()  # whose likelihoods are among those below
        self._known: list[_Rows] = []
        self._new: dict[bytes, float] = {}
        self._told = False

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
        if self._folder is None:
            yield from ((some_R, compute(some_R)) for some_R in batches)
            return
        looked = False
        try:
            for some_R in batches:
                if not looked:
                    self._look()
                    looked = True
                names = _names(tokens, some_R)
                log_R = self._found(names)
                if log_R is None:
                    log_R = compute(some_R)
                    if not np.isnan(log_R).any():
                        self._new.update(zip(names, log_R.tolist(), strict=True))
                yield some_R, log_R
                if len(self._new) >= _AT_A_TIME:
                    self._write()
        finally:
            self._write()

    def _found(self, names: Sequence[bytes]) -> np.ndarray | None:
        """Of all of a batch, or None."""
        found = [self._one(name) for name in names]
        return None if None in found else np.array(found, dtype=np.float64)

    def _one(self, name: bytes) -> float | None:
        if name in self._new:
            return self._new[name]
        for name_N, log_N in self._known:
            at = int(np.searchsorted(name_N, name))
            if at < len(name_N) and name_N[at] == name:
                return float(log_N[at])
        return None

    def _look(self) -> None:
        """Read files that were not there before."""
        assert self._folder is not None
        for path in {*self._folder.glob(f"{self._key}.*.references")} - self._files:
            try:
                self._known.append(self._rows(path.read_bytes()))
            except FileNotFoundError:
                continue  # another process has put it together with others
            except (OSError, ValueError) as error:
                _log.warning("%s cannot be used (%s): references are computed again", path, error)
                if isinstance(error, ValueError):
                    with suppress(OSError):
                        path.unlink()
            self._files.add(path)

    def _write(self) -> None:
        """A file of what is new; of everything, if there are many."""
        if not self._new or self._folder is None:
            return
        parts, old = [_rows([*self._new], [*self._new.values()])], []
        if len(self._files) >= _MANY:
            parts, self._known, old = [*parts, *self._known], [], [*self._files]
        name_N, log_N = _rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self._known.append((name_N, log_N))
        self._new = {}
        body = name_N.tobytes() + log_N.tobytes()
        path = self._folder / f"{self._key}.{secrets.token_hex(8)}.references"
        try:
            with written_whole(path) as file:
                file.write_bytes(self._check(body) + body)
        except OSError as error:
            if not self._told:
                said = "%s=%s: references cannot be kept there (%s)"
                _log.warning(said, FOLDER, self._folder, error)
            self._told = True
            return
        self._files.add(path)
        for each in old:
            self._files.remove(each)
            with suppress(OSError):
                each.unlink()

    def _rows(self, whole: bytes) -> _Rows:
        """Of a file; ValueError if it is not as it was written."""
        check, body = whole[:_CHECK], whole[_CHECK:]
        if check != self._check(body):
            raise ValueError("it is damaged")
        rows = len(body) // (_NAME.itemsize + _LOG.itemsize)
        return (
            np.frombuffer(body, _NAME, rows),
            np.frombuffer(body, _LOG, rows, rows * _NAME.itemsize),
        )

    def _check(self, body: bytes) -> bytes:
        return hashlib.sha256(self._key.encode() + body).digest()


def _rows(names: Sequence[bytes] | np.ndarray, logs: Sequence[float] | np.ndarray) -> _Rows:
    """Ascending, each name once."""
    name_N, first_N = np.unique(np.asarray(names, _NAME), return_index=True)
    return name_N, np.asarray(logs, _LOG)[first_N]


def references(terms: str) -> References:
    """What is known under a network of these terms, in the folder that the environment names: one
    for all of a process."""
    named = os.environ.get(FOLDER)
    return _shared(Path(named), terms) if named else References()


@lru_cache(maxsize=4)
def _shared(folder: Path, terms: str) -> References:
    return References(folder, terms)


def _names(tokens: Tokens, texts_R: np.ndarray) -> list[bytes]:
    """What each text of a batch is kept under: a digest of the whole batch, and its place there."""
    batch = hashlib.sha256()
    for text in texts_R.tolist():
        first, end = int(tokens.start_T[text]), int(tokens.start_T[text + 1])
        batch.update(struct.pack("<qq", end - first, int(tokens.second_T[text])))
        batch.update(tokens.ids[first:end].numpy().astype("<i4").tobytes())
    whole = batch.digest()
    return [
        hashlib.sha256(whole + struct.pack("<q", place)).hexdigest()[: _NAME.itemsize].encode()
        for place in range(len(texts_R))
    ]
