"""Independent pieces of tensor code and of kernels, one core each.

Torch splits each operation over its OpenMP threads, and all of them meet after each operation. For
operations of some ten microseconds that gains little, and when another process has one of the cores
they wait for each other for milliseconds, thousands of times. So pieces that need nothing of each
other are given to threads that keep to one core each (torch and our kernels release the
interpreter's lock while they compute; torch's number of threads is a setting of the thread that
sets it).

There are as many threads as torch would use by itself (``torch.get_num_threads()``, so also what
OMP_NUM_THREADS says); with one, as within a piece, everything stays in the calling thread. What
comes back is in the order of the pieces, and long vectors are cut in the same places whatever the
number of threads: so a sum over it is the same, to the last bit, on any number of cores.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

Result = TypeVar("Result")

COLUMNS = 2**18  # of a stretch of a long vector: the last is shorter

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def on_each_core(piece: Callable[[int], Result], pieces: int) -> list[Result]:
    """``[piece(0), …, piece(pieces − 1)]``, computed by several threads.

    The calling thread begins at once and the others join in when they wake up, which on a busy
    machine may be too late to matter. An exception of a piece is raised here.
    """
    import torch

    cores = torch.get_num_threads()
    result: dict[int, Result] = {}
    numbers = count()

    def work() -> None:
        while (number := next(numbers)) < pieces:
            result[number] = piece(number)

    helpers = [_pool(cores).submit(work) for _ in range(min(cores, pieces) - 1)]
    try:
        with one_core():
            work()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    return [result[number] for number in range(pieces)]


def each_stretch(piece: Callable[[slice], Result], dimension: int) -> list[Result]:
    """``piece`` of each stretch of ``dimension`` columns, in their order; see ``on_each_core``."""
    starts = range(0, dimension, COLUMNS)
    return on_each_core(
        lambda number: piece(slice(starts[number], min(starts[number] + COLUMNS, dimension))),
        len(starts),
    )


@contextmanager
def one_core() -> Iterator[None]:
    """This thread's operations are not split."""
    import torch

    cores = torch.get_num_threads()
    if cores > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if cores > 1:
            torch.set_num_threads(cores)


def _pool(cores: int) -> ThreadPoolExecutor:
    import torch

    with _lock:
        if cores not in _pools:
            pool = _pools[cores] = ThreadPoolExecutor(cores - 1, "core", initializer=_begin)
            started = threading.Barrier(cores)
            for _ in range(cores - 1):
                pool.submit(started.wait)
            started.wait()
            # What one thread sets holds for threads that torch has not met: set it back for them.
            torch.set_num_threads(cores)
        return _pools[cores]


def _begin() -> None:
    import torch

    torch.get_num_threads()  # else the process's number would replace this thread's at first use
    torch.set_num_threads(1)
