"""``murmuration ledger``: what a ledger holds, whether it is whole, and what it comes to.

Of a run, or of an owner's agent. Looking changes nothing, and is possible while it is written;
``--events`` writes the events of a run for whoever would rather ask another accountant.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from murmuration.api.ledgers import verify
from murmuration.cli.options import Json
from murmuration.preference.data.rows import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.promise import delta_text, epsilon_text, with_seed_known
from murmuration.reporting.live.terminal import Terminal
from murmuration.sims.runtimes.people import Paid, book

_MOST_SETS = 10


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
            "--all",
            help="Add up what all runs below a folder cost whoever was in them: for you alone.",
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
    """Show a ledger, verify it, and say what was spent; exit 1 if it is not whole.

    Without --events nothing is written. Keep the head elsewhere: whoever can bring back an older
    copy of a whole folder can bring back its ledger, and --expect is what shows that.
    """
    if every:
        if expect:
            raise InputError(
                "--expect is about one ledger, and --all-runs about all below a folder"
            )
        _say_book(book(place.expanduser()), as_json)
        return
    expected = _head(expect) if expect else None
    report = verify(place, expected=expected, write_events=events)
    _say(report, as_json)
    sys.exit(0 if report["whole"] else 1)


def _say_book(rows: list[Paid], as_json: bool) -> None:
    if as_json:
        print(json.dumps([row.to_json() for row in rows]))
        return
    console = Terminal(highlight=False)
    for row in rows[:_MOST_SETS]:
        who = "whoever was in any" if row.people is None else f"{row.people:,} of the people"
        names = ", ".join(run.name for run in row.runs)
        console.print(f"{who}: {row.promise}")
        console.print(f"  in {len(row.runs)}: {names}", style="dim")
    if len(rows) > _MOST_SETS:
        console.print(f"and {len(rows) - _MOST_SETS:,} other sets of runs, which cost less")
    console.print("operator only: counts of people are exact", style="yellow")


def _head(text: str) -> Head:
    try:
        return Head.parse(text)
    except ValueError as error:
        raise InputError(f"--expect: {error}") from None


def _say(report: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(_finite(report), allow_nan=False))
        return
    console = Terminal(soft_wrap=True, highlight=False)
    if report["whole"]:
        verified = f": {report['lines']} entries, hash chain verified"
        console.print(Text.assemble(("Ledger intact", "bold green"), verified))
    for text in report["wrong"]:
        console.print(Text.assemble(("NOT INTACT: ", "bold red"), text))
    if "kind" not in report:
        return
    console.print(_table(report))
    for line in _lines(report):
        console.print(Text(line))
    console.print(Text.assemble("head  ", (report["head"], "bold")))
    console.print(Text("Keep it elsewhere: --expect HEAD shows whether anything was rolled back."))


def _finite(value: Any) -> Any:
    """As JSON can hold it: what is infinite is said in words."""
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return "infinite" if value == math.inf else value


def _table(report: Mapping[str, Any]) -> Table:
    if report["kind"] == "run":
        heads = ("what", "event", "times", "rounds", "again", "ε alone")
        rows = [
            (
                *(row["covers"], _event(row["event"]), f"{row['times']:,}", row["rounds"]),
                *(str(row["again"] or ""), epsilon_text(row["epsilon"])),
            )
            for row in report["events"]
        ]
    else:
        heads = ("run", "adjacency", "δ", "rounds", "answered", "ε as stated")
        rows = [
            (
                *(plan["run"], plan["adjacency"], delta_text(plan["delta"])),
                *(f"{plan['rounds']:,}", f"{plan['answered']:,}", epsilon_text(plan["epsilon"])),
            )
            for plan in report["plans"]
        ]
    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _lines(report: Mapping[str, Any]) -> list[str]:
    """What it comes to, in words."""
    if report["kind"] == "owner":
        answered = ", ".join(f"{n:,} × {kind}" for kind, n in sorted(report["answered"].items()))
        result = [f"answered {answered or 'nothing'}; refused {report['refused']:,}"]
        if report["epsilon"] is not None:
            result.append(
                f"ε {epsilon_text(report['epsilon'])} at δ {delta_text(report['delta'])}, if all "
                "servers keep to what they stated"
            )
        return result

    def labelled(epsilon: float) -> str:
        return with_seed_known(epsilon_text(epsilon), Caveat.SEEDED in report["caveats"])

    result = [f"ε of part {part}: {labelled(epsilon)}" for part, epsilon in report["parts"].items()]
    budget = report["budget_epsilon"]
    of = "" if budget is None else f" of {budget:g} ({report['budget_left']:.3g} left)"
    result.append(
        f"ε {labelled(report['epsilon'])}{of} at δ {delta_text(report['delta'])}, under "
        f"{report['adjacency']}"
    )
    if (seen := report["epsilon_against_server"]) is not None:
        result.append(
            f"ε {labelled(seen)} against the server itself, if as many nodes added their "
            "shares of the noise as the run assumes"
        )
    result += [f"written: {path}" for path in report.get("written", ())]
    result += [
        f"LOST, and the plan charged again: {what}; the budget started again after it"
        for what in report["losses"]
    ]
    return result


def _event(event: Mapping[str, Any]) -> str:
    """Its kind and parameters in a few words."""
    said = []
    for name, value in event.items():
        if name == "kind":
            continue
        if isinstance(value, Mapping):
            said.append(_event(value))
        else:
            number = f"{value:.6g}" if isinstance(value, float) else str(value)
            said.append(f"{name.replace('_', ' ')} {number}")
    return f"{event['kind']}: {', '.join(said)}" if said else str(event["kind"])
