"""The most memory that a round of a language model takes, before any data are read.

It follows from public constants: the network's shapes, tokens at a time, the gradients that are
kept at a time. A pass of the largest batch goes forward and back on torch's meta device, where
tensors have shapes and take no memory, and what is alive is counted, and half as much again, which
allocators keep of what is free. Attention is counted as if all its weights were kept, which is more
than it takes where it is one kernel; the head for the next token as one that nothing follows (the
logits of a network that caps them are all kept).

Legend: B rows of gradients, D trained parameters, R texts in a batch, L tokens, Q scored tokens.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from murmuration.preference.features.frozen_states import WHOLE_IN_MEMORY
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.machine import most_rows, usual_batch, usual_device

_FLOAT, _DOUBLE = 4, 8
#: Of θ: where it begins, a copy of where it is, and what `LanguageBase.put` adds up.
_OF_THETA = 4 * _FLOAT
#: Of sums: a chunk's, and the total.
_OF_SUMS = 2 * _DOUBLE
#: Of the server: θ, its average, two moments, noise, gradient, messages, sums and their total.
_OF_SERVER = 10 * _DOUBLE
#: Python, torch and its kernels, or what a GPU's driver takes.
_LIBRARIES = 768 * 2**20


@dataclass(frozen=True, kw_only=True)
class RoundBytes:
    """Upper bounds in bytes.

    Attributes:
        network: its parameters and buffers.
        theta: the trained parameters as one vector.
        rows: gradients of single users, or of texts.
        activations: of one pass, and what its backward pass takes besides.
        sums: of clipped gradients.
        states: below the first trained layer.
        libraries: the process itself.
        server: optimizer, independent noise and messages, in the memory of the machine.
    """

    network: int
    theta: int
    rows: int
    activations: int
    sums: int
    states: int
    libraries: int
    server: int

    @property
    def total(self) -> int:
        """All but the server's together."""
        return sum(vars(self).values()) - self.server


def round_bytes(
    base: LanguageBase, texts_of_user: int, *, users: int, shared_passes: bool
) -> RoundBytes:
    """The memory of a round on this machine's device.

    Args:
        base: without weights.
        texts_of_user: the most texts of a user in a round.
        users: of a round.
        shared_passes: whether a pass may hold rows of several users.
    """
    device, length = usual_device(), base.texts.limit
    filling = max(1, (base.settings.batch_tokens or usual_batch(device)) // length)
    most = most_rows(device, base.dimension)
    together = min(most, users) if shared_passes else 1
    rows, texts = together, min(filling, together * texts_of_user)
    if base.settings.once_per_text:  # and once more those of one user, whose gradient they make
        rows = max(most, texts_of_user) + texts_of_user + 1
        texts = filling if shared_passes else 1
    held = [*base.model.parameters(), *base.model.buffers()]
    kept_states = WHOLE_IN_MEMORY if base.settings.layers != "all" else 0
    return RoundBytes(
        network=sum(tensor.nbytes for tensor in held),
        theta=_OF_THETA * base.dimension,
        rows=_FLOAT * base.dimension * rows,
        activations=3 * _pass_bytes(base, texts, length) // 2,
        sums=_OF_SUMS * base.dimension,
        states=kept_states,
        libraries=_LIBRARIES,
        server=_OF_SERVER * base.dimension,
    )


def _pass_bytes(base: LanguageBase, texts: int, length: int) -> int:
    """The most bytes alive in a pass through so many texts, beside network and gradients."""
    meta: dict[str, Any] = {"device": "meta"}
    network, alive = base.model, _Alive()
    grads_BD = torch.empty(1, base.dimension, **meta)
    ids_RL = torch.zeros(texts, length, dtype=torch.int64, **meta)
    segments_RL = ids_RL if base.has_segments else None
    alive.leave_out([*network.parameters(), *network.buffers(), grads_BD])
    with alive, base.backward.into(grads_BD, [(0, 0, texts)], texts):
        inputs = base.inputs_of(ids_RL, torch.ones_like(ids_RL), segments_RL)
        if not base.words:
            network(**inputs).logits.float().sum().backward()
            return alive.most
        inner: Any = network.get_base_model() if base.settings.train == "lora" else network  # type: ignore[operator]
        state_QH = inner.base_model(**inputs)[0].flatten(0, 1)
        part = max(1, base.most_logits // base.words)
        leaf_QH = state_QH[:part].detach().requires_grad_(True)
        with base.backward.by_token([0] * len(leaf_QH)):
            said_QV = inner.get_output_embeddings()(leaf_QH).float()
            next_Q = torch.zeros(len(leaf_QH), dtype=torch.int64, **meta)
            cross_entropy(said_QV, next_Q, reduction="none").sum().backward()
        del said_QV
        if state_QH.requires_grad:
            state_QH.backward(torch.empty_like(state_QH))
    return alive.most


class _Alive(TorchDispatchMode):
    """Within, count the bytes of tensors that are alive.

    Attributes:
        most: the most that were so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = self._now = 0
        self._known = set[int]()

    def leave_out(self, tensors: list[torch.Tensor]) -> None:
        """Do not count these."""
        self._known |= {tensor.untyped_storage()._cdata for tensor in tensors}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count what it makes."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0  # a question about values, such as a warning's: there are none
        result = func(*args, **(kwargs or {}))
        for made in tree_iter(result):
            if isinstance(made, torch.Tensor):
                self._count(made.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name in self._known:
            return
        self._known.add(name)
        self._now += size
        self.most = max(self.most, self._now)
        weakref.finalize(storage, self._freed, name, size)

    def _freed(self, name: int, size: int) -> None:
        self._known.discard(name)
        self._now -= size
