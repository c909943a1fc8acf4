"""Plots of what local label privacy costs, from the rows of their reproductions."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from murmuration.sims.reproductions import ctl_vs_ltc, label_dp_fig1

Rows = Sequence[dict[str, Any]]

_FIG1_LINES = {
    label_dp_fig1.NON_PRIVATE: ("0.25", "-", "o"),
    label_dp_fig1.OBJECTIVE: ("C2", "-", "s"),
    label_dp_fig1.OBJECTIVE_PAPER: ("C2", ":", "s"),
    label_dp_fig1.DEBIASED: ("C0", "-", "^"),
    label_dp_fig1.SGD: ("C1", "-", "D"),
    label_dp_fig1.SGD_PUBLISHED: ("C1", ":", "D"),
    label_dp_fig1.MLE: ("C3", "--", "v"),
    label_dp_fig1.PLAIN: ("0.65", ":", "x"),
}


def fig1(rows: Rows) -> Figure:
    """Error against n: a row of panels for each dimension, a column for each epsilon."""
    dimensions = sorted({row["dimension"] for row in rows})
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    size = (3.4 * len(epsilons) + 0.4, 2.7 * len(dimensions) + 1.2)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(
        len(dimensions), len(epsilons), squeeze=False, sharex=True, sharey="row"
    )
    for i, dimension in enumerate(dimensions):
        for j, epsilon in enumerate(epsilons):
            axes = panels[i, j]
            for name, (colour, line, marker) in _FIG1_LINES.items():
                same = [
                    row
                    for row in rows
                    if row["dimension"] == dimension
                    and row["epsilon"] in (None, epsilon)
                    and row["estimator"] == name
                ]
                axes.plot(
                    [row["n"] for row in same],
                    [row["error_mean"] for row in same],
                    color=colour,
                    ls=line,
                    marker=marker,
                    ms=3.5,
                    lw=1.3,
                    label=name,
                )
            axes.set_title(f"d = {dimension}, ε = {epsilon:g}", fontsize=10)
            _logarithmic(axes)
            if j == 0:
                axes.set_ylabel("‖θ̂ − θ*‖₂, mean")
            if i == len(dimensions) - 1:
                axes.set_xlabel("judgements, n")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


_LOSS_LINES = {
    "square": ("C0", "-"),
    "log, de-biased": ("C1", "-"),
    "log, likelihood (MLE-RR)": ("C3", "--"),
    "log, plain": ("0.6", ":"),
}


def settings(rows: Rows) -> Figure:
    """Error against n: a row of panels for each adversary, a column for each setting."""
    names = list(dict.fromkeys(row["setting"] for row in rows))
    adversaries = list(dict.fromkeys(row["adversary"] for row in rows))
    size = (2.7 * len(names) + 0.5, 2.7 * len(adversaries) + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(adversaries), len(names), squeeze=False, sharex=True, sharey=True)
    for i, adversary in enumerate(adversaries):
        for j, setting in enumerate(names):
            axes = panels[i, j]
            for loss, (colour, line) in _LOSS_LINES.items():
                same = [
                    row
                    for row in rows
                    if (row["adversary"], row["setting"], row["loss"]) == (adversary, setting, loss)
                ]
                axes.plot(
                    [row["n"] for row in same],
                    [row["error_mean"] for row in same],
                    color=colour,
                    ls=line,
                    marker="o",
                    ms=3,
                    label=loss,
                )
            axes.set_title(setting if setting != "both" else "both, half each", fontsize=10)
            _logarithmic(axes)
            if j == 0:
                axes.set_ylabel(f"adversary: {adversary}\n‖θ̂ − θ*‖₂, mean")
            if i == len(adversaries) - 1:
                axes.set_xlabel("judgements, n")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(
        f"Labels corrupted with α = {ctl_vs_ltc.ALPHA:g} before (CTL) or after (LTC) coins of "
        f"ε = {ctl_vs_ltc.EPSILON:g}",
        fontsize=11,
    )
    return figure


_M_LINES = {
    "local RR, de-biased": ("C0", "-", "^"),
    "local RR, likelihood": ("C3", "--", "v"),
    "uls": ("C2", "-", "s"),
    "aup": ("C1", "-", "o"),
    "maximum likelihood": ("0.5", ":", ""),
}


def against_m(rows: Rows) -> Figure:
    """Error against the judgements of each user, at fixed judgements and at fixed users."""
    panels = list(dict.fromkeys(row["held"] for row in rows))
    figure = Figure(figsize=(4.2 * len(panels), 3.9), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, held in zip(columns, panels, strict=True):
        for name, (colour, line, marker) in _M_LINES.items():
            same = [row for row in rows if row["held"] == held and row["estimator"] == name]
            axes.errorbar(
                [row["m"] for row in same],
                [row["error_mean"] for row in same],
                [row["error_sd"] for row in same],
                color=colour,
                ls=line,
                marker=marker,
                ms=4,
                lw=1.3,
                elinewidth=0.7,
                label=name,
            )
        axes.set_title(held, fontsize=10)
        _logarithmic(axes)
        axes.set_xlabel("judgements of each user, m")
    columns[0].set_ylabel("‖θ̂ − θ*‖₂, mean ± sd (answering zero: 2)")
    handles, labels = columns[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _logarithmic(axes: Any) -> None:
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
