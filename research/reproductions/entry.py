"""An entry of ``murmuration reproduce``, and what entries have in common.

Entries compute rows, plain dictionaries; remarks and plots are made of rows alone where that is
possible, by ``of_rows``. What ``in_processes`` computes for an entry is kept beside its files until
these are written, so that an interrupted one goes on.
"""

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import torch
from matplotlib.figure import Figure
from rich.progress import track

import murmuration
from murmuration.preference.data.errors import InputError
from murmuration.research import kept_results
from murmuration.research.bench.setting import machine
from murmuration.terminal.terminal import Terminal

Row = Mapping[str, Any]
Rows = Sequence[Row]
_Task = TypeVar("_Task")
_Found = TypeVar("_Found")
#: The folder, beside an entry's files, of what is kept until these are written, by entry: several
#: may be computed at once into one folder.
UNFINISHED = "unfinished"
DIRECTION_ONLY = "direction only: few repetitions, and so no verdict"
_kept_in: ContextVar[Path | None] = ContextVar("kept_in", default=None)


@dataclass(frozen=True)
class Reproduction:
    """Rows of an entry, remarks in words, what else goes into the JSON, maybe a plot. The
    JSON says when it was written, by which version and on what machine."""

    rows: Rows
    remarks: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    plot: Figure | None = None

    def write(self, folder: Path, name: str) -> None:
        """Write rows as CSV, the plot as PNG, and everything else as JSON; at last forget what
        an interrupted command would have gone on with."""
        folder.mkdir(parents=True, exist_ok=True)
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)
        if self.plot is not None:
            self.plot.savefig(folder / f"{name}.png", dpi=150)
        data = {
            "name": name,
            "written": date.today().isoformat(),
            "version": murmuration.__version__,
            "machine": machine(),
            "rows": list(self.rows),
            **self.extra,
            "remarks": list(self.remarks),
        }
        (folder / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder / UNFINISHED / name, ignore_errors=True)
        with suppress(OSError):  # not there, or another's is in it
            (folder / UNFINISHED).rmdir()


@dataclass(frozen=True)
class Entry:
    """A rerun: its subject, and its computation.

    Attributes:
        about: a line.
        compute: of ``quick``: fewer points, same shape.
        of_people: from a folder with people's judgements, and one for stored results; None: it uses
            synthetic judgements only.
        needs: what ``of_people`` is given; empty: the full form is of synthetic judgements, too.
        paper: the items of a paper that it reruns, as ``A: Tables 1 and 2``; empty: none.
        quick_minutes: processor minutes of the quick form, measured.
        minutes: those of the full one; None: not measured.
    """

    about: str
    compute: Callable[[bool], Reproduction]
    of_people: Callable[[Path, Path], Reproduction] | None = None
    needs: str = ""
    paper: str = ""
    quick_minutes: float = 0.0
    minutes: float | None = None

    def computed(
        self, name: str, quick: bool, out: Path | None, data: Path | None = None
    ) -> Reproduction:
        """Compute the result, on people's ``data`` if given (with ``of_people``, and ``out``);
        ``out`` is the folder that it will be written to, if any, by that name.

        The quick form has no verdicts: its repetitions are too few.

        Raises:
            InputError: people's judgements are needed, and not given.
        """
        token = _kept_in.set(out / UNFINISHED / name if out else None)
        try:
            if data is not None and self.of_people is not None and out is not None:
                return self.of_people(data, out)
            if self.needs and not quick:
                raise InputError(f"{name} needs --data, {self.needs}, and --out; or --quick")
            result = self.compute(quick)
            return _without_verdicts(result) if quick else result
        finally:
            _kept_in.reset(token)


def _without_verdicts(result: Reproduction) -> Reproduction:
    rows = [{name: row[name] for name in row if name != "verdict"} for row in result.rows]
    return replace(result, rows=rows, remarks=[DIRECTION_ONLY])


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
    """The distinct values of a column, in the order of the rows, without None."""
    return [value for value in dict.fromkeys(row.get(column) for row in rows) if value is not None]


def mean_sd(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Columns for the mean and the standard deviation; of one value there is none."""
    sd = stdev(values) if len(values) > 1 else None
    return {f"{name}_mean": fmean(values), f"{name}_sd": sd}


def tracked(steps: Iterable[_Task], what: str, total: int) -> Iterator[_Task]:
    """The steps, with a progress bar on stderr if it is a terminal."""
    console = Terminal(stderr=True)
    yield from track(steps, what, total, console=console, disable=not console.is_terminal)


def in_processes(
    function: Callable[[_Task], _Found], tasks: Sequence[_Task], workers: int | None = None
) -> Iterator[_Found]:
    """The results of tasks in their order, by default from a process for each core.

    For an entry that is written to a folder each is kept there when it is there (`kept_results`).
    """
    folder = _kept_in.get()
    if folder is None:
        yield from _computed(function, tasks, workers)
        return
    files = [kept_results.place(folder, function, task) for task in tasks]
    before = {file: result for file in files if (result := kept_results.read(file)) is not None}
    missing = [task for file, task in zip(files, tasks, strict=True) if file not in before]
    computed = _computed(function, missing, workers)
    for file in files:
        if file in before:
            yield before[file][0]
            continue
        result = next(computed)
        kept_results.keep(file, result)
        yield result


def _computed(
    function: Callable[[_Task], _Found], tasks: Sequence[_Task], workers: int | None
) -> Iterator[_Found]:
    if not tasks:
        return
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    if workers == 1:
        yield from map(function, tasks)
        return
    # Not forked: torch's threads do not survive that.
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(function, tasks)
