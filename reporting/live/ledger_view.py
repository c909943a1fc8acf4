"""A ledger as a terminal shows it: of a run, or of an owner's agent (``api.ledgers.verify``)."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from murmuration.privacy.accounting.terms import Caveat
from murmuration.privacy.promise import delta_text, epsilon_text, with_seed_known


def table(report: Mapping[str, Any]) -> Table:
    """The events of a run's ledger, or the plans of an owner's."""
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


def lines(report: Mapping[str, Any]) -> list[str]:
    """A summary of a ledger in words."""
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
        f"{report['adjacency']}; caveats: {', '.join(report['caveats']) or 'none'}"
    )
    if (seen := report["epsilon_against_server"]) is not None:
        result.append(
            f"ε {labelled(seen)} against the server itself, if as many nodes added their "
            "shares of the noise as the run assumes"
        )
    return result + [f"written: {path}" for path in report.get("written", ())]


def _event(event: Mapping[str, Any]) -> str:
    parts = []
    for name, value in event.items():
        if name == "kind":
            continue
        if isinstance(value, Mapping):
            parts.append(_event(value))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            parts += [_event({"kind": name.removesuffix("s"), **each}) for each in value]
        else:
            number = f"{value:.6g}" if isinstance(value, float) else str(value)
            parts.append(f"{name.replace('_', ' ')} {number}")
    return f"{event['kind']}: {', '.join(parts)}" if parts else str(event["kind"])
