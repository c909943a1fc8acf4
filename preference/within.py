"""Values of a context, which hold inside of a block and are what they were behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Value = TypeVar("_Value")


@contextmanager
def within(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Let a variable have this value inside the ``with`` block."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
