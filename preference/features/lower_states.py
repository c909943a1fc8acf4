"""States below the first trained layer of a language model: of each text by itself, once.

Where LoRA changes a network's last layers alone, what comes out of those below never changes: a
text's states there are computed once, and each step begins at them. They are computed as all
embeddings are (`preference.features.embeddings`), so they have the same bits whatever other texts
there are, in this process or another; and are found again whether computed or read.

A text's states are (tokens · width) numbers in the network's own type: of SmolLM2-135M in float32
0.24 MB for 106 tokens. A process keeps at most ``IN_MEMORY`` bytes of them, and the folder that
``MURMURATION_CACHE`` names (or else the user's own, as for embeddings) at most ``ON_DISK`` for one
network and layer. What has no room in either is computed when it is needed. They tell of private
texts: whoever deletes these deletes the folder, too.

How a network begins at its states: its lower blocks hand on what they are given, and the first
trained one is given the states in its place. Embeddings of tokens, masks and rotations are made as
ever, so no architecture needs code of its own. Whether one can be entered so is tried out.

Shape suffixes: R texts, L tokens, H width of a state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import torch

from murmuration.preference.features.embeddings import Embeddings, Written, names_of
from murmuration.preference.language.machine import last_digits
from murmuration.preference.language.row_cache import RowCache, key_of, user_folder

#: Bytes of states that a process keeps, and a folder, for one network and layer.
IN_MEMORY, ON_DISK = 512 * 2**20, 2 * 2**30
_FORMAT = "murmuration lower states 1"
_WRITE_EACH = 32 * 2**20  # bytes that are computed before they are written
_READ_EACH = 16  # texts that are looked up at a time


class _ReachedError(Exception):
    """The first trained layer: what follows need not be computed."""


class LowerLayers:
    """The blocks of a network below the first trained one, which can be left out.

    Args:
        blocks: of the network, in order.
        first: the first trained one, at least 1.
    """

    def __init__(self, blocks: Sequence[torch.nn.Module], first: int) -> None:
        self.first = first
        self._entered: ContextVar[torch.Tensor | None] = ContextVar("entered", default=None)
        self._reached: ContextVar[list[torch.Tensor] | None] = ContextVar("reached", default=None)
        self._noted: ContextVar[list[torch.Tensor] | None] = ContextVar("noted", default=None)
        self._gives_tuple = False
        for block in blocks[:first]:
            block.forward = partial(self._forward, block.forward)  # type: ignore[method-assign]
        blocks[first].register_forward_pre_hook(self._before_first, with_kwargs=True)

    def states(self, network: Callable[..., object], inputs: Mapping[str, Any]) -> torch.Tensor:
        """Return what the first trained block is given of texts, (R, L, H). Several threads may ask
        at a time."""
        states: list[torch.Tensor] = []
        before = self._reached.set(states)  # of this thread
        try:
            network(**inputs)
        except _ReachedError:
            pass
        finally:
            self._reached.reset(before)
        return states[0].detach()

    @contextmanager
    def entered(self, state_RLH: torch.Tensor) -> Iterator[None]:
        """Within, the network begins at these states of the texts that it is called with."""
        before = self._entered.set(state_RLH)
        try:
            yield
        finally:
            self._entered.reset(before)

    @contextmanager
    def noting(self) -> Iterator[list[torch.Tensor]]:
        """Within, what the first trained block is given, call by call, is put into this list."""
        noted: list[torch.Tensor] = []
        before = self._noted.set(noted)
        try:
            yield noted
        finally:
            self._noted.reset(before)

    def can_be_entered(self, network: Callable[..., Any], inputs: Mapping[str, Any]) -> bool:
        """Return whether the network says the same of texts, bit for bit, begun at their states."""
        with torch.no_grad():
            whole = network(**inputs)[0]
            try:
                with self.entered(self.states(network, inputs)):
                    return torch.equal(network(**inputs)[0], whole)
            except (IndexError, KeyError, TypeError, ValueError, RuntimeError):
                return False  # blocks that are called otherwise, or give more

    def _forward(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A lower block: as ever, or handing on what it is given."""
        if self._entered.get() is None:
            result = forward(*args, **kwargs)
            self._gives_tuple = isinstance(result, tuple)
            return result
        state_RLH = args[0] if args else kwargs["hidden_states"]
        return (state_RLH,) if self._gives_tuple else state_RLH

    def _before_first(self, _: object, args: tuple, kwargs: dict[str, Any]) -> Any:
        if (reached := self._reached.get()) is not None:
            reached.append(args[0] if args else kwargs["hidden_states"])
            raise _ReachedError
        if (noted := self._noted.get()) is not None:
            noted.append(args[0] if args else kwargs["hidden_states"])
        if (state_RLH := self._entered.get()) is None:
            return None
        if args:
            return (state_RLH, *args[1:]), kwargs
        return args, kwargs | {"hidden_states": state_RLH}


class LowerStates:
    """States of texts below the first trained layer.

    Args:
        states: gives those of B texts of equally many tokens, (B, L, H); called by several threads.
        device: where the network runs.
        dtype: what it computes in.
        width: H.
        words, limit, terms: as of `Embeddings`.
    """

    def __init__(
        self,
        states: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
        width: int,
        words: int,
        limit: int,
        terms: Sequence[str],
    ) -> None:
        self._embeddings = Embeddings(
            states,
            lambda states_LH: states_LH.reshape(-1),
            device=device,
            width=width,
            words=words,
            limit=limit,
        )
        self._device, self._dtype, self._width = device, dtype, width
        key = key_of(_FORMAT, [*terms, *last_digits(device, 1)])
        self._cache = RowCache(user_folder(), key, "states", ON_DISK)
        self._in_memory: dict[bytes, torch.Tensor] = {}
        self._on_disk: set[bytes] = set()
        self._bytes = 0

    def prepare(self, written: Written) -> None:
        """Compute what is not kept of some texts and has room, on all cores.

        ``written`` is what a tokenizer makes of them.
        """
        places: dict[bytes, int] = {}
        for place, name in enumerate(names_of(written, range(len(written["input_ids"])))):
            if name not in self._in_memory and name not in self._on_disk:
                places.setdefault(name, place)
        names = [*places]
        for at in range(0, len(names), _READ_EACH):
            for name, row in self._cache.find(names[at : at + _READ_EACH]).items():
                self._on_disk.add(name)
                self._remember(name, row)
                del places[name]
        name_of = {place: name for name, place in places.items()}
        pending = 0
        try:
            for place, row in self._embeddings.computed(written, self._with_room(written, name_of)):
                name, stored = name_of[place], self._stored(row)
                self._remember(name, stored)
                if self._cache.room() >= len(stored):
                    self._cache.add({name: stored})
                    self._on_disk.add(name)
                    pending += len(stored)
                if pending >= _WRITE_EACH:
                    self._cache.write()
                    pending = 0
        finally:
            self._cache.write()

    def __call__(self, written: Written) -> torch.Tensor:
        """Return the states of R texts, (R, L, H), zero beyond the end of each, on the device."""
        names = names_of(written, range(len(written["input_ids"])))
        lengths = [len(ids) for ids in written["input_ids"]]
        there = {name: self._in_memory[name] for name in names if name in self._in_memory}
        missing = {name: place for place, name in enumerate(names) if name not in there}
        for name, row in self._cache.find([*missing]).items():
            there[name] = self._loaded(row)
            del missing[name]
        name_of = {place: name for name, place in missing.items()}
        for place, row in self._embeddings.computed(written, [*name_of]):
            there[name_of[place]] = self._loaded(self._stored(row))
        state_RLH = torch.zeros(len(names), max(lengths), self._width, dtype=self._dtype)
        for row, (name, length) in enumerate(zip(names, lengths, strict=True)):
            state_RLH[row, :length] = there[name].view(length, self._width)
        return state_RLH.to(self._device)

    def _with_room(self, written: Written, places: Iterable[int]) -> list[int]:
        """Return those of some texts whose states can be kept."""
        left = max(IN_MEMORY - self._bytes, self._cache.room())
        result = []
        for place in places:
            left -= len(written["input_ids"][place]) * self._width * self._dtype.itemsize
            if left < 0:
                break
            result.append(place)
        return result

    def _remember(self, name: bytes, stored: bytes) -> None:
        if self._bytes + len(stored) <= IN_MEMORY:
            self._in_memory[name] = self._loaded(stored)
            self._bytes += len(stored)

    def _stored(self, row: np.ndarray) -> bytes:
        """Return a text's states as bytes of the network's type, which float32 holds exactly."""
        return torch.from_numpy(row).to(self._dtype).view(torch.uint8).numpy().tobytes()

    def _loaded(self, stored: bytes) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(stored, np.uint8).copy()).view(self._dtype)
