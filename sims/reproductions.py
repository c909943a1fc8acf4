"""What ``murmuration reproduce`` can rerun, by name, with the plots."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sims.aup_tables import REMARKS as AUP_REMARKS
from sims.aup_tables import aup_tables
from sims.btl_compare import btl_compare
from sims.conjecture import uls_conjecture
from sims.reproduce_command import Entry, Reproduction

Rows = Sequence[dict[str, Any]]


def _aup_tables(quick: bool) -> Reproduction:
    rows = aup_tables(quick)
    return Reproduction(rows, AUP_REMARKS, plot=_aup_plot(rows))


def _aup_plot(rows: Rows) -> Figure:
    """Both tables in one unit, against the judgements of each user."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for column, style, label in (
        ("aup_noise_over_tau", "o-", "AUP as published, in units of τ"),
        ("dpsgd_noise_over_clip", "s--", "user-wise DP-SGD, in units of C"),
    ):
        for index, epsilon in enumerate(sorted({row["epsilon"] for row in rows})):
            same = [row for row in rows if row["epsilon"] == epsilon]
            axes.plot(
                [row["m"] for row in same],
                [row[column] for row in same],
                style,
                color=f"C{index}",
                ms=4,
                label=f"{label}, ε = {epsilon}",
            )
    axes.set(xscale="log", yscale="log", xlabel="judgements of each user, m")
    axes.set_ylabel("noise on the averaged gradient (std)")
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _btl_compare(quick: bool) -> Reproduction:
    rows = btl_compare(quick)
    remarks = [
        f"ε = {row['epsilon']:g}: {row['strategy']}, with nothing tuned, has {row['ratio']:.3f} "
        "times the error of the best of a grid of ULS, chosen by looking at the truth for free."
        for row in rows
        if row["strategy"] == "aup"
    ]
    return Reproduction(rows, remarks, plot=_btl_plot(rows))


def _btl_plot(rows: Rows) -> Figure:
    """Error of each strategy at each epsilon, with one standard deviation."""
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    figure = Figure(figsize=(4.2 * len(epsilons), 4.4), layout="constrained")
    for axes, epsilon in zip(
        figure.subplots(1, len(epsilons), squeeze=False)[0], epsilons, strict=True
    ):
        # The grid itself would bury the rest: its best stands for it.
        same = [r for r in rows if r["epsilon"] in (None, epsilon) and r["strategy"] != "uls"]
        places = range(len(same))
        axes.barh(
            places,
            [row["error_mean"] for row in same],
            xerr=[row["error_sd"] or 0.0 for row in same],
            color="C0",
            alpha=0.8,
        )
        axes.set_yticks(places, [row["strategy"] for row in same], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(2.0, color="0.5", ls=":", lw=1)
        axes.set(title=f"ε = {epsilon:g}", xlabel="error of θ (answering zero: 2)")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _uls_conjecture(quick: bool) -> Reproduction:
    rows = uls_conjecture(quick)
    failed = [row for row in rows if not row["holds"]]
    remark = f"{len(rows) - len(failed)} of {len(rows)} cases hold." + (
        f" Those that fail have δ ≥ {min(row['delta'] for row in failed):g}, nearly the chance of "
        "being sampled at all: the conjecture, stated for all δ, is false; at δ that anybody would "
        "promise it holds in every case here."
        if failed
        else ""
    )
    return Reproduction(rows, [remark])


ENTRIES = {
    "aup-tables": Entry(
        "Tables 1 and 2 of AUP-RLHF: in which unit they are, and what one accountant makes of them",
        _aup_tables,
    ),
    "btl-compare": Entry(
        "error of the strategies on synthetic judgements at equal ε, beside a tuned grid",
        _btl_compare,
    ),
    "uls-conjecture": Entry(
        "does sampling examples need at most K times the noise of sampling users?",
        _uls_conjecture,
    ),
}
