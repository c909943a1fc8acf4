"""Strategies side by side: the same users, the same (epsilon, delta), the same adjacency, seeds.

Every run keeps its own folder, so a comparison that was interrupted continues where it stopped.
A strategy without a guarantee under the adjacency is listed as refused, never quietly replaced.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.ledger import read_spent
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.strict_json import strict_json
from murmuration.reporting.live.tables import as_text
from murmuration.sims.runtimes.sweep import Failed, OnRun, Outcome, one_by_one
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig

_LABEL = 0.07  # of the width of the plot, at most, is the label of a tick
#: Of a comparison's table.
HEADINGS = ("strategy", "ε", "accuracy", "rounds", "user gradients", "bytes per user")


@dataclass(frozen=True)
class Cell:
    """One strategy at one epsilon: the results of its seeds, or why there are none.

    ``refused``: it cannot run with these settings; ``failed``: a run of it was begun and aborted.
    """

    strategy: str
    epsilon: float | None
    results: tuple[dict[str, Any], ...]
    refused: str | None = None
    failed: str | None = None

    @property
    def missing(self) -> str | None:
        """In words why there are no results."""
        if self.failed:
            return f"FAILED: {self.failed}"
        return f"refused: {self.refused}" if self.refused else None

    def row(self) -> dict[str, Any]:
        """A line of the table: mean and standard deviation over seeds."""
        told = [result["heldout_accuracy"] for result in self.results]
        accuracies = [accuracy for accuracy in told if accuracy is not None]
        first = self.results[0] if self.results else {}
        return {
            "strategy": self.strategy,
            "epsilon": self.epsilon,
            "accuracy_mean": fmean(accuracies) if accuracies else None,
            "accuracy_sd": stdev(accuracies) if len(accuracies) > 1 else None,
            "accuracy_error": first.get("heldout_error"),
            "rounds": fmean(r["rounds"] for r in self.results) if self.results else None,
            "gradients": first.get("gradients"),
            "bytes_per_user": first.get("bytes_per_user"),
            "refused": self.refused,
            "failed": self.failed,
        }

    def line(self) -> tuple[str, ...]:
        """Return what stands under ``HEADINGS``; what is missing stands where the accuracy would.

        The accuracy is mean ± standard deviation over seeds; of one seed, ± its standard error.
        """
        row = self.row()
        name = self.strategy, "–" if self.epsilon is None else f"{self.epsilon:g}"
        if self.missing:
            return (*name, self.missing, "", "", "")
        accuracy = "not measured"
        if row["accuracy_mean"] is not None:
            off = row["accuracy_error"] if row["accuracy_sd"] is None else row["accuracy_sd"]
            accuracy = f"{row['accuracy_mean']:.4f}" + ("" if off is None else f" ± {off:.4f}")
        rounds, whole = f"{row['rounds']:.0f}", (row["gradients"], row["bytes_per_user"])
        return (*name, accuracy, rounds, *(f"{number:,.0f}" for number in whole))


@dataclass(frozen=True, repr=False)
class StrategyComparison(Sequence[Cell]):
    """Strategies side by side: cells, and as text what ``murmuration compare`` prints.

    In a notebook it shows its table and its plot.

    Attributes:
        path: the folder of all runs, the table and the plot.
        cells: one for each strategy and epsilon.
        adjacency: which data sets are neighbours.
        delta: that of all runs.
        composed_epsilon: what releasing all private runs would cost, had their seeds been secret.
    """

    path: Path
    cells: Sequence[Cell]
    adjacency: Adjacency
    delta: float
    composed_epsilon: float

    def __getitem__(self, place: Any) -> Any:
        return self.cells[place]

    def __len__(self) -> int:
        return len(self.cells)

    def to_json(self) -> dict[str, Any]:
        """Return what ``murmuration compare --json`` prints."""
        composed = self.composed_epsilon
        return {
            "rows": [cell.row() for cell in self.cells],
            "composed_epsilon": composed if math.isfinite(composed) else None,
            "out": str(self.path),
        }

    def __rich__(self) -> Group:
        table = Table(*HEADINGS, title=f"{self.adjacency}, δ = {self.delta:g}")
        for cell in self.cells:
            style = ("bold red" if cell.failed else "yellow") if cell.missing else ""
            table.add_row(*cell.line(), style=style)
        lines = [f"table, plot and runs: {self.path}"]
        if self.composed_epsilon:
            lines.insert(
                0,
                f"All of it together would cost ε = {self.composed_epsilon:.3g}, had the seeds "
                "been secret. They are public: release none of it.",
            )
        return Group(table, *map(Text, lines))

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"StrategyComparison({str(self.path)!r}, {len(self.cells)} cells)"

    def plot(self) -> Figure:
        """Return a figure of accuracy over epsilon, a line for each strategy."""
        return plot(self.cells)

    def _repr_html_(self) -> str:
        """Return what notebooks show. All text is escaped."""
        rows = (map(escape, cell.line()) for cell in self.cells)
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        png = BytesIO()
        self.plot().savefig(png, format="png", dpi=80)
        image = f'<img src="data:image/png;base64,{b64encode(png.getvalue()).decode()}">'
        return f"<table><tr><th>{'</th><th>'.join(HEADINGS)}</th></tr>{body}</table>{image}"


def compare(
    base: RunConfig,
    strategies: Sequence[str],
    epsilons: Sequence[float],
    seeds: int,
    out: Path,
    on_run: OnRun = lambda _: None,
    run_all: Callable[[Sequence[RunConfig], OnRun], list[Outcome]] = one_by_one,
) -> list[Cell]:
    """Run every strategy at every epsilon with ``seeds`` seeds below ``out``.

    ``strategies`` may name a variant, as in ``aup:published``. ``run_all`` and ``on_run`` as in
    ``sims.runtimes.sweep``.

    Raises:
        InputError: settings or data that no strategy can use.
    """
    asked: list[tuple[str, float | None, list[RunConfig], str | None]] = []
    for name in strategies:
        strategy, _, variant = name.partition(":")
        # Under a relation that suits it: a name that is wrong must not pass for a refusal.
        suits = min(registry.named(strategy).adjacencies)
        base.changed(adjacency=suits.value, **_named(strategy, variant))
        # Without privacy there is no epsilon: one cell serves for all.
        targets: Iterable[float | None] = [None] if strategy == "nonprivate" else epsilons
        for epsilon in targets:
            configs, refused = [], None
            try:
                for seed in range(seeds):
                    folder = (out / "runs" / _folder(name, epsilon, seed)).absolute()
                    change = {"epsilon": epsilon or base.epsilon, "seed": seed, "out": str(folder)}
                    configs.append(base.changed(**_named(strategy, variant), **change))
            except InputError as error:
                configs, refused = [], str(error)
            asked.append((name, epsilon, configs, refused))
    result = iter(run_all([config for _, _, configs, _ in asked for config in configs], on_run))
    cells = []
    for name, epsilon, configs, refused in asked:
        outcomes = [next(result) for _ in configs]
        refused = refused or next((o for o in outcomes if isinstance(o, str)), None)
        failed = next((o.why for o in outcomes if isinstance(o, Failed)), None)
        whole = refused is None and failed is None
        results = tuple(o for o in outcomes if isinstance(o, dict)) if whole else ()
        cells.append(Cell(name, epsilon, results, refused, failed))
    if all(cell.refused for cell in cells):
        raise InputError(f"every run was refused; the first: {cells[0].refused}")
    return cells


def _named(strategy: str, variant: str) -> dict[str, Any]:
    own = {"variant": variant} if variant else {}
    return {"strategy": strategy, **own, **({"rounds": 0} if strategy in registry.solved() else {})}


def _folder(name: str, epsilon: float | None, seed: int) -> str:
    budget = "" if epsilon is None else f"-epsilon{epsilon:g}"
    return f"{name.replace(':', '-')}{budget}-seed{seed}"


def composed_epsilon(cells: Sequence[Cell], adjacency: Adjacency, delta: float) -> float:
    """The epsilon of releasing every private run, had each had a secret seed of its own."""
    runs = []
    for cell in cells:
        for result in cell.results:
            if result["epsilon"] is not None:
                runs.append(read_spent(Path(result["out"]) / "ledger.jsonl").items())
    return accountant.epsilon(*runs, adjacency=adjacency, delta=delta, interval=1e-3)


def _apart(ticks: Iterable[float]) -> list[float]:
    """Those whose labels do not touch on a logarithmic axis; the first and the last are kept."""
    ordered = sorted(ticks)
    kept = ordered[:1]
    if len(ordered) < 2:
        return kept
    least = (ordered[-1] / ordered[0]) ** _LABEL
    for tick in ordered[1:-1]:
        if tick >= kept[-1] * least and tick * least <= ordered[-1]:
            kept.append(tick)
    return [*kept, ordered[-1]]


def plot(cells: Sequence[Cell]) -> Figure:
    """Accuracy against epsilon with one standard deviation over seeds, one line a strategy.

    Of one seed there is no deviation, and no bars.
    """
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(cell.strategy for cell in cells))
    for place, name in enumerate(names):
        aside = 1.0 + 0.025 * (place - len(names) / 2)  # so that equals do not hide each other
        rows = [c.row() for c in cells if c.strategy == name and not c.missing]
        rows = [row for row in rows if row["accuracy_mean"] is not None]
        if not rows:
            continue
        if rows[0]["epsilon"] is None:
            axes.axhline(rows[0]["accuracy_mean"], color="0.4", ls="--", lw=1, label=name)
            continue
        axes.errorbar(
            [row["epsilon"] * aside for row in rows],
            [row["accuracy_mean"] for row in rows],
            yerr=None
            if all(row["accuracy_sd"] is None for row in rows)
            else [row["accuracy_sd"] or math.nan for row in rows],
            marker="o",
            ms=4,
            capsize=3,
            label=name,
        )
    ticks = _apart({cell.epsilon for cell in cells if cell.epsilon is not None})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    if len(ticks) == 1:
        axes.set_xlim(ticks[0] / 2, ticks[0] * 2)  # else its label may lie at the figure's edge
    seeds = max((len(cell.results) for cell in cells), default=0)
    over = "one seed" if seeds == 1 else f"mean and standard deviation over {seeds} seeds"
    axes.set(xlabel="user-level ε", ylabel="held-out accuracy")
    if seeds:
        axes.set_title(over, loc="left", fontsize="small", color="0.35")
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:  # something was measured
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def write(cells: Sequence[Cell], composed: float, base: RunConfig, out: Path) -> None:
    """Rows, plot and a short report in words below ``out``."""
    rows = [cell.row() for cell in cells]
    seeds = max((len(cell.results) for cell in cells), default=0)
    several = f"mean ± standard deviation over {seeds} seeds"
    spread = "one seed, ± its standard error, at most" if seeds == 1 else several
    table = [HEADINGS, ["---"] * len(HEADINGS), *(cell.line() for cell in cells)]
    lines = ["# Comparison", "", Adjacency(base.adjacency).sentence, ""]
    lines += [f"δ = {base.delta:g}; {spread}.", ""]
    lines += [f"| {' | '.join(line)} |" for line in table]
    lines += [
        "",
        f"With secret, independent seeds, releasing all of these private runs would cost ε = "
        f"{composed:.3g}. The seeds of a comparison are public and shared, so release none of it: "
        "compare on public or synthetic data, and run the winner without a seed.",
    ]
    (out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "rows.json").write_text(strict_json({"rows": rows}, indent=2) + "\n", encoding="utf-8")
    plot(cells).savefig(out / "comparison.png", dpi=160)
