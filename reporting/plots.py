"""The plots of a report, as PNG bytes: accuracy and epsilon, noise beside signal, accuracy over
users.

Made with Matplotlib's objects on an Agg canvas: no global figure or style, so any thread may draw
while others do. Long runs are thinned to a few hundred points a line.

Legend: T rounds that have metrics.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
    StrMethodFormatter,
)

_MOST_POINTS = 500
_WIDTH = 5.8  # inches; at 200 dots each this is sharp on a phone and on a desk


@dataclass(frozen=True)
class Palette:
    """Colours of a plot on light or dark paper."""

    paper: str
    ink: str
    faint: str
    main: str
    second: str


LIGHT = Palette("#ffffff", "#30363d", "#d8dde3", "#17698c", "#c8641b")
DARK = Palette("#1a2027", "#c9d1d9", "#39424d", "#62b6d9", "#f0a35e")


def accuracy_plot(
    result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], palette: Palette = LIGHT
) -> bytes:
    """The ``accuracy_figure`` as a PNG."""
    return _png(accuracy_figure(result, metrics, palette))


def accuracy_figure(
    result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], palette: Palette = LIGHT
) -> Figure:
    """A figure of held-out accuracy over rounds, and below it epsilon so far.

    Where accuracy was measured only at the end it is a dashed line. A run without privacy has no
    epsilon panel.
    """
    rounds_T = _column(metrics, "round")
    accuracy_T, epsilon_T = _column(metrics, "heldout_accuracy"), _column(metrics, "epsilon")
    private = result["epsilon"] is not None
    figure = Figure(figsize=(_WIDTH, 4.4 if private else 2.9), dpi=200, layout="constrained")
    axes = figure.subplots(2 if private else 1, 1, sharex=True, squeeze=False)[:, 0]
    final, chance = result["heldout_accuracy"], result["heldout_chance"]
    _accuracy(axes[0], palette, rounds_T, accuracy_T, final, chance=chance)
    if private:
        _line(axes[1], rounds_T, epsilon_T, palette.second)
        target = result["epsilon_target"]
        if target is not None:
            axes[1].axhline(target, color=palette.second, lw=1.1, ls=(0, (4, 3)))
            _note(axes[1], palette.second, target, f"budget {target:g}", left=True)
        axes[1].set_ylabel("ε so far")
        axes[1].set_ylim(0, 1.12 * np.nanmax([target or 0, *epsilon_T, 1e-9]))
    return _styled(figure, palette, max(result["rounds"], rounds_T.max(initial=1)))


def noise_plot(
    result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], palette: Palette = LIGHT
) -> bytes:
    """Length of the noise and estimated length of the signal in each round's update, as a PNG.

    The signal's square is that of the released update less that of the expected noise, averaged
    over a twentieth of the rounds before the root is taken: roots taken round by round would be
    biased upwards. Where it is below two standard deviations of the noise's own square, over that
    average, nothing is drawn.
    """
    rounds_T = _column(metrics, "round")
    noise_T = np.nan_to_num(_column(metrics, "noise_norm"))
    square_T = np.nan_to_num(_column(metrics, "update_norm")) ** 2 - noise_T**2
    width = max(1, len(rounds_T) // 20)
    smooth_T = _moving_mean(square_T, width)
    visible_T = smooth_T > 2 * noise_T**2 * math.sqrt(2 / (max(1, result["dimension"]) * width))
    signal_T = np.sqrt(np.where(visible_T, smooth_T, np.nan))
    single_T = np.sqrt(np.where(square_T > 0, square_T, np.nan))
    noisy = bool((noise_T > 0).any())

    figure = Figure(figsize=(_WIDTH, 3.2), dpi=200, layout="constrained")
    axes = figure.subplots()
    dots = _thin(len(rounds_T))
    axes.plot(
        rounds_T[dots], single_T[dots], ls="", marker="o", ms=2.2, mew=0, alpha=0.4, c=palette.main
    )
    name = "signal (estimate)" if noisy else "update"
    _line(axes, rounds_T, signal_T, palette.main, label=name)
    if noisy:
        _line(axes, rounds_T, noise_T, palette.second, label="noise (expected)")
    _length_axis(axes, np.concatenate([signal_T, noise_T if noisy else single_T]))
    axes.set_ylabel("length per round")
    axes.legend(
        frameon=False,
        labelcolor=palette.ink,
        fontsize=9.5,
        ncols=2,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
    )
    return _png(_styled(figure, palette, max(result["rounds"], rounds_T.max(initial=1))))


def users_plot(
    result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], palette: Palette = LIGHT
) -> bytes:
    """A plot of the distribution of accuracy over users, as a PNG."""
    del metrics
    spread = result["accuracy_over_users"]
    knots, places = spread["knots"], range(len(spread["knots"]))
    figure = Figure(figsize=(_WIDTH, 2.7), dpi=200, layout="constrained")
    axes = figure.subplots()
    axes.bar(places, spread["shares"], width=0.8, color=palette.main)
    means = np.interp(spread["deciles"], knots, places)
    axes.plot(means, np.zeros(len(means)), "o", ms=5, c=palette.second, clip_on=False, zorder=3)
    axes.set_xticks(places, [f"{100 * knot:.0f}" for knot in knots])
    axes.set_ylabel("users")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _paper(axes, palette)
    axes.tick_params(axis="x", pad=7)  # below the dots
    axes.set_xlabel("accuracy, %", color=palette.ink, fontsize=10)
    figure.set_facecolor(palette.paper)
    FigureCanvasAgg(figure)
    return _png(figure)


def _accuracy(
    axes: Axes,
    palette: Palette,
    rounds_T: np.ndarray,
    accuracy_T: np.ndarray,
    final: float | None,
    *,
    chance: float | None,
) -> None:
    known_T = np.isfinite(accuracy_T)
    axes.set_ylabel("held-out accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if known_T.any():
        _line(axes, rounds_T[known_T], accuracy_T[known_T], palette.main, marked=True)
        low, high = float(accuracy_T[known_T].min()), float(accuracy_T[known_T].max())
    elif final is not None and math.isfinite(final):
        axes.axhline(final, color=palette.main, lw=1.6, ls=(0, (4, 3)))
        _note(axes, palette.main, final, f"after the last round: {100 * final:.1f} %", left=True)
        low = high = final
    else:
        axes.text(
            0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=palette.ink
        )
        axes.set_yticks([])
        return
    least, most = (low, high) if chance is None else (chance + 0.02, chance + 0.06)
    axes.set_ylim(min(least, low) - 0.03, min(1.01, max(most, high) + 0.04))
    if chance is None:
        return
    axes.axhline(chance, color=palette.ink, lw=0.9, ls=(0, (1, 2)))
    _note(axes, palette.ink, chance, "guessing")


def _line(
    axes: Axes,
    x_T: np.ndarray,
    y_T: np.ndarray,
    colour: str,
    *,
    label: str | None = None,
    marked: bool = False,
) -> None:
    keep = _thin(len(x_T))
    marker = "o" if len(x_T) == 1 or (marked and len(x_T) <= 40) else ""
    axes.plot(x_T[keep], y_T[keep], color=colour, lw=1.8, marker=marker, ms=3.6, label=label)


def _length_axis(axes: Axes, drawn: np.ndarray) -> None:
    """A logarithmic axis where the lines span more than a factor of five, else one from 0."""
    drawn = drawn[np.isfinite(drawn)]
    low, high = drawn.min(initial=math.inf), drawn.max(initial=1e-9)
    if low > 0 and 5 * low < high:
        axes.set_yscale("log")
        axes.set_ylim(low / 2, high * 1.5)
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,))
        )
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axes.set_ylim(0, 1.12 * high)


def _note(axes: Axes, colour: str, y: float, text: str, *, left: bool = False) -> None:
    """A word above the right end of a horizontal line, or below its left end."""
    axes.annotate(
        text,
        (0 if left else 1, y),
        xycoords=("axes fraction", "data"),
        xytext=(5, -3) if left else (-3, 3),
        textcoords="offset points",
        ha="left" if left else "right",
        va="top" if left else "bottom",
        fontsize=9,
        color=colour,
    )


def _styled(figure: Figure, palette: Palette, rounds: float) -> Figure:
    figure.set_facecolor(palette.paper)
    for axes in figure.axes:
        axes.set_xlim(0.5 if rounds < 20 else 0, rounds + max(0.5, rounds / 100))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        _paper(axes, palette)
    figure.axes[-1].set_xlabel("round", color=palette.ink, fontsize=10)
    figure.align_ylabels()
    FigureCanvasAgg(figure)
    return figure


def _paper(axes: Axes, palette: Palette) -> None:
    axes.set_facecolor(palette.paper)
    axes.grid(True, axis="y", color=palette.faint, lw=0.6)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(palette.faint)
    axes.tick_params(
        which="both", colors=palette.ink, labelcolor=palette.ink, labelsize=9.5, length=0
    )
    axes.yaxis.label.set(color=palette.ink, fontsize=10)


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    figure.savefig(
        data, format="png", facecolor=figure.get_facecolor(), metadata={"Software": None}
    )
    return data.getvalue()


def _column(metrics: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """A value of each round; NaN where there is none."""
    result = [line.get(name) for line in metrics]
    return np.array([math.nan if value is None else value for value in result], dtype=float)


def _thin(count: int) -> np.ndarray:
    """Indices of at most a few hundred of ``count`` points, first and last among them."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, _MOST_POINTS)).astype(int))


def _moving_mean(values_T: np.ndarray, width: int) -> np.ndarray:
    """Centred; at the ends, over what there is."""
    if not len(values_T):
        return values_T
    window = np.ones(width)
    return np.convolve(values_T, window, "same") / np.convolve(
        np.ones_like(values_T), window, "same"
    )
