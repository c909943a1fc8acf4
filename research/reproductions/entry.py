"""An entry of ``murmuration reproduce``, and what entries have in common.

Entries compute rows, plain dictionaries; remarks and plots are made of rows alone where that is
possible, by ``of_rows``.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import torch
from matplotlib.figure import Figure
from rich.progress import track

from murmuration.reporting.live.terminal import Terminal

Row = Mapping[str, Any]
Rows = Sequence[Row]
_Task = TypeVar("_Task")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Reproduction:
    """What an entry found: rows, remarks in words, what else goes into the JSON, maybe a plot."""

    rows: Rows
    remarks: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    plot: Figure | None = None

    def write(self, folder: Path, name: str) -> None:
        """Write rows as CSV, the plot as PNG, and, last, everything else as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)
        if self.plot is not None:
            self.plot.savefig(folder / f"{name}.png", dpi=150)
        data = {"name": name, "rows": list(self.rows), **self.extra, "remarks": list(self.remarks)}
        (folder / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Entry:
    """A rerun: what it is about, and how it is computed.

    Attributes:
        about: a line.
        compute: of ``quick``: fewer points, same shape; and of the folder, if ``keeps``.
        of_people: of a folder with people's judgements, and one for what is kept; None: it is of
            synthetic judgements alone.
        keeps: whether parts of it are kept in the folder, so that an interrupted one goes on.
    """

    about: str
    compute: Callable[..., Reproduction]
    of_people: Callable[[Path, Path], Reproduction] | None = None
    keeps: bool = False

    def computed(self, quick: bool, out: Path | None) -> Reproduction:
        """Return what is found; ``out`` is the folder that it will be written to, if any."""
        return self.compute(quick, out) if self.keeps else self.compute(quick)


def of_rows(
    rows: Callable[[bool], Rows],
    remarks: Callable[[Rows], Sequence[str]],
    plot: Callable[[Rows], Figure] | None = None,
) -> Callable[[bool], Reproduction]:
    """Computes an entry whose remarks and plot are made of its rows."""

    def compute(quick: bool) -> Reproduction:
        result = rows(quick)
        return Reproduction(result, remarks(result), plot=plot and plot(result))

    return compute


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values; of a tuple, one of them."""
    allowed = {name: v if isinstance(v, tuple) else (v,) for name, v in wanted.items()}
    return [row for row in rows if all(row.get(name) in allowed[name] for name in allowed)]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """Return what stands in a column, each once, in the order of the rows; None is left out."""
    return [value for value in dict.fromkeys(row.get(column) for row in rows) if value is not None]


def mean_sd(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Columns for the mean and the standard deviation; of one value there is none."""
    sd = stdev(values) if len(values) > 1 else None
    return {f"{name}_mean": fmean(values), f"{name}_sd": sd}


def tracked(steps: Iterable[_Task], what: str, total: int) -> Iterator[_Task]:
    """The steps, with a bar on stderr where somebody is looking."""
    console = Terminal(stderr=True)
    yield from track(steps, what, total, console=console, disable=not console.is_terminal)


def in_processes(
    function: Callable[[_Task], _Found], tasks: Sequence[_Task], workers: int | None = None
) -> Iterator[_Found]:
    """The results of tasks in their order, by default from a process for each core."""
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if workers == 1:
        yield from map(function, tasks)
        return
    # Not forked: torch's threads do not survive that.
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(function, tasks)
