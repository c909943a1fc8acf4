"""Tables at the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def console(*, stderr: bool = False, width: int = 160) -> Console:
    """A console; where nobody looks, in a pipe, so wide that tables do not wrap."""
    made = Console(stderr=stderr, emoji=False)  # names have colons
    return made if made.is_terminal else Console(stderr=stderr, emoji=False, width=width)


def cell(value: Any) -> str:
    """Four figures of a fraction, and anything else as it is."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table_of(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str | None = None
) -> Table:
    """Rows, by names of columns and their headings; headings may wrap, numbers may not."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    cells = [[cell(row[name]) for name in columns] for row in rows]
    for heading, column in zip(columns.values(), zip(*cells, strict=True), strict=True):
        table.add_column(heading, min_width=max(map(len, column)))
    for line in cells:
        table.add_row(*line)
    return table
