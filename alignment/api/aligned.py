"""An alignment that has ended, as programs and notebooks read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group


@dataclass(frozen=True, repr=False)
class AlignedRun(Run):
    """An alignment: it releases nothing, so its charges are those of the runs that it was made
    from, and its metrics a line for each evaluation."""

    picture = "reward_kl", "reward by divergence"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Return a line for each evaluation."""
        return self._written_metrics

    def plot(self) -> Figure:
        """Return a figure of rewards over divergence and over steps."""
        from murmuration.alignment.report import figure

        return figure(self.result, self._written_metrics)

    def write_report(self) -> tuple[Path, Group]:
        """Write its page again; return the page's path, and what a terminal shows.

        Raises:
            InputError: its files do not fit each other, or it is in use.
        """
        from murmuration.alignment.report import summary, write_report
        from murmuration.reporting.again import locked

        with locked(self.path):
            page = write_report(self.path, self.result, self.promise)
        return page, summary(self.result, self.path)

    def _ledgers(self) -> Iterator[Path]:
        yield from sorted((self.path / "model").glob("ledger-*.jsonl"))

    @property
    def _came_to(self) -> str:
        return f"reward {self.result['policy']['proxy']:+.2f}"

    def _about(self) -> dict[str, Any]:
        return {"strategy": "alignment", "steps": self.result["saved_step"]}
