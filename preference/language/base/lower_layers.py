"""Layers below the first trained one of a language model, which can be left out.

Where LoRA changes a network's last layers alone, what comes out of those below never changes: a
text's states there are computed once (`preference.features.frozen_states`), and each step begins at
them.

How a network begins at its states: its lower blocks hand on what they are given, and the first
trained one is given the states in its place. Embeddings of tokens, masks and rotations are made as
ever, so no architecture needs code of its own. Whether one can be entered so is tried out.

Shape suffixes: R texts, L tokens, H width of a state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from murmuration.preference.within import within


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
        """The input of the first trained block, (R, L, H). Several threads may call this at a
        time.
        """
        states: list[torch.Tensor] = []
        with suppress(_ReachedError), within(self._reached, states):  # of this thread
            network(**inputs)
        return states[0].detach()

    def entered(self, state_RLH: torch.Tensor) -> AbstractContextManager[None]:
        """Within, the network begins at these states of the texts that it is called with."""
        return within(self._entered, state_RLH)

    @contextmanager
    def noting(self) -> Iterator[list[torch.Tensor]]:
        """Within, what the first trained block is given, call by call, is put into this list."""
        noted: list[torch.Tensor] = []
        with within(self._noted, noted):
            yield noted

    def can_be_entered(self, network: Callable[..., Any], inputs: Mapping[str, Any]) -> bool:
        """True if the network's output, started at these states, is equal bit for bit."""
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
