"""Independent pieces of tensor code, one core each.

Torch splits each operation over its OpenMP threads, and all of them meet after each operation. For
operations of some ten microseconds that gains little, and when another process has one of the cores
they wait for each other for milliseconds, thousands of times. So pieces that need nothing of each
other are given to threads that keep to one core each (torch releases the interpreter's lock while
it computes).

There are as many threads as torch would use by itself (``torch.get_num_threads()``, so also what
OMP_NUM_THREADS says); with one, everything stays in the calling thread.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

import torch

_Result = TypeVar("_Result")
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def on_each_core(piece: Callable[[int], _Result], pieces: int) -> list[_Result]:
    """``[piece(0), …, piece(pieces − 1)]``, computed by several threads.

    An exception of a piece is raised here.
    """
    cores = min(torch.get_num_threads(), pieces)
    if torch.get_num_threads() == 1:
        return [piece(number) for number in range(pieces)]
    found: dict[int, _Result] = {}
    numbers = count()

    def work() -> None:
        while (number := next(numbers)) < pieces:
            found[number] = piece(number)

    pool = _pool(torch.get_num_threads())
    for future in [pool.submit(work) for _ in range(cores)]:
        future.result()
    return [found[number] for number in range(pieces)]


def _pool(cores: int) -> ThreadPoolExecutor:
    with _lock:
        if cores not in _pools:
            _pools[cores] = ThreadPoolExecutor(cores, "core", initializer=_one_core)
            started = threading.Barrier(cores + 1)
            for _ in range(cores):
                _pools[cores].submit(started.wait)
            started.wait()
            # What one thread sets holds for threads that torch has not met: set it back for them.
            torch.set_num_threads(cores)
        return _pools[cores]


def _one_core() -> None:
    torch.get_num_threads()  # else the process's number would replace this thread's at first use
    torch.set_num_threads(1)
