"""Work on long vectors, a stretch of their columns at a time, by several threads.

Stretches are fixed, whatever the number of threads, and what they give comes back in their order:
so a sum over it is the same, to the last bit, on any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

COLUMNS = 2**18  # of a stretch: the last is shorter


def each_stretch(piece: Callable[[slice], Result], dimension: int) -> list[Result]:
    """``piece`` of each stretch of ``dimension`` columns, in their order.

    By as many threads as torch would use here (``torch.get_num_threads()``; one where users have
    a thread each); what ``piece`` does must let go of the interpreter's lock, as kernels do.
    """
    import torch

    starts = range(0, dimension, COLUMNS)
    stretches = [slice(start, min(start + COLUMNS, dimension)) for start in starts]
    threads = min(torch.get_num_threads(), len(stretches))
    if threads < 2:
        return [piece(stretch) for stretch in stretches]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(piece, stretches))
