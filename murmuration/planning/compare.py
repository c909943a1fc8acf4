"""Strategies side by side: the same users, the same (epsilon, delta), the same adjacency, seeds.

Every run keeps its own folder, so a comparison that was interrupted continues where it stopped.
What cannot be run is refused before anything is: for all strategies at once, none of them quietly
replaced or left out.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from rich.text import Text

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.ledger import read_spent
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import delta_text
from murmuration.privacy.strict_json import strict_json
from murmuration.sims.runtimes.execute import check_begins
from murmuration.sims.runtimes.sweep import Failed, OnRun, Outcome, one_by_one
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.varied import check_name, value_of
from murmuration.terminal.tables import as_text

_LABEL = 0.07  # of the width of the plot, at most, is the label of a tick
#: Of a comparison's table; ``_PROMISE`` stands there, too, where it is not the same in all rows.
_HEADINGS = ("strategy", "ε", "accuracy", "rounds", "user gradients", "bytes per user")
_PROMISE = "adjacency"
_BASELINE = "nonprivate"


@dataclass(frozen=True)
class Cell:
    """One strategy at one epsilon (none for ``nonprivate``): the results of its seeds.

    Attributes:
        strategy: its label, with settings of its own.
        adjacency: which data sets are neighbours.
        failed: the reason why one of its runs failed; then there are no results.
    """

    strategy: str
    epsilon: float | None
    adjacency: Adjacency
    results: tuple[dict[str, Any], ...]
    failed: str | None = None

    @property
    def promise(self) -> str:
        """The adjacency of epsilon; empty without privacy."""
        return "" if self.epsilon is None else str(self.adjacency)

    @property
    def accuracy(self) -> tuple[float, float | None] | None:
        """The mean over seeds and the standard deviation; for one seed its accuracy and standard
        error. None if it was not measured.
        """
        measured = [result["heldout_accuracy"] for result in self.results]
        accuracies = [accuracy for accuracy in measured if accuracy is not None]
        if not accuracies:
            return None
        several = len(accuracies) > 1
        error = stdev(accuracies) if several else self.results[0]["heldout_error"]
        return fmean(accuracies), error

    def row(self) -> dict[str, Any]:
        """A line of the table: mean and standard deviation over seeds."""
        mean, error = self.accuracy or (None, None)
        several = sum(r["heldout_accuracy"] is not None for r in self.results) > 1
        first = self.results[0] if self.results else {}
        return {
            "strategy": self.strategy,
            "epsilon": self.epsilon,
            "adjacency": str(self.adjacency) if self.epsilon is not None else None,
            "accuracy_mean": mean,
            "accuracy_sd": error if several else None,
            "accuracy_error": first.get("heldout_error"),
            "rounds": fmean(r["rounds"] for r in self.results) if self.results else None,
            "gradients": first.get("gradients"),
            "bytes_per_user": first.get("bytes_per_user"),
            "failed": self.failed,
        }

    def line(self) -> tuple[str, ...]:
        """The cells under the headings; a failure stands in place of the accuracy.

        The accuracy is mean ± standard deviation over seeds; of one seed, ± its standard error.
        """
        row = self.row()
        name = self.strategy, "–" if self.epsilon is None else f"{self.epsilon:g}"
        if self.failed:
            return (*name, f"FAILED: {self.failed}", "", "", "")
        accuracy = "not measured"
        if self.accuracy is not None:
            mean, error = self.accuracy
            accuracy = f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")
        rounds, whole = f"{row['rounds']:.0f}", (row["gradients"], row["bytes_per_user"])
        return (*name, accuracy, rounds, *(f"{number:,.0f}" for number in whole))


@dataclass(frozen=True, repr=False)
class StrategyComparison(Sequence[Cell]):
    """Strategies side by side: cells, and as text what ``murmuration compare`` prints.

    In a notebook it shows its table and its plot.

    Attributes:
        path: the folder of all runs, the table and the plot.
        cells: one for each strategy and epsilon.
        delta: that of all runs.
        composed_epsilon: what releasing all private runs would cost, had their seeds been secret;
            not a number where they are under different adjacencies.
    """

    path: Path
    cells: Sequence[Cell]
    delta: float
    composed_epsilon: float

    def __getitem__(self, place: Any) -> Any:
        return self.cells[place]

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def promises(self) -> list[str]:
        """The adjacencies of the private runs."""
        return list(dict.fromkeys(cell.promise for cell in self.cells if cell.promise))

    def table(self) -> list[tuple[str, ...]]:
        """The headings, and a line for each cell."""
        lines = [_HEADINGS, *(cell.line() for cell in self.cells)]
        if len(self.promises) < 2:
            return lines
        column = [_PROMISE, *(cell.promise or "–" for cell in self.cells)]
        return [(*line[:2], each, *line[2:]) for each, line in zip(column, lines, strict=True)]

    @property
    def caption(self) -> str:
        """The caption: what all figures share, and the meaning of ±."""
        seeds = max((len(cell.results) for cell in self.cells), default=0)
        spread = (
            "one seed, ± its standard error, at most"
            if seeds == 1
            else f"mean ± standard deviation over {seeds} seeds"
        )
        promised = f"δ = {delta_text(self.delta)}"
        if len(self.promises) == 1:
            promised += f" under {self.promises[0]}"
        elif self.promises:
            promised += "; different promises, whose ε do not compare"
        return f"{promised}; {spread}"

    @property
    def together(self) -> str:
        """The cost of releasing all of it; empty without privacy."""
        if not self.promises:
            return ""
        public = (
            "The seeds of a comparison are public and shared, so release none of it: compare on "
            "public or synthetic data, and run the winner without a seed."
        )
        if math.isnan(self.composed_epsilon):
            return f"Under different adjacencies no ε is of all these runs together. {public}"
        return (
            "With secret, independent seeds, releasing all of these private runs would cost ε = "
            f"{self.composed_epsilon:.3g}. {public}"
        )

    def to_json(self) -> dict[str, Any]:
        """The output of ``murmuration compare --json``."""
        composed = self.composed_epsilon
        return {
            "rows": [cell.row() for cell in self.cells],
            "composed_epsilon": composed if math.isfinite(composed) else None,
            "out": str(self.path),
        }

    def __rich__(self) -> Group:
        headings, *lines = self.table()
        table = Table(title=self.caption)
        for heading in headings:
            table.add_column(heading, overflow="fold")
        for cell, line in zip(self.cells, lines, strict=True):
            table.add_row(*line, style="bold red" if cell.failed else "")
        below = [self.together] if self.together else []
        return Group(table, *map(Text, [*below, f"table, plot and runs: {self.path}"]))

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"StrategyComparison({str(self.path)!r}, {len(self.cells)} cells)"

    def plot(self) -> Figure:
        """A figure of accuracy over epsilon, a line for each strategy, with the intervals of the
        table; one panel per adjacency.
        """
        promises = self.promises or [""]
        size = (4.6 + 3.6 * len(promises), 4.4)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(promises), sharey=True, squeeze=False)[0]
        for axes, promise in zip(panels, promises, strict=True):
            _panel(axes, self.cells, promise)
        panels[0].set_ylabel("held-out accuracy")
        caption = self.caption.replace("mean ±", "bars and bands:").replace("±", "bars and bands:")
        figure.suptitle(caption, x=0.01, ha="left", fontsize="medium", color="0.25")
        named = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if named:  # something was measured
            figure.legend(named.values(), named, frameon=False, loc="outside right center")
        return figure

    def write(self) -> None:
        """Write rows, plot and a short report in words into the folder."""
        headings, *lines = self.table()
        relations = dict.fromkeys(c.adjacency for c in self.cells if c.epsilon is not None)
        page = ["# Comparison", ""]
        page += [f"- {relation}: {relation.sentence()}" for relation in relations]
        page += ["", f"{self.caption}.", ""]
        table = [headings, ["---"] * len(headings), *lines]
        page += [f"| {' | '.join(line)} |" for line in table]
        page += ["", self.together] if self.together else []
        (self.path / "report.md").write_text("\n".join(page) + "\n", encoding="utf-8")
        rows = strict_json({"rows": [cell.row() for cell in self.cells]}, indent=2)
        (self.path / "rows.json").write_text(rows + "\n", encoding="utf-8")
        self.plot().savefig(self.path / "comparison.png", dpi=160)

    def _repr_html_(self) -> str:
        """The table and the plot for notebooks. All text is escaped."""
        headings, *lines = self.table()
        rows = (map(escape, line) for line in lines)
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
        png = BytesIO()
        self.plot().savefig(png, format="png", dpi=80)
        image = f'<img src="data:image/png;base64,{b64encode(png.getvalue()).decode()}">'
        return (
            f"<table><caption>{escape(self.caption)}</caption>"
            f"<tr><th>{'</th><th>'.join(headings)}</th></tr>{body}</table>{image}"
        )


@dataclass(frozen=True)
class _Planned:
    """One strategy at one epsilon, to be run, with its ``label``."""

    label: str
    epsilon: float | None
    configs: Sequence[RunConfig]


def compare(
    base: RunConfig,
    strategies: Sequence[str],
    epsilons: Sequence[float],
    seeds: int,
    out: Path,
    *,
    on_run: OnRun = lambda _: None,
    run_all: Callable[[Sequence[RunConfig], OnRun], list[Outcome]] = one_by_one,
) -> StrategyComparison:
    """Run every strategy at every epsilon with ``seeds`` seeds below ``out``.

    ``strategies`` may have a variant and settings of their own, as in ``aup:published`` and
    ``uls:learning_rate=0.5:rounds=100``. ``run_all`` and ``on_run`` as in ``sims.runtimes.sweep``.

    Raises:
        InputError: strategies that cannot run so, a line for each; then nothing was run.
    """
    planned = _checked(base, strategies, epsilons, seeds, out)
    outcomes = iter(run_all([config for each in planned for config in each.configs], on_run))
    cells = []
    for each in planned:
        ended = [next(outcomes) for _ in each.configs]
        whys = [one.why if isinstance(one, Failed) else str(one) for one in ended
                if not isinstance(one, dict)]  # fmt: skip
        results = () if whys else tuple(one for one in ended if isinstance(one, dict))
        adjacency = Adjacency(each.configs[0].adjacency)
        cells.append(Cell(each.label, each.epsilon, adjacency, results, *whys[:1]))
    return StrategyComparison(out, cells, base.delta, composed_epsilon(cells, base.delta))


def _checked(
    base: RunConfig, labels: Sequence[str], epsilons: Sequence[float], seeds: int, out: Path
) -> list[_Planned]:
    """All runs to be made, each of which can start.

    Raises:
        InputError: one cannot; the message has the reason.
    """
    planned: list[_Planned] = []
    refused: dict[str, list[str]] = {}
    for label in labels:
        try:
            changes = _changes(label, base.adjacency)
        except InputError as error:
            refused.setdefault(str(error), []).append(label)
            continue
        # Without privacy there is no epsilon: one cell serves for all.
        without = changes["strategy"] == _BASELINE
        targets: Sequence[float | None] = [None] if without else epsilons
        whys: dict[str, list[str]] = {}
        for epsilon in targets:
            try:
                configs = _configs(base, changes, label, epsilon, seeds, out=out)
                planned.append(_Planned(label, epsilon, configs))
            except InputError as error:
                whys.setdefault(str(error), []).append(f"{epsilon:g}" if epsilon else "")
        for why, those in whys.items():
            at = "" if len(those) == len(targets) else f" at ε = {', '.join(those)}"
            refused.setdefault(why, []).append(label + at)
    if len({*labels}) < len(labels):
        refused["--strategies names one twice: give each once"] = []
    if refused:
        lines = [
            why if len(labels) == len(those) > 1 or not those else f"{', '.join(those)}: {why}"
            for why, those in refused.items()
        ]
        lines += _own_adjacencies(base, labels)
        first = "nothing was run, because not all can be:"
        raise InputError(lines[0] if len(lines) == 1 else "\n  ".join([first, *lines]))
    return planned


def _changes(label: str, adjacency: str) -> dict[str, Any]:
    """The settings of a strategy, from its label.

    Raises:
        InputError: there is no such strategy, it has no guarantee, or a setting is not its own.
    """
    name, *parts = label.split(":")
    strategy = registry.named(name)
    own: dict[str, Any] = {}
    for part in parts:
        field, equals, text = part.partition("=")
        field, where = field.strip().replace("-", "_"), f"--strategies {label}"
        if not equals:
            field, text = "variant", part
        if field != "adjacency":
            check_name(field, where)
        if field in own or field == "strategy":
            raise InputError(f"{where}: {field} stands there twice")
        own[field] = value_of(field, text.strip(), where)
    relations = [each.value for each in Adjacency if each in strategy.adjacencies]
    if (relation := own.get("adjacency", adjacency)) not in relations:
        raise InputError(f"no guarantee under {relation}, only under {' or '.join(relations)}")
    solved = {"rounds": 0, "cohort": 0} if strategy.rounds else {}
    return {"strategy": name, **solved, **own}


def _own_adjacencies(base: RunConfig, labels: Sequence[str]) -> list[str]:
    """Advice if some strategies have no guarantee under the adjacency; empty otherwise."""
    ours = registry.strategies()
    named = {each: ours[each.split(":")[0]] for each in labels if each.split(":")[0] in ours}
    those = {label: strategy for label, strategy in named.items() if "adjacency=" not in label}
    relation = Adjacency(base.adjacency)
    if all(relation in strategy.adjacencies for strategy in those.values()):
        return []
    shared = [each for each in Adjacency if all(each in s.adjacencies for s in those.values())]
    together = f"compare under --adjacency {' or '.join(shared)}" if shared else "they share none"
    own = [
        label
        if label not in those or relation in those[label].adjacencies
        else f"{label}:adjacency={next(a for a in Adjacency if a in those[label].adjacencies)}"
        for label in named
    ]
    return [
        f"{together}; or each under its own, which are different promises: --strategies "
        + ",".join(own)
    ]


def _configs(
    base: RunConfig,
    changes: Mapping[str, Any],
    label: str,
    epsilon: float | None,
    seeds: int,
    *,
    out: Path,
) -> list[RunConfig]:
    """The runs of a strategy at an epsilon, one for each seed, which can start.

    Raises:
        InputError: they cannot.
    """
    configs = []
    for seed in range(seeds):
        folder = (out / "runs" / _folder(label, epsilon, seed)).absolute()
        budget = base.epsilon if epsilon is None else epsilon
        change = {"epsilon": budget, "seed": seed, "out": str(folder)}
        configs.append(base.changed(**changes, **change))
        if seed == 0 or folder.exists():
            check_begins(configs[-1])
    return configs


def _folder(label: str, epsilon: float | None, seed: int) -> str:
    budget = "" if epsilon is None else f"-epsilon{epsilon:g}"
    return f"{label.replace(':', '-').replace('/', '-')}{budget}-seed{seed}"


def composed_epsilon(cells: Sequence[Cell], delta: float) -> float:
    """The epsilon of releasing every private run, had each had a secret seed of its own; not a
    number where they are under different adjacencies."""
    private = [cell for cell in cells if cell.epsilon is not None and cell.results]
    relations = {cell.adjacency for cell in private}
    if len(relations) > 1:
        return math.nan
    ledgers = [Path(run["out"]) / "ledger.jsonl" for cell in private for run in cell.results]
    runs = [read_spent(ledger).items() for ledger in ledgers]
    relation = relations.pop() if relations else Adjacency.ADD_REMOVE
    return accountant.epsilon(*runs, adjacency=relation, delta=delta, interval=1e-3)


def _apart(ticks: Iterable[float]) -> list[float]:
    """The ticks whose labels do not touch on a logarithmic axis; the first and the last are
    kept.
    """
    ordered = sorted(ticks)
    kept = ordered[:1]
    if len(ordered) < 2:
        return kept
    least = (ordered[-1] / ordered[0]) ** _LABEL
    for tick in ordered[1:-1]:
        if tick >= kept[-1] * least and tick * least <= ordered[-1]:
            kept.append(tick)
    return [*kept, ordered[-1]]


def _panel(axes: Axes, cells: Sequence[Cell], promise: str) -> None:
    """Draw the accuracies under one promise over its epsilons, and what they are held against."""
    names = list(dict.fromkeys(cell.strategy for cell in cells if cell.epsilon is not None))
    for place, name in enumerate(names):
        aside = 1.0 + 0.025 * (place - len(names) / 2)  # so that equals do not hide each other
        mine = [cell for cell in cells if (cell.strategy, cell.promise) == (name, promise)]
        points = [(cell.epsilon, *cell.accuracy) for cell in mine if cell.epsilon and cell.accuracy]
        if points:
            epsilons, means, errors = zip(*points, strict=True)
            axes.errorbar(
                [epsilon * aside for epsilon in epsilons],
                means,
                yerr=[math.nan if error is None else error for error in errors],
                marker="o",
                ms=4,
                capsize=3,
                color=f"C{place}",
                label=name,
            )
    for cell in cells:
        if cell.epsilon is None and cell.accuracy:
            mean, error = cell.accuracy
            label = f"{cell.strategy}: no privacy"
            axes.axhline(mean, color="0.4", ls="--", lw=1, label=label)
            axes.axhspan(
                mean - (error or 0.0), mean + (error or 0.0), color="0.4", alpha=0.12, lw=0
            )
    _baselines(axes, [result for cell in cells for result in cell.results])
    ticks = _apart({c.epsilon for c in cells if c.epsilon is not None and c.promise == promise})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    if len(ticks) == 1:
        axes.set_xlim(ticks[0] / 2, ticks[0] * 2)  # else its label may lie at the figure's edge
    axes.set_xlabel(f"ε of a user under {promise}" if promise else "no ε")
    axes.spines[["top", "right"]].set_visible(False)


def _baselines(axes: Axes, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw what rules come to that learn nothing, where they are known."""
    rules = {
        "guessing": [result["heldout_chance"] for result in results],
        "the longer response": [
            (result.get("baselines") or {}).get("longer_wins") for result in results
        ],
    }
    for (rule, shares), style in zip(rules.items(), (":", "-."), strict=True):
        if known := [share for share in shares if share is not None]:
            axes.axhline(known[0], color="0.6", ls=style, lw=1, label=rule)
