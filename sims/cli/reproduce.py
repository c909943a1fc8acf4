"""``murmuration reproduce NAME``: the home of every rerun of a paper's figure or table.

An entry computes rows; this file prints them, writes them down and draws the entry's plot.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from murmuration.preference.data.judgements import InputError
from murmuration.sims.reproductions.entry import Reproduction, Row


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one; see --list.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for rows and plot.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line at the end.")
    ] = False,
) -> None:
    """Rerun a figure or table of the papers, or one of our own."""
    from murmuration.sims.reproductions.registry import (
        ENTRIES,  # imports every experiment: only when asked for
    )

    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(stderr=as_json, width=160)  # a pipe does not wrap
    if list_ or name is None:
        table = Table("name", "about", box=None, pad_edge=False)
        for key, entry in ENTRIES.items():
            table.add_row(key, entry.about)
        console.print(table)
        return
    if name not in ENTRIES:
        raise InputError(f"nothing is called {name!r}; there is {', '.join(ENTRIES)}")
    found = ENTRIES[name].compute(quick)
    for table in _tables(name, found.rows):
        console.print(table)
    for remark in found.remarks:
        console.print(f"• {remark}", markup=False)
    if out is not None:
        _write(out, name, found)
        console.print(f"written to {out}", markup=False)
    if as_json:
        print(json.dumps({"name": name, "rows": list(found.rows), **found.extra}))


def _tables(name: str, rows: Sequence[Row]) -> Iterator[Table]:
    """A table for each kind of row: those that have the same columns."""
    for columns in dict.fromkeys(tuple(row) for row in rows):
        cells = [[_cell(row[c]) for c in columns] for row in rows if tuple(row) == columns]
        table = Table(title=name, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for place, column in enumerate(columns):
            # Headings may wrap, numbers may not.
            table.add_column(column.replace("_", " "), min_width=max(len(r[place]) for r in cells))
        for row in cells:
            table.add_row(*row)
        yield table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write(folder: Path, name: str, found: Reproduction) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = {"name": name, "rows": list(found.rows), **found.extra, "remarks": list(found.remarks)}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(column for row in found.rows for column in row))
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(found.rows)
    if found.plot is not None:
        found.plot.savefig(folder / f"{name}.png", dpi=150)
