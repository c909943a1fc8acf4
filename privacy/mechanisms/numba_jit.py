"""``numba.njit`` that also works where nothing can be written, and waits until it is called.

Compiled code is kept on disk, beside its source or in the user's cache folder, so that only the
first process waits for the compiler. A service with a read-only installation and no home has
neither, and numba would refuse to define the function at all; there every process compiles anew.
``NUMBA_CACHE_DIR`` names another folder. What a power failure cut off there is compiled anew.

Numba itself is imported at the first call: who only plans a run computes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any


class Kernel:
    """A function that is compiled when it, or a kernel that calls it, is called first."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's own object, which compiles once for each list of types of arguments."""
        import numba
        from numba.core.caching import FunctionCache

        class Cache(FunctionCache):
            """Compiled code on disk, which is forgotten where it cannot be read."""

            def load_overload(self, *signature: Any) -> Any:
                try:
                    return super().load_overload(*signature)
                except Exception:  # unpickling what was cut off or damaged may raise anything
                    with suppress(OSError):
                        self.flush()
                    return None

            def save_overload(self, *compiled: Any) -> None:
                with suppress(OSError):  # a full disk, say
                    super().save_overload(*compiled)

        dispatcher: Any = numba.njit(nogil=True, **self._options)(self._function)
        with suppress(RuntimeError):  # "cannot cache function": no folder can be written
            dispatcher._cache = Cache(self._function)
        return dispatcher

    @property
    def _numba_type_(self) -> Any:
        """As what numba sees a global of this name in the body of another kernel."""
        return self.dispatcher._numba_type_


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Compile at first use, without the interpreter's lock; ``options`` are those of ``njit``."""

    def compiled(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, options)

    return compiled
