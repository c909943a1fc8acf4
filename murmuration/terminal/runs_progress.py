"""The progress of a series of runs, on standard error: a bar, or lines without a terminal."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmuration.privacy.figures import counted, duration
from murmuration.terminal.terminal import Terminal


class RunsProgress(Progress):
    """Counts runs that have ended, while the ``with`` block is in progress; call it with names.

    Args:
        console: where it is shown; by default standard error.
        clock: seconds, only ever more.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        console = console or Terminal(stderr=True)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            get_time=clock,
            disable=not console.is_terminal,
        )

    def begin(self, total: int, ended: int = 0) -> None:
        """Show that ``total`` runs begin now, beside those that had ``ended`` before."""
        self.add_task("runs", total=total)
        self._say(counted(total, "run") + (f", beside {ended:,} that had ended" if ended else ""))

    def __call__(self, name: str) -> None:
        """The run of this name has ended."""
        (task,) = self.tasks
        self.update(task.id, description=name, advance=1)
        left = (task.elapsed or 0.0) / task.completed * (task.remaining or 0.0)
        then = f", about {duration(left)} left" if task.remaining else ""
        self._say(f"run {task.completed:.0f} of {task.total:.0f} ended: {name}{then}")

    def _say(self, text: str) -> None:
        """Print a line where there is no bar."""
        if self.disable:
            self.console.print(text, highlight=False, soft_wrap=True)
