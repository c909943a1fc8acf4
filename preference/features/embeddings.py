"""Pooled states of texts under a frozen network: each by itself, each once, and as fast as that is.

A text's embedding has the same bits alone and in any company: another user's text must not move it
in its last digit. Three things make it fast all the same.

- Texts of equally many tokens share a batch, without padding (but for the shortest). The weights
  of a small network are read from memory once for the batch; for one short text that takes longer
  than computing with them. Whether texts of a batch are isolated is up to the machine's kernels: a
  row of a product may be added up in another order where there are more rows. That depends on
  shapes and not on numbers, so before the first batches random tokens of some shapes are tried out,
  together and alone. Unless all bits are equal, and on a GPU, each text is read alone.
- Each core has batches of its own, on one thread.
- What was computed before is kept on disk (`preference.language.row_cache`), in the folder that
  ``MURMURATION_CACHE`` names, or else in the user's own (``~/.cache/murmuration``); with the
  variable set to nothing, nothing is kept. Files are their owner's alone, hold no text, and are
  believed only if their checksum is right. A name is a digest of the weights, the tokenizer, the
  pooling, the libraries and the processor, and of the text's tokens (in the order and with the
  words that a chat template gave them). Embeddings tell of private texts: whoever deletes these
  deletes the folder, too.

Encoders' embeddings are computed so (`preference.features.encoders`), and the states that the head
of a language model reads (`preference.features.language_head`).

On a deployed node that folder is on its owner's machine, under the account that computes; it is
never sent. What is found there has the bits that would be computed, so no answer of a node depends
on it, and the guarantee, which is about what nodes answer, does not either. How long a node takes
does depend on it, as it depends on how many texts a node has, and how long they are: times are
outside the guarantee, with a cache and without.

Shape suffixes: R texts, B texts in a batch, L tokens, D numbers.
"""

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.escaping import get_logger
from murmuration.preference.language.machine import last_digits
from murmuration.preference.language.row_cache import RowCache, key_of, user_folder
from murmuration.privacy.mechanisms.parallel import on_each_core, one_core

#: Who wants to know how fast texts are read, sets a handler here.
log = get_logger("murmuration.features")
log.setLevel(logging.INFO)

_FORMAT = "murmuration embeddings 2"
_MOST = 256 * 2**20  # bytes on disk for one encoder
_TOKENS = 1024  # of a batch: more are hardly faster
_SHORT = 8  # tokens: kernels for few rows are others, so what is shorter is read alone
#: Texts and their tokens that are tried out, but for tokens that the network does not take.
_TRIED = ((2, _SHORT), (9, 11), (31, 33), (3, 131))
#: Texts at a time, below which it is not worth the second that trying out takes: read one by one.
WORTH = 256
_AT_A_TIME = 512  # texts between looks at the clock, at most; of a slow network fewer
_AT_FIRST = 8
_SECONDS = 5.0  # from one report to the next

Written = Mapping[str, Sequence[Sequence[int]]]


@dataclass
class Pace:
    """Of all encoders of a process: texts that they read, in how many seconds."""

    texts: int = 0
    seconds: float = 0.0
    _told: float = 0.0

    def add(self, texts: int, seconds: float, done: int, total: int) -> None:
        """Count texts that were read, and tell the log now and then how many are ``done``."""
        self.texts += texts
        self.seconds += seconds
        if self.seconds - self._told >= _SECONDS:
            self._told = self.seconds
            log.info("computing features: %s of %s texts, %s", f"{done:,}", f"{total:,}", self.rate)

    def since(self, before: "Pace") -> "Pace":
        """Return what came on top."""
        return Pace(self.texts - before.texts, self.seconds - before.seconds)

    @property
    def rate(self) -> str:
        """In words."""
        rate = self.texts / max(self.seconds, 1e-9)
        return f"{rate:,.0f} texts per second" if rate >= 10 else f"{rate:.2g} texts per second"


pace = Pace()


class Embeddings:
    """Embeddings of texts by a network.

    Args:
        states: gives the states of B texts of equally many tokens, (B, L, D), from what a tokenizer
            makes of them; called by several threads.
        pool: gives a text's embedding, (D,), from its states, (L, D).
        device: where the network runs.
        width: D.
        words: how many tokens the network knows.
        limit: the most tokens of a text that it takes.
        terms: which weights and tokenizer these are, the pooling, and all else that embeddings
            depend on, beside a text's tokens and the machine; empty: it is not known, nothing is
            kept.
    """

    def __init__(
        self,
        states: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
        pool: Callable[[torch.Tensor], torch.Tensor],
        *,
        device: torch.device,
        width: int,
        words: int,
        limit: int,
        terms: Sequence[str] = (),
    ) -> None:
        self._states, self._pool, self._device = states, pool, device
        self._width, self._words, self._limit = width, words, limit
        self._terms = terms

    def __call__(self, written: Written) -> np.ndarray:
        """Embeddings of R texts, (R, D) float32, from what a tokenizer makes of each; zeros where
        there is nothing to read."""
        names = names_of(written, range(len(written["input_ids"])))
        row_RD = np.zeros((len(names), self._width), dtype=np.float32)
        places: dict[bytes, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            if written["input_ids"][place]:
                places[name].append(place)
        known = self._cache.find([*places])
        for name, row in known.items():
            row_RD[places[name]] = np.frombuffer(row, "<f4")
        missing = [places[name][0] for name in places if name not in known]
        try:
            for text, row_D in self.computed(written, missing):
                row_RD[places[names[text]]] = row_D
                if np.isfinite(row_D).all():
                    self._cache.add({names[text]: row_D.astype("<f4").tobytes()})
        finally:
            self._cache.write()
        return row_RD

    def computed(self, written: Written, texts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield some texts, the longest first, each with its embedding: what ``pool`` gives, of
        whatever length, in float32. Nothing is looked up, or kept."""
        done = 0
        for some in self._parts(written, texts):
            begun, part = time.monotonic(), [text for batch in some for text in batch]
            rows = self._rows(written, some)
            done += len(part)
            pace.add(len(part), time.monotonic() - begun, done, len(texts))
            yield from zip(part, rows, strict=True)

    @cached_property
    def _cache(self) -> RowCache:
        terms = [*self._terms, str(self._width), *last_digits(self._device, 1)]
        folder = user_folder() if self._terms else None
        return RowCache(folder, key_of(_FORMAT, terms), "embeddings", _MOST)

    def _parts(self, written: Written, texts: Sequence[int]) -> Iterator[list[list[int]]]:
        """Texts in batches, the longest first, so many batches at a time as take some seconds."""
        together = self._device.type == "cpu" and len(texts) >= WORTH and self.isolates
        part: list[list[int]] = []
        most, begun = _AT_FIRST, time.monotonic()
        for batch in batches_of(written, texts, _TOKENS if together else 0):
            part.append(batch)
            if (count := sum(map(len, part))) >= most:
                yield part
                seconds, begun = time.monotonic() - begun, time.monotonic()
                most = int(min(_AT_A_TIME, max(_AT_FIRST, count * _SECONDS / max(seconds, 1e-9))))
                part = []
        if part:
            yield part

    def _rows(self, written: Written, batches: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Embeddings of the batches' texts, one after the other."""

        def piece(number: int) -> np.ndarray:
            texts = batches[number]
            return self.together({n: [rows[t] for t in texts] for n, rows in written.items()})

        if self._device.type == "cpu":
            result = on_each_core(piece, len(batches))
        else:
            with one_core():
                result = [piece(number) for number in range(len(batches))]
        return [row_D for rows_BD in result for row_D in rows_BD]

    def together(self, written: Written) -> np.ndarray:
        """Embeddings of B texts of equally many tokens, read in one batch: (B, D)."""
        inputs = {name: torch.tensor(rows).to(self._device) for name, rows in written.items()}
        with torch.no_grad():  # a setting of the thread
            states_BLD = self._states(inputs).float()
            # Each by itself: a mean over one text of a batch may be added up in another order.
            rows = [self._pool(states_LD.contiguous()) for states_LD in states_BLD]
            return torch.stack(rows).cpu().numpy()

    @cached_property
    def isolates(self) -> bool:
        """Return whether texts of a batch have the bits here that they have alone, as tried out."""
        generator = torch.Generator().manual_seed(0)
        with one_core():
            for texts, tokens in _TRIED:
                size = (texts, min(tokens, self._limit))
                ids = torch.randint(0, self._words, size, generator=generator).tolist()
                written = {"input_ids": ids, "attention_mask": [[1] * size[1]] * texts}
                alone = [
                    self.together({name: rows[text : text + 1] for name, rows in written.items()})
                    for text in range(texts)
                ]
                if not np.array_equal(self.together(written), np.concatenate(alone)):
                    return False
        return True


def batches_of(written: Written, texts: Iterable[int], tokens: int) -> list[list[int]]:
    """Texts of equally many tokens together, the longest first; at most so many ``tokens`` in a
    batch, or one text, and short ones alone."""
    of_length: dict[int, list[int]] = defaultdict(list)
    for text in texts:
        of_length[len(written["input_ids"][text])].append(text)
    result = []
    for length in sorted(of_length, reverse=True):
        same, each = of_length[length], max(1, tokens // length if length >= _SHORT else 1)
        result += [same[at : at + each] for at in range(0, len(same), each)]
    return result


def names_of(written: Written, texts: Iterable[int]) -> list[bytes]:
    """Return what each text is kept under: a digest of all that the network reads of it."""
    columns = sorted(written)
    result = []
    for text in texts:
        digest = hashlib.sha256()
        for name in columns:
            values = np.asarray(written[name][text], dtype="<i8")
            digest.update(f"{name} {len(values)} ".encode())
            digest.update(values.tobytes())
        result.append(digest.digest())
    return result
