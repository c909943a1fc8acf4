"""``murmuration audit``: try to refute what is claimed."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from murmuration.audits.auditing import CONFIDENCE, Task
from murmuration.cli.options import Json, meaning, print_json
from murmuration.preference.data.errors import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.plugins import more_elsewhere
from murmuration.terminal.tables import console, table_of
from murmuration.terminal.terminal import Terminal

_SEEDS = 2**32


def audit(
    *,
    target: Annotated[str | None, typer.Argument(help="What to audit; see --list.")] = None,
    adjacency: Annotated[
        Adjacency | None,
        typer.Option(help="Which data sets are neighbours. \\[default: the target's first]"),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"{meaning('epsilon')} The one that is claimed.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials on each data set.")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of each lower bound.")] = CONFIDENCE,
    base: Annotated[
        str, typer.Option(help=f"{meaning('base')} Of pipeline:texts. \\[default: a tiny one]")
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(
            help=rf"{meaning('seed')} Of all draws. \[default: a new one, which is printed]"
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Audit every target and every seeded fault, and write a page."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Where --all writes its page. \\[default: docs/explanation/audits.md in a "
            "checkout, else audits.md]"
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List what there is.")] = False,
    as_json: Json = False,
) -> None:
    """Attack mechanisms: lower bounds on epsilon, beside the claim.

    Exits with status 1 if a bound exceeds a claim that is meant to hold, or a seeded fault is
    missed.
    """
    from murmuration.audits.targets import TARGETS  # imports every mechanism: only when needed

    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    if all_:
        _all(seed, confidence, page, as_json)
        return
    if list_ or target is None:
        table = Table("target", "about", box=None, pad_edge=False)
        for name, entry in TARGETS.items():
            table.add_row(name, entry.about)
        console(stderr=as_json).print(table)
        return
    if target not in TARGETS:
        raise InputError(
            f"there is no audit of {target!r}; choose one of {', '.join(TARGETS)}{more_elsewhere()}"
        )
    from murmuration.audits.report import audit_row

    entry = TARGETS[target]
    if base and not entry.based:
        able = ", ".join(name for name, each in TARGETS.items() if each.based)
        raise InputError(f"--base is for {able}: {target} is about no model of yours")
    adjacency = adjacency or entry.usual
    if adjacency not in entry.adjacencies:
        listed = " or ".join(a for a in Adjacency if a in entry.adjacencies)
        raise InputError(f"{target} claims nothing under {adjacency}; use --adjacency {listed}")
    try:
        epsilon, trials = epsilon or entry.epsilon, trials or entry.trials
        task = Task(adjacency, epsilon, trials, Randomness(seed), confidence, base=base)
        row = audit_row(target, entry, task, seed)
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from error
    if as_json:
        print_json(row)
    else:
        console().print(_table([row]))
    if row["verdict"] == "violated":
        raise typer.Exit(1)


def _all(seed: int, confidence: float, page: Path | None, as_json: bool) -> None:
    from murmuration.audits.report import audit_all, failed
    from murmuration.audits.report import page as page_of
    from murmuration.audits.targets import seeded_faults

    progress = Terminal(stderr=True, highlight=False)
    audits, faults = audit_all(
        seed,
        confidence,
        lambda row: progress.print(
            f"{row.get('target') or 'fault ' + row['fault']}: {row['verdict']} "
            f"({row['seconds']} s)",
            markup=False,
        ),
        seeded_faults(),
    )
    folder = Path("docs/explanation")
    path = page or (folder if folder.is_dir() else Path()) / "audits.md"
    path.write_text(page_of(audits, faults, seed, confidence), encoding="utf-8")
    if as_json:
        print_json({"audits": audits, "faults": faults, "seed": seed, "page": str(path)})
    else:
        console().print(_table(audits))
        if faults:
            console().print(_table(faults))
        progress.print(f"written to {path}", markup=False)
    if failed(audits, faults):
        raise typer.Exit(1)


_COLUMNS = {
    "target": "target",
    "fault": "fault",
    "adjacency": "adjacency",
    "epsilon_claimed": "ε claimed",
    "epsilon_lower": "ε at least",
    "confidence": "confidence",
    "trials": "trials",
    "verdict": "verdict",
    "seconds": "s",
}


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = {name: heading for name, heading in _COLUMNS.items() if name in rows[0]}
    counted = [{n: f"{v:,}" if isinstance(v, int) else v for n, v in row.items()} for row in rows]
    return table_of(counted, columns)
