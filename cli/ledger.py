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

from murmuration.cli.options import Json
from murmuration.client.agent.ledger import OwnLedger
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant, chained_record, second_opinion
from murmuration.privacy.accounting.chained_record import (
    Contents,
    Head,
    NoRecord,
    RecordDamaged,
    RecordInUse,
)
from murmuration.privacy.accounting.events import OnPart
from murmuration.privacy.accounting.ledger_lines import Account, LedgerError, account_of
from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.distributed import against_server
from murmuration.privacy.promise import delta_text, epsilon_text, with_seed_known
from murmuration.reporting.live.terminal import Terminal
from murmuration.reporting.run_files import read_json
from murmuration.reporting.spent import rows_of
from murmuration.server.resuming import Done, missing
from murmuration.sims.runtimes.people import Paid, book
from murmuration.strategies.protocol.stated_plan import cost

_MOST_SETS = 10
_RUN, _OWN = "ledger.jsonl", "own-ledger.jsonl"


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
    path = _file(place.expanduser())
    expected = _head(expect) if expect else None
    folder = path.parent
    # What must agree with the ledger is read before it: the ledger is always further.
    done = Done.of(folder) if path.name == _RUN else None
    result = read_json(folder / "result.json") if path.name == _RUN else {}
    try:
        contents = chained_record.read(path)
        first = contents.lines[0] if contents.lines else {}
        account = None if "own-ledger" in first else account_of(contents, path)
        wrong = _wrong(path, contents, account, done, result, expected)
        found = _of_run(account) if account else _of_owner(OwnLedger.read(path))
        if events:
            found["written"] = _events(account, folder)
    except (RecordDamaged, NoRecord, LedgerError) as error:
        _say({"ledger": str(path), "whole": False, "wrong": [str(error)]}, as_json)
        sys.exit(1)
    except RecordInUse as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    report = {
        "ledger": str(path),
        "whole": not wrong,
        "wrong": wrong,
        "lines": contents.head.index,
        "head": str(contents.head),
        **found,
    }
    _say(report, as_json)
    sys.exit(1 if wrong else 0)


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


def _file(place: Path) -> Path:
    if not place.is_dir():
        return place
    for name in (_RUN, _OWN, f"state/{_OWN}"):
        path = place / name
        if path.exists() or chained_record.head_path(path).exists():
            return path
    if (place / "config.json").exists():
        return place / _RUN
    raise InputError(f"{place}: there is neither {_RUN} nor {_OWN}")


def _head(text: str) -> Head:
    try:
        return Head.parse(text)
    except ValueError as error:
        raise InputError(f"--expect: {error}") from None


def _wrong(
    path: Path,
    contents: Contents,
    account: Account | None,
    done: Done | None,
    result: Mapping[str, Any],
    expected: Head | None,
) -> list[str]:
    """Everything that does not agree with the ledger; nothing if it is whole."""
    found = []
    if account and done and (what := missing(path, account, contents.on_chain, done)):
        found.append(what)
    if account and account.settled < len(account.lost):
        found.append(f"{path}: a loss was noted, and the plan not charged again yet")
    if said := result.get("ledger_head"):
        try:
            known = contents.on_chain(Head.parse(str(said)))
        except ValueError:
            known = False
        if not known:
            found.append(f"{path} was rolled back or replaced: result.json knows another head")
    if expected and not contents.on_chain(expected):
        found.append(
            f"{path} was rolled back or replaced: the expected head, of {expected.index} lines, "
            "is not on its chain"
        )
    return found


def _of_run(account: Account) -> dict[str, Any]:
    """What a run has spent."""
    promise = account.promise
    terms: dict[str, Any] = {
        "adjacency": Adjacency(promise["adjacency"]),
        "delta": float(promise["delta"]),
    }
    budget = promise["budget_epsilon"]
    total = accountant.epsilon(account.spent.items(), **terms)
    seen = against_server(account.spent)
    counted = account.spent - account.closed
    against = accountant.epsilon(counted.items(), **terms) if account.closed else total
    return {
        "kind": "run",
        **promise,
        "epsilon": total,
        "epsilon_against_server": accountant.epsilon(seen.items(), **terms) if seen else None,
        "budget_left": None if budget is None else max(0.0, budget - against),
        "losses": account.lost,
        "caveats": sorted(map(str, account.terms.caveats)),
        "events": list(rows_of(account, terms)),
        "parts": _parts(account, terms),
    }


def _events(account: Account | None, folder: Path) -> list[str]:
    """The files that were written about a run's events."""
    if account is None:
        raise InputError("--events is about a run's ledger, and this is an owner's: leave it out")
    promise = account.promise
    terms = {"adjacency": Adjacency(promise["adjacency"]), "delta": float(promise["delta"])}
    try:
        written = second_opinion.write_events(folder, account.spent.items(), **terms)
    except OSError as error:
        raise InputError(f"--events: {folder} cannot be written: {error.strerror}") from None
    return [str(path) for path in written]


def _parts(account: Account, terms: Mapping[str, Any]) -> dict[str, float]:
    """ε of a user of each part, where users are divided into parts."""

    def of(part: int) -> float:
        spent = account.spent.items()
        mine = [(e, times) for e, times in spent if not isinstance(e, OnPart) or e.part == part]
        return accountant.epsilon(mine, **terms)

    parts = sorted({event.part for event in account.spent if isinstance(event, OnPart)})
    return {str(part): of(part) for part in parts}


def _of_owner(own: OwnLedger) -> dict[str, Any]:
    """What an owner's agent has let out."""
    plans = list(own.plans.values())
    delta = max((plan.delta for plan in plans), default=0.0)
    same = len({plan.adjacency for plan in plans}) == 1
    return {
        "kind": "owner",
        "answered": dict(own.answered),
        "refused": own.refusals,
        "plans": [
            {
                "run": plan.run,
                "adjacency": plan.adjacency.value,
                "delta": plan.delta,
                "rounds": plan.rounds,
                "answered": sum(n for (run, _), n in own.rounds.items() if run == plan.run),
                "epsilon": plan.epsilon(),
            }
            for plan in plans
        ],
        "delta": delta or None,
        "epsilon": cost(plans, delta) if same else None,
    }


def _say(report: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(_finite(report), allow_nan=False))
        return
    console = Terminal(soft_wrap=True, highlight=False)
    if report["whole"]:
        console.print(Text.assemble(("whole", "bold green"), f": {report['lines']} lines, chained"))
    for text in report["wrong"]:
        console.print(Text.assemble(("NOT WHOLE: ", "bold red"), text))
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
        found = [f"answered {answered or 'nothing'}; refused {report['refused']:,}"]
        if report["epsilon"] is not None:
            found.append(
                f"ε {epsilon_text(report['epsilon'])} at δ {delta_text(report['delta'])}, if all "
                "servers keep to what they stated"
            )
        return found

    def labelled(epsilon: float) -> str:
        return with_seed_known(epsilon_text(epsilon), Caveat.SEEDED in report["caveats"])

    found = [f"ε of part {part}: {labelled(epsilon)}" for part, epsilon in report["parts"].items()]
    budget = report["budget_epsilon"]
    of = "" if budget is None else f" of {budget:g} ({report['budget_left']:.3g} left)"
    found.append(
        f"ε {labelled(report['epsilon'])}{of} at δ {delta_text(report['delta'])}, under "
        f"{report['adjacency']}"
    )
    if (seen := report["epsilon_against_server"]) is not None:
        found.append(
            f"ε {labelled(seen)} against the server itself, if as many nodes added their "
            "shares of the noise as the run assumes"
        )
    found += [f"written: {path}" for path in report.get("written", ())]
    found += [
        f"LOST, and the plan charged again: {what}; the budget started again after it"
        for what in report["losses"]
    ]
    return found


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
