"""One backward pass over a batch of sequences that gives each user's gradient, not their sum.

A trained layer's gradient is a sum over tokens of what came in and what came back: for a linear
layer y = W x it is Σ_t g_t x_tᵀ. Hooks keep what came in, and as soon as g has come back add each
user's tokens up by themselves, straight into that user's row. That is as much arithmetic as the sum
over all users; the backward pass itself is spared the weights' gradients, which it would throw
away. What it costs is a row of D numbers for each user of a chunk, so the caller bounds the chunk.

Exact for what the network computes, with rules for linear layers (`torch.nn.Linear`, GPT-2's
transposed one; LoRA is two of the first), embeddings and layer norms. Any other layer that treats
each sequence by itself (RMS norms, say) is differentiated once more, user by user. A layer that
mixes sequences or sees them only added up is refused: there is no telling users apart in it. What
two layers share, as an embedding and the head for the next token often do, gets both their parts.

Rows are float32, and sums over tokens are made in it, whatever type the network computes in:
products of two bfloat16 or float16 numbers are exact there, so what is added up is as good as what
came in and came back.

What came in is kept as automatic differentiation keeps what it needs, so under activation
checkpointing it is not kept but computed once more. The hooks that fire in that second forward pass
hand out what came in; only the backward pass through the first adds to rows, and it goes by once.

Two rejected ways: a backward pass for each user by itself (the oracle of the tests) makes small
operations of large ones; norms from Gram matrices of a user's tokens and a second, weighted
backward pass need no rows, and cost more as soon as a user has more tokens than
in·out / (in + out), which a few judgements always have.

Of an embedding a user touches few rows. `Touched` keeps which numbers were added to, so that the
next user finds zeros where this one left something, and clipping looks nowhere else.

Legend: B users of a chunk, D trained parameters, R sequences of a batch, L tokens of each,
O and I what goes out of a layer and comes in.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from murmuration.preference.data.errors import InputError

Span = tuple[int, int, int]  # a user's row in the chunk, their first sequence, the end


@dataclass(frozen=True)
class _Layer:
    """A module and where its own trained parameters stand in θ: by name, start and shape."""

    name: str
    module: nn.Module
    places: Mapping[str, tuple[int, torch.Size]]


class Touched:
    """The numbers of a chunk's rows that were added to; all others are still zero.

    Whole parameters, and rows of embeddings; of every user in the chunk together.
    """

    def __init__(self) -> None:
        self._whole: dict[int, int] = {}  # where a parameter begins, and how long it is
        self._some: dict[tuple[int, int], list[torch.Tensor]] = {}  # begin and width; which rows

    def all_of(self, start: int, shape: torch.Size) -> None:
        """A parameter."""
        self._whole[start] = shape.numel()

    def rows_of(self, start: int, shape: torch.Size, ids: torch.Tensor) -> None:
        """Some rows of one."""
        self._some.setdefault((start, shape[1]), []).append(ids.reshape(-1))

    def stretches(self) -> np.ndarray:
        """Begin and end of each, (P, 2) int64, in no order; they may overlap."""
        result = [np.array([(start, start + size)]) for start, size in self._whole.items()]
        for (start, width), ids_Q in self._rows():
            begin_Q = start + width * ids_Q.cpu().numpy()
            result.append(np.stack([begin_Q, begin_Q + width], axis=1))
        return np.concatenate([np.empty((0, 2), np.int64), *result])

    def clear(self, grads_BD: torch.Tensor) -> None:
        """Zeros again, in all of these rows; as if nothing had been touched."""
        for start, size in self._whole.items():
            grads_BD[:, start : start + size].zero_()
        for (start, width), ids_Q in self._rows():
            words = (grads_BD.shape[1] - start) // width  # at least as many as there are
            table_BVW = grads_BD[:, start : start + words * width].view(-1, words, width)
            table_BVW.index_fill_(1, ids_Q, 0.0)
        self._whole, self._some = {}, {}

    def _rows(self) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
        for place, ids in self._some.items():
            if place[0] not in self._whole:  # as where the head for the next token shares it
                yield place, torch.cat(ids).unique()


@dataclass(kw_only=True)
class _Batch:
    """The destination of the gradients of the batch in progress."""

    grads_BD: torch.Tensor
    spans: Sequence[Span]
    rows: int
    touched: Touched
    handles: list = field(default_factory=list)
    inside: bool = False  # a rule: what it computes with the layer is not part of the batch


_Tensor = object()  # stands for one


class _Kept(torch.autograd.Function):
    """A node of the graph that holds what came in, for ``saved_tensors`` of its output's node."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise AssertionError("nothing depends on it")


class UserBackward:
    """Per-user gradients of a module's trained parameters.

    Args:
        model: any module; what is trained in it must not require gradients by itself.
        trained: names of the trained parameters, in the order in which they stand in θ.

    Attributes:
        dimension: D.

    Raises:
        InputError: there is no parameter of that name.
    """

    def __init__(self, model: nn.Module, trained: Sequence[str]) -> None:
        parameters, starts, start = dict(model.named_parameters()), {}, 0
        for name in trained:
            if name not in parameters:
                raise InputError(f"the model has no parameter {name!r} to train")
            starts[id(parameters[name])] = start
            start += parameters[name].numel()
        self.dimension = start
        self._batch: _Batch | None = None
        self._layers = []
        for name, module in model.named_modules():
            places = {
                own: (starts[id(parameter)], parameter.shape)
                for own, parameter in module.named_parameters(recurse=False)
                if id(parameter) in starts
            }
            if places:
                self._layers.append(_Layer(name, module, places))

    @contextmanager
    def into(
        self,
        grads_BD: torch.Tensor,
        spans: Sequence[Span],
        rows: int,
        touched: Touched | None = None,
    ) -> Iterator[None]:
        """Within, add what is computed and differentiated to the users' rows of
        ``grads_BD``.

        ``spans`` names the users whose sequences, of ``rows`` in the batch, are consecutive.
        ``touched`` learns where.
        """
        batch = _Batch(grads_BD=grads_BD, spans=spans, rows=rows, touched=touched or Touched())
        try:
            for layer in self._layers:
                hook = self._hook(layer, batch)
                batch.handles.append(layer.module.register_forward_hook(hook, with_kwargs=True))
            self._batch = batch
            yield
        finally:
            self._batch = None
            for handle in batch.handles:
                handle.remove()

    @contextmanager
    def by_token(self, row_Q: Sequence[int]) -> Iterator[None]:
        """Inside, layers are called with a row for each of some tokens, not for each sequence.

        ``row_Q`` says whose tokens these are: sequences of the batch, ascending. Outside ``into``
        this does nothing.
        """
        batch = self._batch
        if batch is None:
            yield
            return
        whole = batch.spans, batch.rows
        cut = [
            (u, bisect_left(row_Q, first), bisect_left(row_Q, end)) for u, first, end in whole[0]
        ]
        batch.spans, batch.rows = [span for span in cut if span[1] < span[2]], len(row_Q)
        try:
            yield
        finally:
            batch.spans, batch.rows = whole

    def _hook(self, layer: _Layer, batch: _Batch) -> Callable:
        rule = _rule(layer.module)

        def came_in(module: nn.Module, args: tuple, kwargs: dict, out: torch.Tensor) -> None:
            if batch.inside or not torch.is_grad_enabled():
                return
            rows, spans = batch.rows, batch.spans
            if not isinstance(out, torch.Tensor) or out.shape[:1] != (rows,):
                raise InputError(
                    f"layer {layer.name!r} does not keep sequences apart, so users cannot be told "
                    "apart in it: train --train head, or lora with other --lora-targets"
                )
            if not out.requires_grad:
                out.requires_grad_(True)  # nothing before it is trained: this is where it begins
            given = [*args, *kwargs.values()]
            tensors = [value.detach() for value in given if isinstance(value, torch.Tensor)]
            # Whole: some versions of torch empty a node when the tensor that it made is gone.
            kept = _Kept.apply(torch.empty((), requires_grad=True), *tensors)
            # By the hook below only through its node, which a checkpoint empties.
            others: list[Any] = [_Tensor if isinstance(v, torch.Tensor) else v for v in given]
            names, positional = list(kwargs), len(args)
            del given, tensors

            def came_back(g: torch.Tensor) -> None:
                # May run the block again: not as a rule's doing.
                saved = iter(kept.grad_fn.saved_tensors)
                here = [next(saved) if value is _Tensor else value for value in others]
                for start, shape in layer.places.values():
                    if rule is _embedding:
                        batch.touched.rows_of(start, shape, here[0])
                    else:
                        batch.touched.all_of(start, shape)
                with _within_a_rule(batch):
                    for row, first, end in spans:
                        into = {
                            name: batch.grads_BD[row, start : start + shape.numel()].view(shape)
                            for name, (start, shape) in layer.places.items()
                        }
                        part = slice(first, end)
                        mine = [_rows(value, part, rows) for value in here]
                        named = dict(zip(names, mine[positional:], strict=True))
                        rule(layer.module, mine[:positional], named, g[part], into)

            out.register_hook(came_back)

        return came_in


@contextmanager
def _within_a_rule(batch: _Batch) -> Iterator[None]:
    """A rule: nothing of it is part of the batch."""
    batch.inside = True
    try:
        yield
    finally:
        batch.inside = False


def _rows(value: object, part: slice, rows: int) -> object:
    """A user's share of an argument, if it is one row for each sequence."""
    if isinstance(value, torch.Tensor) and value.shape[:1] == (rows,):
        return value[part].detach()
    return value


_Into = Mapping[str, torch.Tensor]


def _wide(value: Any) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.float() if floats else value


def _linear(module: nn.Module, args: list, named: dict, g: torch.Tensor, into: _Into) -> None:
    x_I = (args or list(named.values()))[0]
    g_O, x_I = g.reshape(-1, g.shape[-1]).float(), x_I.reshape(-1, x_I.shape[-1]).float()
    if "weight" in into and _is_transposed(module):
        into["weight"].addmm_(x_I.T, g_O)
    elif "weight" in into:
        into["weight"].addmm_(g_O.T, x_I)
    if "bias" in into:
        into["bias"].add_(g_O.sum(0))


def _is_transposed(module: nn.Module) -> bool:
    """True if a layer is GPT-2's linear one, of transformers."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _embedding(module: nn.Embedding, args: list, named: dict, g: torch.Tensor, into: _Into) -> None:
    ids, g_O = (args or list(named.values()))[0].reshape(-1), g.reshape(-1, g.shape[-1]).float()
    if module.padding_idx is not None:
        g_O = g_O * (ids != module.padding_idx)[:, None]
    into["weight"].index_add_(0, ids, g_O)


def _layer_norm(
    module: nn.LayerNorm, args: list, named: dict, g: torch.Tensor, into: _Into
) -> None:
    x, g = (args or list(named.values()))[0].float(), g.float()
    over = tuple(range(g.ndim - len(module.normalized_shape)))
    if "weight" in into:
        normal = nn.functional.layer_norm(x, module.normalized_shape, eps=module.eps)
        into["weight"].add_((g * normal).sum(over))
    if "bias" in into:
        into["bias"].add_(g.sum(over))


def _again(module: nn.Module, args: list, named: dict, g: torch.Tensor, into: _Into) -> None:
    """Any layer: computed and differentiated once more for one user, in float32."""
    with torch.enable_grad():
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        held = {name: _wide(tensor.detach()) for name, tensor in held.items()}
        leaves = {name: held[name].clone().requires_grad_(True) for name in into}
        named = {name: _wide(value) for name, value in named.items()}
        out = functional_call(module, {**held, **leaves}, tuple(map(_wide, args)), named)
        result = torch.autograd.grad(out, list(leaves.values()), g.to(out.dtype))
    for name, gradient in zip(leaves, result, strict=True):
        into[name].add_(gradient)


def _rule(module: nn.Module) -> Callable:
    """The function for a layer's gradient; by exact type, since subclasses may compute something
    else.
    """
    if type(module) is nn.Linear or _is_transposed(module):
        return _linear
    if type(module) is nn.Embedding and not (module.scale_grad_by_freq or module.max_norm):
        return _embedding
    if type(module) is nn.LayerNorm:
        return _layer_norm
    return _again
