"""States of texts under a frozen network: each by itself, each once, and as fast as that is.

A text's states have the same bits alone and in any company: another user's text must not move them
in their last digit. Three things make it fast all the same.

- Texts of equally many tokens share a batch, without padding (except the shortest). The weights of
  a small network are read from memory once for the batch; for one short text that takes longer than
  computing with them. Whether texts of a batch are isolated is up to the machine's kernels: a row
  of a product may be added up in another order where there are more rows. That depends on shapes
  and not on numbers, so before the first batches random tokens of some shapes are tried out,
  together and alone. Unless all bits are equal, and on a GPU, each text is read alone.
- Each core has batches of its own, on one thread.
- What was computed before is kept on disk (`preference.language.row_cache`), in the folder that
  ``MURMURATION_CACHE`` names, or else in the user's own (``~/.cache/murmuration``); with the
  variable set to nothing, nothing is kept. Files are their owner's alone, hold no text, and are
  believed only if their checksum is right. A name is a digest of the weights, the tokenizer, the
  pooling, the libraries and the processor, and of the text's tokens (in the order and with the
  words that a chat template gave them). States reveal private texts: delete the folder together
  with the texts.

Features are such states, pooled to one vector a text: of encoders (`preference.features.encoders`),
of language models (`preference.features.language_states`), and what the head of a language model
reads (`preference.features.language_head`). What comes out of the layers below the first that LoRA
changes (`preference.language.base.lower_layers`) is kept whole: (tokens · width) numbers in the
network's own type, of SmolLM2-135M in float32 0.24 MB for 106 tokens. Of these a process keeps some
in memory too, and what has no room in either is computed when it is needed.

**A cache of private texts serves their owner only.** Training, and owners who look at their own
texts, read the cache and add to it. A saved reward does neither: it scores any text, and its
response time would reveal whether a text had been trained on.

On a deployed node that folder is on its owner's machine, under the account that computes; it is
never sent. What is found there has the bits that would be computed, so no answer of a node depends
on it, and the guarantee, which is about what nodes answer, does not either. A node's response time
does depend on it, as it depends on the number and length of a node's texts: times are outside the
guarantee, with a cache and without.

Shape suffixes: R texts, B texts in a batch, L tokens, H width of a state.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.data.files.progress import SECONDS, log_private
from murmuration.preference.language.machine import last_digits
from murmuration.preference.language.row_cache import RowCache, key_of, user_folder
from murmuration.privacy.mechanisms.parallel import on_each_core, one_core

#: Bytes on disk of one network's states: pooled, or whole; and of these in memory.
POOLED_ON_DISK, WHOLE_ON_DISK, WHOLE_IN_MEMORY = 256 * 2**20, 2 * 2**30, 512 * 2**20
_FORMAT = "murmuration states 1"
_READ_EACH = 16  # whole texts that are looked up at a time
_TOKENS = 1024  # of a batch: more are hardly faster
_SHORT = 8  # tokens: kernels for few rows are others, so what is shorter is read alone
#: Texts and their tokens that are tried out, but for tokens that the network does not take.
_TRIED = ((2, _SHORT), (9, 11), (31, 33), (3, 131))
#: Texts at a time, below which it is not worth the second that trying out takes: read one by one.
WORTH = 256
_AT_A_TIME = 512  # texts between looks at the clock, at most; of a slow network fewer
_AT_FIRST = 8

Written = Mapping[str, Sequence[Sequence[int]]]


@dataclass
class Pace:
    """The number of texts read by all encoders of a process, and the seconds taken."""

    texts: int = 0
    seconds: float = 0.0
    _told: float = 0.0

    def add(self, texts: int, seconds: float, done: int, total: int) -> None:
        """Count texts that were read, and log now and then how many are ``done``."""
        self.texts += texts
        self.seconds += seconds
        if self.seconds - self._told >= SECONDS:
            self._told = self.seconds
            log_private(f"computing features: {done:,} of {total:,} texts, {self.rate}")

    def since(self, before: "Pace") -> "Pace":
        """The difference to an earlier pace."""
        return Pace(self.texts - before.texts, self.seconds - before.seconds)

    @property
    def rate(self) -> str:
        """The rate in words."""
        rate = self.texts / max(self.seconds, 1e-9)
        return f"{rate:,.0f} texts per second" if rate >= 10 else f"{rate:.2g} texts per second"


pace = Pace()


class FrozenStates:
    """States of texts under a frozen network.

    Args:
        states: gives the states of B texts of equally many tokens, (B, L, H), from what a tokenizer
            makes of them; called by several threads.
        pool: gives what is kept of a text, (H,), from its states, (L, H); None: all of them are.
        dtype: in which they are kept.
        device: where the network runs.
        width: H.
        words: the size of the network's vocabulary.
        limit: the most tokens of a text that it takes.
        terms: the digest of weights and tokenizer, the pooling, and all else that states depend on,
            beside a text's tokens and the machine; empty: no cache is used.
    """

    def __init__(
        self,
        states: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
        pool: Callable[[torch.Tensor], torch.Tensor] | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device,
        width: int,
        words: int,
        limit: int,
        terms: Sequence[str] = (),
    ) -> None:
        self._states, self._pool, self._dtype, self._device = states, pool, dtype, device
        self._width, self._words, self._limit = width, words, limit
        self._terms = terms
        self._in_memory: dict[bytes, torch.Tensor] = {}
        self._bytes = 0  # in memory
        self._prepared: set[bytes] = set()

    def pooled(self, written: Written) -> np.ndarray:
        """The pooled states of R tokenized texts, (R, H) float32; zeros for an empty text."""
        names = names_of(written, range(len(written["input_ids"])))
        row_RH = np.zeros((len(names), self._width), dtype=np.float32)
        places: dict[bytes, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            if written["input_ids"][place]:
                places[name].append(place)
        missing = {name: some[0] for name, some in places.items()}
        for name, row_H in self._found([*places]).items():
            row_RH[places[name]] = row_H
            del missing[name]
        for name, row_H in self._computed(written, missing, keep=True):
            row_RH[places[name]] = row_H
        return row_RH

    def padded(self, written: Written) -> torch.Tensor:
        """The states of R texts, (R, L, H), zero beyond the end of each, on the device."""
        names = names_of(written, range(len(written["input_ids"])))
        lengths = [len(ids) for ids in written["input_ids"]]
        rows = self._found(names)
        missing = {name: place for place, name in enumerate(names) if name not in rows}
        rows |= dict(self._computed(written, missing, keep=False))
        state_RLH = torch.zeros(len(names), max(lengths), self._width, dtype=self._dtype)
        for row, (name, length) in enumerate(zip(names, lengths, strict=True)):
            state_RLH[row, :length] = rows[name].view(length, self._width)
        return state_RLH.to(self._device)

    def prepare(self, written: Written) -> None:
        """Compute what is not kept of some texts and has room, on all cores."""
        places: dict[bytes, int] = {}
        for place, name in enumerate(names_of(written, range(len(written["input_ids"])))):
            if name not in self._prepared:
                places.setdefault(name, place)
        names = [*places]
        for at in range(0, len(names), _READ_EACH):
            for name, row in self._found(names[at : at + _READ_EACH]).items():
                self._remember(name, row)
                del places[name]
        left = max(WHOLE_IN_MEMORY - self._bytes, self._cache.room())
        for name, place in places.copy().items():
            left -= len(written["input_ids"][place]) * self._width * self._dtype.itemsize
            if left < 0:
                del places[name]
        for name, row in self._computed(written, places, keep=True):
            self._remember(name, row)

    def _found(self, names: Sequence[bytes]) -> dict[bytes, torch.Tensor]:
        """The cached rows of these names, each flat."""
        rows = {name: self._in_memory[name] for name in names if name in self._in_memory}
        others = [name for name in names if name not in rows]
        for name, stored in self._cache.find(others).items():
            rows[name] = torch.frombuffer(bytearray(stored), dtype=self._dtype)
        return rows

    def _computed(
        self, written: Written, places: Mapping[bytes, int], *, keep: bool
    ) -> Iterator[tuple[bytes, torch.Tensor]]:
        """Yield the rows of some texts, flat, the longest first; store on disk those that are
        finite, while there is room.
        """
        name_of, done = {place: name for name, place in places.items()}, 0
        try:
            for batches in self._parts(written, [*name_of]):
                begun, part = time.monotonic(), [text for batch in batches for text in batch]
                rows = self._rows(written, batches)
                done += len(part)
                pace.add(len(part), time.monotonic() - begun, done, len(places))
                for text, values in zip(part, rows, strict=True):
                    row = torch.from_numpy(values).to(self._dtype)
                    stored = row.view(torch.uint8).numpy()
                    if keep and self._cache.room() >= len(stored) and np.isfinite(values).all():
                        self._cache.add({name_of[text]: stored.tobytes()})
                    yield name_of[text], row
        finally:
            self._cache.write()

    def _remember(self, name: bytes, row: torch.Tensor) -> None:
        self._prepared.add(name)
        size = row.numel() * self._dtype.itemsize
        if self._bytes + size <= WHOLE_IN_MEMORY:
            self._in_memory[name] = row.clone()  # of a batch's memory
            self._bytes += size

    @cached_property
    def _cache(self) -> RowCache:
        kind = "pooled" if self._pool else "whole"
        terms = [kind, *self._terms, str(self._width), *last_digits(self._device, 1)]
        folder = user_folder() if self._terms else None
        most = POOLED_ON_DISK if self._pool else WHOLE_ON_DISK
        return RowCache(folder, key_of(_FORMAT, terms), "states", most)

    def _parts(self, written: Written, texts: Sequence[int]) -> Iterator[list[list[int]]]:
        """Yield texts in batches, the longest first, several batches at a time that take some
        seconds together.
        """
        together = self._device.type == "cpu" and len(texts) >= WORTH and self.isolates
        part: list[list[int]] = []
        most, begun = _AT_FIRST, time.monotonic()
        for batch in batches_of(written, texts, _TOKENS if together else 0):
            part.append(batch)
            if (count := sum(map(len, part))) >= most:
                yield part
                seconds, begun = time.monotonic() - begun, time.monotonic()
                most = int(min(_AT_A_TIME, max(_AT_FIRST, count * SECONDS / max(seconds, 1e-9))))
                part = []
        if part:
            yield part

    def _rows(self, written: Written, batches: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The rows of the batches' texts, in order."""

        def piece(number: int) -> np.ndarray:
            texts = batches[number]
            return self.together({n: [rows[t] for t in texts] for n, rows in written.items()})

        if self._device.type == "cpu":
            result = on_each_core(piece, len(batches))
        else:
            with one_core():
                result = [piece(number) for number in range(len(batches))]
        return [row for rows in result for row in rows]

    def together(self, written: Written) -> np.ndarray:
        """The rows of B texts of equally many tokens, read in one batch: (B, H), or (B, L·H)
        without pooling.
        """
        inputs = {name: torch.tensor(rows).to(self._device) for name, rows in written.items()}
        with torch.no_grad():  # a setting of the thread
            states_BLH = self._states(inputs).float()
            if self._pool is None:
                return states_BLH.flatten(1).cpu().numpy()
            # Each by itself: a mean over one text of a batch may be added up in another order.
            rows = [self._pool(states_LH.contiguous()) for states_LH in states_BLH]
            return torch.stack(rows).cpu().numpy()

    @cached_property
    def isolates(self) -> bool:
        """True if texts in a batch get the same bits as alone on this machine, as measured."""
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
    """Batches of texts of equally many tokens, the longest first; at most ``tokens`` tokens in a
    batch, or one text, and short ones alone.
    """
    of_length: dict[int, list[int]] = defaultdict(list)
    for text in texts:
        of_length[len(written["input_ids"][text])].append(text)
    result = []
    for length in sorted(of_length, reverse=True):
        same, each = of_length[length], max(1, tokens // length if length >= _SHORT else 1)
        result += [same[at : at + each] for at in range(0, len(same), each)]
    return result


def names_of(written: Written, texts: Iterable[int]) -> list[bytes]:
    """The cache key of each text: a digest of all that the network reads of it."""
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
