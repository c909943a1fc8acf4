"""The one way to a terminal: all output is printed without control characters.

Texts from files are everywhere in what commands print: names of columns, ids, paths, prompts,
replies of judges, messages of libraries. So it is not each place that escapes them but what they
pass through: standard output and error (``guard_streams``), and beside them the consoles that draw
tables and bars, which need control characters of their own (``Terminal``).
"""

import os
import sys
from collections.abc import Collection, Iterable
from io import TextIOWrapper
from typing import IO, Any, TextIO
from warnings import WarningMessage

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from murmuration.preference.escaping import visible


class Terminal(Console):
    """A console that takes text as text: no markup, no emoji names, no links, no controls."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"emoji": False, "markup": False, **options})

    @property
    def file(self) -> IO[str]:
        """The stream itself, also where it is guarded."""
        result = super().file
        return getattr(result, "rich_proxied_file", result)

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, all text made visible."""
        for text, style, control in super().render(renderable, options):
            if not control:
                text = visible(text)
                style = style.update_link(None) if style and style.link else style
            yield Segment(text, style, control)


def print_finished(*what: RenderableType, **options: Any) -> None:
    """Print what came of a run that has ended; where nothing can be printed, on a full disk say, it
    has ended all the same, which a note tells."""
    try:
        Terminal().print(*what, **options)
    except OSError as error:
        _write_nowhere(sys.__stdout__)
        text = f"note: all is done, and its summary cannot be printed: {error.strerror}"
        try:
            Terminal(stderr=True).print(text, soft_wrap=True)
        except OSError:
            _write_nowhere(sys.__stderr__)


def _write_nowhere(stream: TextIO | None) -> None:
    """Drop what a stream still has to write, which would fail again when the program ends."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_notes(caught: Iterable[WarningMessage], shown: Collection[str]) -> None:
    """Print warnings for users to standard error, each once, on one line that begins with its mark,
    except those shown otherwise.
    """
    for text in {str(each.message): None for each in caught if each.category is UserWarning}:
        if text not in shown:
            Terminal(stderr=True).print(f"note: {text}", soft_wrap=True)


class Guarded:
    """A text stream that escapes; not a terminal, as it takes no control characters.

    Consoles write to what is behind it: rich looks for ``rich_proxied_file``.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write a text, made visible; its length."""
        self.rich_proxied_file.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, made visible."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """False."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def guard_streams() -> None:
    """From now on, escape what is written to standard output and error, including characters that
    their encoding lacks.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Guarded):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, Guarded(stream))
