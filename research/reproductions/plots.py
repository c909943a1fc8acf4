"""Common parts of the plots of reproductions: lines through rows, panels, plain axes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from murmuration.research.reproductions.entry import Row, Rows, distinct, where

#: Of a line: colour, dashes, marker.
Style = tuple[str, str, str]


def line(axes: Any, rows: Rows, x: str, y: str, *style: str, **more: Any) -> None:
    """Plot one column of some rows against another; keywords are ``Axes.plot``'s."""
    axes.plot([row[x] for row in rows], [row[y] for row in rows], *style, **more)


def styled(axes: Any, rows: Rows, x: str, y: str, style: Style, label: str, **more: Any) -> None:
    """A line in a style, with its name for the legend."""
    colour, dashes, marker = style
    line(axes, rows, x, y, color=colour, ls=dashes, marker=marker, label=label, **more)


def log_ticks(axes: Any, values: Sequence[float]) -> None:
    """A logarithmic x with these values, as people write them, and no others."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def bound(axes: Any, rows: Rows, x: str, y: str, exponent: float, **more: Any) -> None:
    """A dotted line with a bound's exponent through the first point: bounds have no constants."""
    first = rows[0]
    powers = [first[y] * (row[x] / first[x]) ** exponent for row in rows]
    axes.plot([row[x] for row in rows], powers, ":", lw=1, **more)


def with_intervals(axes: Any, rows: Rows, x: str, name: str, **more: Any) -> None:
    """A column's means against another, with their 95 % intervals, none of one seed; keywords are
    ``Axes.errorbar``'s."""
    means, wide = ([row[f"{name}_{what}"] for row in rows] for what in ("mean", "interval"))
    bars = [each or 0.0 for each in wide]
    axes.errorbar([row[x] for row in rows], means, bars, elinewidth=0.7, capsize=1.5, **more)


def against_n(
    rows: Rows,
    *,
    down: str,
    across: str,
    lines: str,
    styles: Mapping[str, Style],
    title: Callable[[Row], str],
    ylabel: Callable[[Row], str],
    size: tuple[float, float],
    margin: tuple[float, float],
    columns: int,
    **more: Any,
) -> Figure:
    """Mean errors against n: a row of panels for each value of ``down``, a column for each of
    ``across``, a line for each style.

    Rows without a value of ``across`` are in every column. ``title`` and ``ylabel`` are told a row
    of the panel; ``size`` is of a panel, ``columns`` of the legend, keywords are of lines.
    """
    downs, acrosses = distinct(rows, down), distinct(rows, across)
    width, height = (
        one * count + rest
        for one, count, rest in zip(size, (len(acrosses), len(downs)), margin, strict=True)
    )
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(len(downs), len(acrosses), squeeze=False, sharex=True, sharey="row")
    for i, first in enumerate(downs):
        for j, second in enumerate(acrosses):
            axes, here = panels[i, j], where(rows, **{down: first, across: (None, second)})
            told = where(here, **{across: second})[0]
            for name, style in styles.items():
                same = where(here, **{lines: name})
                styled(axes, same, "n", "error_mean", style, name, **more)
            axes.set_title(title(told), fontsize=10)
            logarithmic(axes)
            if j == 0:
                axes.set_ylabel(ylabel(told))
            if i == len(downs) - 1:
                axes.set_xlabel("judgements, n")
    legend_below(figure, columns)
    return figure


def legend_below(figure: Figure, columns: int) -> None:
    """Draw one legend for all panels: that of the first."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place = "outside lower center"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, fontsize=9)


def open_corner(axes: Any) -> None:
    """No frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)


def logarithmic(axes: Any) -> None:
    """Logarithmic both ways, with numbers that people write."""
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    open_corner(axes)
