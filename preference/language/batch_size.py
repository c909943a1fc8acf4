"""The number of tokens computed at a time, unless it is set: from the measured memory of a token.

A pass over made-up texts of two sizes shows the memory per token, and the fixed part. What fits
into the memory that is free then, with a margin, is a batch, but never more than what keeps the
device busy. Texts are as long as public limits allow, so the size of batches depends on these, the
model and the device, and on nothing that a user has.

On a GPU what is measured is the highest that was allocated. A CPU's allocator does not report
memory: there it is what the network keeps for its backward pass, and what is free is half of what
the machine has, whatever else runs on it, so that the same machine gives the same batches.
"""

from collections.abc import Callable
from functools import partial

import psutil
import torch

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples import LanguageExamples
from murmuration.preference.language.machine import MOST_ROW_BYTES, usual_batch
from murmuration.preference.models import PreferenceModel

_SHARE = 0.8  # of what is free; allocators lose some in pieces
_OF_MACHINE = 0.5
#: Gives the bytes that work takes beyond what was taken before it.
Taken = Callable[[Callable[[], None]], int]


def fitting_batch(
    small: LanguageExamples,
    large: LanguageExamples,
    model: PreferenceModel,
    *,
    taken: Taken | None = None,
    free: int | None = None,
) -> int:
    """Tokens of a batch, at least one.

    Args:
        small: one made-up user.
        large: one of more tokens.
        model: of preferences.
        taken: measures; by default as suits the base's device.
        free: bytes; by default those of that device, less ``MOST_ROW_BYTES``.

    Raises:
        InputError: even these do not fit.
    """
    base = small.base
    taken = taken or (_on_gpu if base.device.type == "cuda" else kept_for_backward(base))
    most = usual_batch(base.device)
    free = _free(base) if free is None else free
    few, many = _tokens(small), _tokens(large)
    low = taken(partial(forward_and_back, small.in_batches(few), model))
    high = taken(partial(forward_and_back, large.in_batches(many), model))
    each = (high - low) / (many - few)
    if each <= 0.0:
        return most
    always = max(0.0, low - each * few)
    return min(most, max(1, int((_SHARE * free - always) / each)))


def _tokens(examples: LanguageExamples) -> int:
    """The number of tokens with padding: all texts are as long as the longest."""
    return int((examples.text_JK >= 0).sum() * examples.tokens.lengths_T.max())


def forward_and_back(examples: LanguageExamples, model: PreferenceModel) -> None:
    """Compute every user's gradient, to measure its memory."""
    every_N, theta_D = torch.arange(len(examples.text_JK)), torch.zeros(examples.dimension)
    for _ in examples.user_gradients(theta_D, every_N, examples.counts_U, model):
        pass


def _on_gpu(work: Callable[[], None]) -> int:
    work()  # what is made once: handles, workspaces
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def kept_for_backward(base: LanguageBase) -> Taken:
    """Measure the memory kept for a backward pass, except the network's own weights."""
    own = {parameter.untyped_storage().data_ptr() for parameter in base.model.parameters()}

    def taken(work: Callable[[], None]) -> int:
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            work()
        return sum(kept.values())

    return taken


def _free(base: LanguageBase) -> int:
    rows = max(MOST_ROW_BYTES, 4 * base.dimension)
    if base.device.type == "cuda":
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return torch.cuda.mem_get_info()[0] + unused - rows
    weights = sum(parameter.nbytes for parameter in base.model.parameters())
    return int(_OF_MACHINE * psutil.virtual_memory().total) - weights - rows
