"""Errors about input; light to import."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class InputError(ValueError):
    """Input that a user can correct: one line that names the file, row or option and says what to
    do."""


class RowsError(InputError):
    """An input error found by reading the rows: exact, so only their holder may see it."""

    operator_only = True


class BadRow(ValueError):
    """The reason why a row cannot be used, with its user, by id or by the ``cells`` that hold it.
    The reader adds the row's place.
    """

    user_id: str | None = None
    cells: Mapping[str, object] | None = None


def first_line(error: BaseException) -> str:
    """An error's first line of text, or its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


@contextmanager
def disk_errors_as(what: str) -> Iterator[None]:
    """Raise an OSError as an InputError: ``what``, such as a file that cannot be written, and the
    system's reason."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {error.strerror or first_line(error)}") from None


@contextmanager
def with_extra(extra: str, needs: str) -> Iterator[None]:
    """Raise an ImportError as an InputError: what ``needs`` what, and how to install that."""
    try:
        yield
    except ImportError:
        raise InputError(f"{needs}: pip install 'murmuration-rlhf[{extra}]'") from None


def reword(error: BaseException, words: Callable[[str], str]) -> None:
    """Change the text of an error, and of those that led to it, for its reader."""
    led: BaseException | None = error
    while led is not None:
        if led.args and isinstance(led.args[0], str):
            led.args = (words(led.args[0]), *led.args[1:])
        led = led.__cause__ or led.__context__
