"""The status of a long function, on standard error if requested."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from murmuration.terminal.tables import console


@contextmanager
def status(
    show: bool, first: str = "loading", *, lasting: Callable[[str], bool] = lambda text: False
) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a status text, each in place of the one before.

    Args:
        show: whether to show it.
        first: what is shown first.
        lasting: which texts stay, as lines of their own.
    """
    if not show:
        yield lambda text: None
        return
    with console(stderr=True).status(Text(first)) as shown:

        def say(text: str) -> None:
            shown.update(Text(text))
            if lasting(text):
                shown.console.print(text, markup=False)

        yield say
