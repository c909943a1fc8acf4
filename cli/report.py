"""``murmuration report``: a run's report from its folder, or several runs beside each other."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from murmuration.cli.options import AUDIT, Json, meaning
from murmuration.preference.data.rows import InputError
from murmuration.reporting.live.terminal import Terminal


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    nonprivate: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run without privacy on the same data, to show beside it. The page "
            "goes into private/: do not publish it unless the data are public."
        ),
    ] = None,
    audit: Annotated[Path | None, typer.Option(help=AUDIT)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=rf"{meaning('out')} Of several runs: the page. \[default: runs-compared.html]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again, or compare runs: a page and a table.

    Nothing is asked or measured anew, so nothing is spent. Of a run that has not ended it says what
    is missing, and what the ledger holds so far.
    """
    from murmuration.reporting.comparison import HEADINGS, read_run, warnings_of

    seen = [read_run(run.expanduser()) for run in runs]
    if len(seen) > 1:
        if nonprivate or audit:
            raise InputError("--nonprivate and --audit are about one run; name one")
        path = _compared(seen, out or Path("runs-compared.html"))
    elif out:
        raise InputError("--out is for several runs: the report of one lies in its folder")
    else:
        path = _of_one(runs[0].expanduser(), seen[0], nonprivate, audit)
    told = warnings_of(seen)
    if as_json:
        rows = [dict(zip(HEADINGS, run.line(), strict=True)) for run in seen]
        print(json.dumps({"rows": rows, "warnings": told, "page": str(path)}))
        return
    console = Terminal(highlight=False)
    if console.width >= 130:
        table = Table(*HEADINGS)
        for run in seen:
            table.add_row(*run.line())
    else:  # a run a column
        table = Table("run", *(run.name for run in seen))
        for row in list(zip(HEADINGS, *(run.line() for run in seen), strict=True))[1:]:
            table.add_row(*row)
    console.print(table)
    for text in told:
        console.print(f"! {text}", style="yellow")
    console.print(f"page: {path}", soft_wrap=True)


def _compared(seen: Sequence[Any], path: Path) -> Path:
    from murmuration.privacy.durable_files import replace_file
    from murmuration.reporting.comparison import MARK, comparison_page

    path = path.expanduser()
    try:
        if path.exists() and not path.read_bytes().startswith(MARK.encode()):
            raise InputError(f"--out {path} is something else; choose another name")
        replace_file(path, comparison_page(seen).encode())
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error.strerror}") from None
    return path


def _of_one(folder: Path, seen: Any, nonprivate: Path | None, audit: Path | None) -> Path:
    from murmuration.privacy.durable_files import replace_file
    from murmuration.reporting.comparison import comparison_page, read_run
    from murmuration.reporting.report import write_report
    from murmuration.reporting.run_files import read_json, read_metrics
    from murmuration.server.run_lock import RunInUse, RunLock

    twin = None
    if nonprivate:
        other = read_run(nonprivate.expanduser())
        if other.private or not other.result:
            raise InputError(f"--nonprivate {nonprivate}: not a finished run without privacy")
        if _digest(other.result) != _digest(seen.result):
            raise InputError(
                f"--nonprivate {nonprivate}: its accuracy was measured on another test"
            )
        twin = other.result
    audited = read_json(audit.expanduser(), *_OF_AUDIT) if audit else None
    if audit and not audited:
        raise InputError(f"--audit {audit}: no such file")
    if (twin or audited) and not (seen.result and seen.private):
        raise InputError("--nonprivate and --audit need a finished private run")
    try:
        lock = RunLock(folder)
    except RunInUse:
        raise InputError(f"{folder} is in use: its report can be written when it ends") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror}") from None
    try:
        if seen.result and not seen.missing:
            return write_report(folder, seen.result, read_metrics(folder), twin=twin, audit=audited)
        path = folder / "report.html"
        replace_file(path, comparison_page([seen]).encode())
        return path
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        lock.close()


_OF_AUDIT = ("target", "adjacency", "epsilon_claimed", "epsilon_lower", "confidence")


def _digest(result: dict[str, Any]) -> object:
    return (result.get("baselines") or {}).get("test_digest")
