"""``murmuration report``: a run's report from its folder, or several runs beside each other."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from murmuration.cli.options import AUDIT, Json, meaning, print_json
from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.terminal.terminal import Terminal


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
    """Write the report of a run again, or compare runs.

    Nothing is asked or measured anew, so nothing is spent. Of a run that has not ended it says what
    is missing, and what the ledger holds so far.
    """
    from murmuration.reporting.again import write_report
    from murmuration.reporting.comparison import HEADINGS, read_run, warnings_of

    folders = [run.expanduser() for run in runs]
    if kind := next(filter(None, map(_derived, folders)), None):
        if len(runs) > 1 or nonprivate or audit or out:
            raise InputError("the report of an alignment is its own: name its folder alone")
        _of_derived(kind.load().load(folders[0]), as_json)
        return
    if len(folders) > 1:
        if nonprivate or audit:
            raise InputError("--nonprivate and --audit are about one run; name one")
        seen = [read_run(folder) for folder in folders]
        path = _compared(seen, out or Path("runs-compared.html"))
    elif out:
        raise InputError("--out is for several runs: the report of one lies in its folder")
    else:
        path, run = write_report(folders[0], nonprivate=nonprivate, audit=audit)
        seen = [run]
    told = warnings_of(seen)
    if as_json:
        rows = [dict(zip(HEADINGS, run.line(), strict=True)) for run in seen]
        print_json({"rows": rows, "warnings": told, "page": str(path)})
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
    with disk_errors_as(f"--out {path} cannot be written"):
        if path.exists() and not path.read_bytes().startswith(MARK.encode()):
            raise InputError(f"--out {path} is something else; choose another name")
        replace_file(path, comparison_page(seen).encode())
    return path


def _derived(folder: Path) -> EntryPoint | None:
    from murmuration.server.record.lineage import derived_run
    from murmuration.server.record.run_files import read_json

    with suppress(InputError):  # it is damaged, which is said of a run that it might be
        return derived_run(read_json(folder / "result.json"))
    return None


def _of_derived(run: Any, as_json: bool) -> None:
    page, summary = run.write_report()
    if as_json:
        print_json({"result": run.result, "page": str(page)})
        return
    Terminal(highlight=False).print(summary)
    print(f"page: {page}")
