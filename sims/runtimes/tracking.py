"""The metrics of a run, given to a function while they are written: to send them to a tracker, say.

- What it is given are the numbers in the folder's ``metrics.jsonl``, which is for release, and
  nothing else. One thread reads that file, wherever the run itself goes on.
- It also learns when a line was written, and with that how long rounds took.
- Lines that are there already are of an earlier attempt, and are not given again.
- A function that fails is given up with one warning; the run does not notice.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.sources import function_named
from murmuration.sims.runtimes.tail import Tail

#: Is given a line's number, and its figures by name.
Report = Callable[[int, dict[str, float]], object]

_SECONDS_BETWEEN_LOOKS = 0.5
#: How long a run that has ended waits for the function.
SECONDS_TO_END = 60.0


@contextmanager
def tracked(
    folder: Path | str, report_to: str | Report | None, *, step: str = "round"
) -> Iterator[None]:
    """Give a function what is written to ``folder/metrics.jsonl`` while the block is in progress.

    Args:
        folder: the run's, which need not exist yet.
        report_to: the function, or ``module:function``; None: nobody is told.
        step: what counts the lines.

    Raises:
        InputError: there is no such function.
    """
    if report_to is None:
        yield
        return
    report = _named(report_to) if isinstance(report_to, str) else report_to
    tail, over = Tail(Path(folder) / "metrics.jsonl"), threading.Event()
    last = max((number for number, _ in _new_lines(tail, step)), default=-1)
    thread = threading.Thread(
        target=_tell, args=(report, tail, step, last, over), name="tracking", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(SECONDS_TO_END)
        if thread.is_alive():
            _warn(f"has not answered for {SECONDS_TO_END:.0f} s; it is left behind")


def _named(source: str) -> Report:
    try:
        return function_named(source)
    except InputError as error:
        raise InputError(f"--report-to {error}") from None


def _tell(report: Report, tail: Tail, step: str, last: int, over: threading.Event) -> None:
    """Give the lines after ``last``, until the run is over and there are no more."""
    try:
        is_last_look = False
        while not is_last_look:
            is_last_look = over.wait(_SECONDS_BETWEEN_LOOKS)
            for number, figures in _new_lines(tail, step):
                if number > last:
                    report(number, figures)
                    last = number
    except (Exception, SystemExit) as error:  # whatever a library does
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        _warn(f"failed, the run goes on without it: {why}")


def _new_lines(tail: Tail, step: str) -> list[tuple[int, dict[str, float]]]:
    """Return the lines since the last look: what counts them, and their finite numbers."""
    lines, _ = tail.read()
    return [
        (
            line[step],
            {
                name: float(value)
                for name, value in line.items()
                if name != step and type(value) in (int, float) and math.isfinite(value)
            },
        )
        for line in lines
        if type(line.get(step)) is int
    ]


def _warn(text: str) -> None:
    with suppress(OSError, ValueError):
        print(f"warning: --report-to {text}", file=sys.stderr, flush=True)
