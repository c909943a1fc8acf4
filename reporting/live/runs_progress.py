"""How far a series of runs is, on standard error: a bar, or lines where there is no terminal."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmuration.reporting.figures import duration
from murmuration.reporting.live.terminal import Terminal


class RunsProgress:
    """Counts runs that have ended, while the ``with`` block is in progress; call it with names.

    Args:
        console: where it is shown; by default standard error.
        clock: seconds, only ever more.
    """

    def __init__(
        self,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._done, self._clock, self._began = 0, 0, clock, 0.0
        self._console = console or Terminal(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("runs", total=None)

    def __enter__(self) -> "RunsProgress":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def begin(self, total: int) -> None:
        """So many runs begin now."""
        self._total, self._began = total, self._clock()
        self._bar.update(self._task, total=total)
        if not self._console.is_terminal:
            self._say(f"{total} run{'' if total == 1 else 's'}")

    def __call__(self, name: str) -> None:
        """The run of this name has ended."""
        self._done += 1
        self._bar.update(self._task, description=name, completed=self._done)
        if not self._console.is_terminal:
            left = (self._clock() - self._began) / self._done * (self._total - self._done)
            then = f", about {duration(left)} left" if self._done < self._total else ""
            self._say(f"run {self._done} of {self._total} ended: {name}{then}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
