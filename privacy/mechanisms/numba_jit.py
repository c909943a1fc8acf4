"""``numba.njit`` that also works where nothing can be written.

Compiled code is kept on disk, beside its source or in the user's cache folder, so that only the
first process waits for the compiler. A service with a read-only installation and no home has
neither, and numba would refuse to define the function at all; there every process compiles anew.
``NUMBA_CACHE_DIR`` names another folder.
"""

from collections.abc import Callable
from typing import Any

import numba


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile at first use, without the interpreter's lock; ``options`` are those of ``njit``."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # "cannot cache function": no folder can be written
            return numba.njit(nogil=True, **options)(function)

    return compiled
