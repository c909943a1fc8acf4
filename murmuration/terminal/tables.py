"""Tables at the terminal."""

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from murmuration.terminal.terminal import Terminal


def console(*, stderr: bool = False, width: int = 160) -> Terminal:
    """A console; if it is not a terminal, wide enough that tables do not wrap."""
    made = Terminal(stderr=stderr)
    return made if made.is_terminal else Terminal(stderr=stderr, width=width)


def as_text(content: RenderableType) -> str:
    """The console's output for some content, as plain text."""
    file = StringIO()
    Terminal(file=file, width=160).print(content)
    return file.getvalue().rstrip("\n")


def cell(value: Any) -> str:
    """Four figures of a fraction, and anything else as it is."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table_of(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    title: str | None = None,
    bold: Mapping[str, Any] | None = None,
) -> Table:
    """Rows, by names of columns and their headings; headings may wrap, numbers may not.

    ``bold`` is the row that stands out, if one does.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name, heading in columns.items():
        values = [row[name] for row in rows]
        words = any(isinstance(value, str) for value in values)
        width = max(len(cell(value)) for value in values)
        table.add_column(heading, justify="left" if words else "right", min_width=width)
    for row in rows:
        table.add_row(*(cell(row[name]) for name in columns), style="bold" if row is bold else "")
    return table
