"""What is wrong with what somebody gave: light to import, for whoever only passes it on."""

from collections.abc import Callable, Mapping


class InputError(ValueError):
    """Input that a user can correct: one line that names the file, row or option and says what to
    do."""


class RowsError(InputError):
    """Input that a user can correct, told from the rows themselves: exact, and for the eyes of
    those who hold them alone."""

    operator_only = True


class BadRow(ValueError):
    """Why one row cannot be used, and whose it is, by id or by the ``cells`` that say so; whoever
    knows the row's place adds it."""

    user_id: str | None = None
    cells: Mapping[str, object] | None = None


def first_line(error: BaseException) -> str:
    """An error's first line of text, or its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def reword(error: BaseException, words: Callable[[str], str]) -> None:
    """Change the text of an error, and of those that led to it, for whoever will read it."""
    led: BaseException | None = error
    while led is not None:
        if led.args and isinstance(led.args[0], str):
            led.args = (words(led.args[0]), *led.args[1:])
        led = led.__cause__ or led.__context__
