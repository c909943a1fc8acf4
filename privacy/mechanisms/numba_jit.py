"""``numba.njit`` that also works where nothing can be written, and waits until it is called.

Compiled code is kept on disk, beside its source or in the user's cache folder, so that only the
first process waits for the compiler. A service with a read-only installation and no home has
neither, and numba would refuse to define the function at all; there every process compiles anew.
``NUMBA_CACHE_DIR`` names another folder.

Numba itself is imported at the first call: who only plans a run computes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Kernel:
    """A function that is compiled when it, or a kernel that calls it, is called first."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options

    def __call__(self, *arguments: Any) -> Any:
        """Return what the function gives, by compiled code."""
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's own object, which compiles once for each list of types of arguments."""
        import numba

        try:
            return numba.njit(nogil=True, cache=True, **self._options)(self._function)
        except RuntimeError:  # "cannot cache function": no folder can be written
            return numba.njit(nogil=True, **self._options)(self._function)

    @property
    def _numba_type_(self) -> Any:
        """As what numba sees a global of this name in the body of another kernel."""
        return self.dispatcher._numba_type_


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile at first use, without the interpreter's lock; ``options`` are those of ``njit``."""

    def compiled(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, options)

    return compiled
