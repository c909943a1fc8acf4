"""The report of a run that has ended, written again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.privacy.durable_files import replace_file
from murmuration.reporting import report
from murmuration.reporting.comparison import RunSeen, comparison_page, digest_of_test, read_run
from murmuration.server.record.run_files import read_json, read_metrics
from murmuration.server.record.run_lock import RunInUse, RunLock

_OF_AUDIT = ("target", "adjacency", "epsilon_claimed", "epsilon_lower", "confidence")


def write_report(
    run: str | os.PathLike[str],
    *,
    nonprivate: str | os.PathLike[str] | None = None,
    audit: str | os.PathLike[str] | None = None,
) -> tuple[Path, RunSeen]:
    """Write the report of a run of training again, or say what is missing of one.

    Args:
        run: its folder.
        nonprivate: folder of the run without privacy on the same data, to show beside it.
        audit: a file with what ``murmuration audit TARGET --json`` printed.

    Returns:
        The report's path, and the run as its folder holds it.

    Raises:
        InputError: what cannot be used, and why.
    """
    folder = Path(run).expanduser()
    seen, twin = read_run(folder), None
    if nonprivate:
        other = read_run(Path(nonprivate).expanduser())
        if other.private or not other.result:
            raise InputError(f"--nonprivate {nonprivate}: not a finished run without privacy")
        if digest_of_test(other.result) != digest_of_test(seen.result):
            raise InputError(
                f"--nonprivate {nonprivate}: its accuracy was measured on another test"
            )
        twin = other.result
    audited = read_json(Path(audit).expanduser(), *_OF_AUDIT) if audit else None
    if audit and not audited:
        raise InputError(f"--audit {audit}: no such file")
    if (twin or audited) and not (seen.result and seen.private):
        raise InputError("--nonprivate and --audit need a finished private run")
    with locked(folder):
        if seen.result and not seen.missing:
            metrics = read_metrics(folder)
            path = report.write_report(folder, seen.result, metrics, twin=twin, audit=audited)
        else:
            path = folder / "report.html"
            replace_file(path, comparison_page([seen]).encode())
    return path, seen


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder of a run that has ended.

    Raises:
        InputError: it is in use, or cannot be written.
    """
    try:
        lock = RunLock(folder)
    except RunInUse:
        raise InputError(f"{folder} is in use: its report can be written when it ends") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror}") from None
    try:
        with disk_errors_as(f"{folder} cannot be written"):
            yield
    finally:
        lock.close()
