"""``murmuration reproduce NAME``: the home of every rerun of a paper's figure or table.

An entry computes rows; this file prints them, writes them down and draws the entry's plot.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from murmuration.cli.options import Json, print_json
from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.entry import Entry, Reproduction
from murmuration.terminal.tables import console, table_of


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="What to reproduce; see --list. `all`: one after the other, into --out, where an "
            "interrupted run goes on; with a page of all of it."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List what there is.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Few repetitions: only to see that it works. Direction only: no verdict.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where to write. Folder for the rows and the plot.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The judgements (or other rows) to read. For `arguments`: the folder that "
            "examples/ukp_judgements.py makes."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Rerun a figure or table of the papers, or one of our own."""
    from murmuration.research.reproductions.registry import (
        ENTRIES,  # imports every experiment: only when asked for
    )

    terminal = console(stderr=as_json)
    if list_ or name is None:
        table = Table("name", "paper", "minutes", "--quick", "about", box=None, pad_edge=False)
        for key, entry in ENTRIES.items():
            full = "?" if entry.minutes is None else f"{entry.minutes:g}"
            quick_minutes = f"{entry.quick_minutes:g}" if entry.quick_minutes else "<0.1"
            table.add_row(key, entry.paper, full, quick_minutes, entry.about)
        terminal.print(table)
        terminal.print("minutes of one processor; ?: not measured; --quick: direction only")
        return
    if name == "all":
        _all(ENTRIES, quick, data, out, as_json)
        return
    if name not in ENTRIES:
        raise InputError(f"there is no reproduction {name!r}; choose one of {', '.join(ENTRIES)}")
    result = _computed(name, ENTRIES[name], quick, data, out)
    for columns in dict.fromkeys(tuple(row) for row in result.rows):  # a table for each kind of row
        same = [row for row in result.rows if tuple(row) == columns]
        headings = {column: column.replace("_", " ") for column in columns}
        terminal.print(table_of(same, headings, name))
    for remark in result.remarks:
        terminal.print(f"• {remark}", markup=False)
    if out is not None:
        result.write(out, name)
        terminal.print(f"written to {out}", markup=False)
    if as_json:
        print_json({"name": name, "rows": list(result.rows), **result.extra})


def _all(
    entries: Mapping[str, Entry], quick: bool, data: Path | None, out: Path | None, as_json: bool
) -> None:
    """Compute all that is not done yet, and say a line for each verdict."""
    from murmuration.research.reproductions import rerun  # with the experiments

    if data is not None:
        raise InputError("reproduce all is of synthetic judgements: it takes no --data")
    if out is None:
        raise InputError("reproduce all takes --out, the folder where it writes and goes on")
    terminal = console(stderr=as_json)

    def say(outcome: rerun.Outcome) -> None:
        terminal.print(
            f"{outcome.name}: {outcome.status}, {outcome.processor_seconds:.0f} processor seconds",
            markup=False,
        )
        for remark in outcome.remarks:
            terminal.print(f"• {remark}", markup=False)

    outcomes = rerun.rerun(entries, out, quick, say)
    failed = [one.name for one in outcomes if one.status == rerun.FAILED]
    terminal.print(f"written to {out / rerun.PAGE}", markup=False)
    if as_json:
        print_json({"name": "all", "outcomes": [asdict(one) for one in outcomes]})
    if failed:
        terminal.print(f"failed, and tried again the next time: {', '.join(failed)}", markup=False)
        raise typer.Exit(1)


def _computed(
    name: str, entry: Entry, quick: bool, data: Path | None, out: Path | None
) -> Reproduction:
    """The result of an entry, on people's judgements if they are given."""
    if data is not None and entry.of_people is None:
        raise InputError(f"{name} is of synthetic judgements: it takes no --data")
    if data is not None and (quick or out is None):
        raise InputError("--data takes --out, where answers are kept, and not --quick")
    return entry.computed(name, quick, out, data)
