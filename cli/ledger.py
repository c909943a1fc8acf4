"""``murmuration ledger``: show a ledger, verify its hash chain, and compute its epsilon.

It may be a run's or an owner's agent's. Reading changes nothing, and is possible while it is
written; ``--events`` writes the events of a run for another accountant.
"""

import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from murmuration.api.ledgers import AllRuns, all_runs, verify
from murmuration.cli.options import Json, print_json
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.reporting.live import ledger_view
from murmuration.terminal.terminal import Terminal


def ledger(
    place: Annotated[
        Path, typer.Argument(help="A run's folder, an agent's folder, or the ledger's file.")
    ],
    expect: Annotated[
        str | None,
        typer.Option(help="A head that you kept elsewhere: it must be on this ledger's chain."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all-runs",
            help="Add up what all runs below a folder cost whoever was in every one of them.",
        ),
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events",
            help="Write events.json, and recompute.py, which recomputes the training's epsilon "
            "from it by dp-accounting without Murmuration, beside a run's ledger.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a ledger, verify it, and compute the privacy spent.

    Exits with status 1 if it is not whole. Without --events nothing is written. Keep the head
    elsewhere: if an older copy of the whole folder, ledger included, is put back, only --expect
    shows it.
    """
    if every:
        if expect:
            raise InputError(
                "--expect is about one ledger, and --all-runs about all below a folder"
            )
        total = all_runs(place.expanduser())
        _say_all(total, as_json)
        sys.exit(1 if total.without_ledger else 0)
    expected = _head(expect) if expect else None
    report = verify(place, expected=expected, write_events=events)
    _say(report, as_json)
    sys.exit(0 if report["whole"] else 1)


def _say_all(total: AllRuns, as_json: bool) -> None:
    if as_json:
        print_json(total.to_json())
        return
    console = Terminal(soft_wrap=True, highlight=False)
    console.print(total.statement)
    for run, cost in zip_longest(total.runs, total.costs):
        console.print(Text(f"  {run}: {cost}" if cost else f"  {run}", style="dim"))


def _head(text: str) -> Head:
    try:
        return Head.parse(text)
    except ValueError as error:
        raise InputError(f"--expect: {error}") from None


def _say(report: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    console = Terminal(soft_wrap=True, highlight=False)
    if report["whole"]:
        verified = f": {report['lines']} entries, hash chain verified"
        console.print(Text.assemble(("Ledger intact", "bold green"), verified))
    for text in report["wrong"]:
        console.print(Text.assemble(("NOT INTACT: ", "bold red"), text))
    if "kind" not in report:
        return
    console.print(ledger_view.table(report))
    for line in ledger_view.lines(report):
        console.print(Text(line))
    console.print(Text.assemble("head  ", (report["head"], "bold")))
    console.print(Text("Keep it elsewhere: --expect HEAD shows whether anything was rolled back."))
