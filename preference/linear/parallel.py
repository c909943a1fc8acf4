"""Independent pieces of tensor code, one core each.

Torch splits each operation over its OpenMP threads, and all of them meet after each operation. For
operations of some ten microseconds that gains little, and when another process has one of the cores
they wait for each other for milliseconds, thousands of times. So pieces that need nothing of each
other are given to threads that keep to one core each (torch releases the interpreter's lock while
it computes; its number of threads is a setting of the thread that sets it).

There are as many threads as torch would use by itself (``torch.get_num_threads()``, so also what
OMP_NUM_THREADS says); with one, everything stays in the calling thread.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import torch

_Result = TypeVar("_Result")
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def on_each_core(piece: Callable[[int], _Result], pieces: int) -> list[_Result]:
    """``[piece(0), …, piece(pieces − 1)]``, computed by several threads.

    The calling thread begins at once and the others join in when they wake up, which on a busy
    machine may be too late to matter. An exception of a piece is raised here.
    """
    cores = torch.get_num_threads()
    found: dict[int, _Result] = {}
    numbers = count()

    def work() -> None:
        while (number := next(numbers)) < pieces:
            found[number] = piece(number)

    helpers = [_pool(cores).submit(work) for _ in range(min(cores, pieces) - 1)]
    try:
        with one_core():
            work()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    return [found[number] for number in range(pieces)]


@contextmanager
def one_core() -> Iterator[None]:
    """This thread's operations are not split."""
    cores = torch.get_num_threads()
    if cores > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if cores > 1:
            torch.set_num_threads(cores)


def _pool(cores: int) -> ThreadPoolExecutor:
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
    torch.get_num_threads()  # else the process's number would replace this thread's at first use
    torch.set_num_threads(1)
