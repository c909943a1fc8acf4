"""A finished run, as programs and notebooks read it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from murmuration.preference.data.errors import InputError
from murmuration.preference.escaping import visible
from murmuration.privacy.plugins import brought
from murmuration.privacy.regular_files import read_regular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from murmuration.preference.language.likelihood import SavedLikelihood
    from murmuration.preference.language.reward import SavedReward
    from murmuration.preference.reward import RewardModel
    from murmuration.privacy.accounting.ledger_lines import Charge
    from murmuration.privacy.promise import Promise


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run. In a notebook it shows its promise, what came of it and its plot.

    Attributes:
        path: its folder.
        result: what ``--json`` prints.
        picture: name and words of the plot that a notebook shows.
    """

    picture: ClassVar[tuple[str, str]] = "accuracy", "accuracy by round"

    path: Path
    result: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """Load the run in a folder.

        Args:
            folder: that of a run, as ``out`` of ``train``.

        Raises:
            InputError: there is none, or it is not finished.
        """
        path = Path(folder).expanduser().absolute()
        from murmuration.server.record.lineage import derived_run
        from murmuration.server.record.result import FILE, Result
        from murmuration.server.record.run_files import read_json

        if not (written := read_json(path / FILE)):
            raise InputError(f"{folder}: no finished run: it has no {FILE}")
        if kind := derived_run(written):
            return kind.load()(path, written)
        return cls(path, Result.from_json(written, path / FILE).to_json())

    @cached_property
    def promise(self) -> Promise:
        """The privacy guarantee of the run and of everything made from it, caveats included.

        As text it is one line. It includes the cost of its base.

        Raises:
            InputError: its files do not fit each other.
        """
        from murmuration.server.record.lineage import promise_of_run

        return promise_of_run(self.path)

    @property
    def ledger(self) -> list[Charge]:
        """The charge of each release, in order; the ledger is verified at each call.

        Raises:
            LedgerError: it cannot be read, or is not what was written.
        """
        from murmuration.privacy.accounting.ledger import read_charges

        return [charge for ledger in self._ledgers() for charge in read_charges(ledger)]

    def _ledgers(self) -> Iterator[Path]:
        yield self.path / "ledger.jsonl"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A line for each round, from accounted releases only.

        Each has ``heldout_accuracy``: None after rounds without an evaluation. In the last it is
        the result's, None if no accuracy was measured.
        """
        lines = [{"heldout_accuracy": None, **line} for line in self._written_metrics]
        if lines:
            lines[-1]["heldout_accuracy"] = self.result["heldout_accuracy"]
        return lines

    @property
    def _written_metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in read_regular(path).splitlines()]

    @cached_property
    def model(self) -> RewardModel | SavedReward | SavedLikelihood:
        """The model: a ``RewardModel``, or a language model's rewards or log-likelihoods. All have
        ``score``.

        Raises:
            InputError: it cannot be loaded.
        """
        from murmuration.preference.language.likelihood import load_scorer

        return load_scorer(self.path / "model")

    @property
    def report(self) -> Path:
        """The path of the run's page, ``report.html``."""
        return self.path / "report.html"

    def plot(self) -> Figure:
        """A figure of held-out accuracy over rounds, and below it epsilon so far."""
        return brought("murmuration.plots")["training"].load()(self.result, self._written_metrics)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self._came_to}, {self._promised})"

    def _repr_html_(self) -> str:
        """A table and the plot for notebooks. All text is escaped."""
        rows = {
            **self._about(),
            "privacy": self._promised,
            "result": self._came_to,
            "folder": self.path,
        }
        plot, text = self.picture
        cells = (f"<tr><th>{name}</th><td>{_html(value)}</td></tr>" for name, value in rows.items())
        image = ""
        with suppress(OSError):
            png = base64.b64encode((self.path / "plots" / f"{plot}.png").read_bytes()).decode()
            image = f'<img alt="{text}" width="464" src="data:image/png;base64,{png}">'
        return f"<table>{''.join(cells)}</table>{image}"

    def _about(self) -> dict[str, Any]:
        return {name: self.result[name] for name in ("strategy", "rounds")}

    @property
    def _came_to(self) -> str:
        accuracy = self.result["heldout_accuracy"]
        return "accuracy not measured" if accuracy is None else f"accuracy {accuracy:.4f}"

    @property
    def _promised(self) -> str:
        """The guarantee in words, or the reason why there is none: showing a run must not fail."""
        try:
            return str(self.promise)
        except InputError as error:
            return f"no promise: {error}"


def model_folder(model: Run | str | os.PathLike[str]) -> str:
    """The folder of a run's model; another folder, or the name of a base, unchanged."""
    path = model.path if isinstance(model, Run) else Path(model)
    of_run = (path / "ledger.jsonl").is_file() and (path / "model").is_dir()
    return str(path / "model") if of_run or isinstance(model, Run) else os.fspath(model)


def _html(value: object) -> str:
    return escape(visible(str(value)))
