"""Files for readers at the end of a training run: its model's card, report, plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from murmuration.preference.choices import WORDS
from murmuration.privacy.promise import Promise
from murmuration.reporting.facts import sampling
from murmuration.reporting.model_card import model_card
from murmuration.reporting.promise import details
from murmuration.reporting.report import write_report
from murmuration.server.record.result import Result
from murmuration.strategies.config import RunConfig


class RunReport:
    """A run in words: its model's card, its report and plots.

    Args:
        config: its settings.
        promise: its own, and what it stands on.
        result: its own.

    Attributes:
        details: of the promise, for programs.
    """

    def __init__(self, config: RunConfig, promise: Promise, result: Result) -> None:
        self._result = result.to_json()
        self.details = details(
            promise,
            result=self._result,
            sampling=sampling(self._result) if config.private else None,
            rows=WORDS[config.task].rows,
        )

    def card(self) -> str:
        """The README of the model."""
        return model_card(self._result, self.details)

    def write(self, folder: Path, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write report and plots into the run's folder; ``metrics`` are its lines, by rounds."""
        write_report(folder, self._result, metrics)
