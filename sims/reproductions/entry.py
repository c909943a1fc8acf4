"""An entry of ``murmuration reproduce``: what it computes, and a bar to show while it does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """What an entry found: rows, remarks in words, what else goes into the JSON, maybe a plot."""

    rows: Sequence[Row]
    remarks: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    plot: Figure | None = None


@dataclass(frozen=True)
class Entry:
    """A rerun: what it is about, and how it is computed (``quick``: fewer points, same shape)."""

    about: str
    compute: Callable[[bool], Reproduction]


@contextmanager
def watched(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on stderr for something long; gives a function to be told the share that is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
