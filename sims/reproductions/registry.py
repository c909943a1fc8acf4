"""What ``murmuration reproduce`` can rerun, by name, with the plots."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from murmuration.sims.reproductions import (
    ctl_vs_ltc,
    group_cohort,
    hostile_users,
    label_dp_fig1,
    pessimism,
    plots,
    rr_vs_m,
)
from murmuration.sims.reproductions.aup_tables import REMARKS as AUP_REMARKS
from murmuration.sims.reproductions.aup_tables import aup_tables
from murmuration.sims.reproductions.btl_compare import btl_compare, label_compare, theory
from murmuration.sims.reproductions.entry import Entry, Reproduction, watched
from murmuration.sims.reproductions.membership import membership
from murmuration.sims.reproductions.membership import plot as membership_plot
from murmuration.sims.reproductions.uls_conjecture import uls_conjecture

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
    rows = [*btl_compare(quick), *label_compare(quick)]
    remarks = [
        f"ε = {row['epsilon']:g}: {row['strategy']}, with nothing tuned, has {row['ratio']:.3f} "
        "times the error of the best of a grid of ULS, chosen by looking at the truth for free."
        for row in rows
        if row["strategy"] == "aup" and row["adjacency"] == "add-remove"
    ]
    remarks += [
        f"ε = {row['epsilon']:g} for labels: {row['strategy']} in {row['rounds']:g} "
        f"round{'s' if row['rounds'] > 1 else ''} has {row['ratio']:.3f} times the error of the "
        "best of the grid of ULS in 200 under the same adjacency."
        for row in rows
        if row["strategy"].startswith(("label-moment", "objective-perturbation"))
    ]
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    bounds = {f"{epsilon:g}": [bound.row() for bound in theory(epsilon)] for epsilon in epsilons}
    remarks += [
        f"ε = {epsilon}: for the worst θ*, no estimator with this ε for labels has a root mean "
        f"square error below {row['proved']:.3g} ({row['source']} with the constants of its proof)."
        for epsilon, same in bounds.items()
        for row in same
        if row["source"] == "A Thm 6"
    ]
    return Reproduction(rows, remarks, extra={"bounds": bounds}, plot=_btl_plot(rows))


def _btl_plot(rows: Rows) -> Figure:
    """Error of each strategy at each epsilon under each adjacency, with one standard deviation."""
    private = [row for row in rows if row["epsilon"] is not None]
    cases = sorted({(row["adjacency"], row["epsilon"]) for row in private})
    figure = Figure(figsize=(4.2 * len(cases), 4.4), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases), squeeze=False)[0], cases, strict=True):
        # The grid itself would bury the rest: its best stands for it.
        same = [r for r in rows if r["epsilon"] is None or (r["adjacency"], r["epsilon"]) == case]
        same = [row for row in same if row["strategy"] != "uls"]
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
        axes.set(title=f"{case[0]}, ε = {case[1]:g}", xlabel="error of θ (answering zero: 2)")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _group_cohort(quick: bool) -> Reproduction:
    rows = group_cohort.group_cohort(quick)
    return Reproduction(rows, group_cohort.remarks(rows), plot=group_cohort.plot(rows))


def _pessimism(quick: bool) -> Reproduction:
    rows = pessimism.pessimism(quick)
    return Reproduction(rows, pessimism.remarks(rows), plot=pessimism.plot(rows))


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


def _membership(quick: bool) -> Reproduction:
    rows, curves = membership(quick)
    private = [row for row in rows if row["epsilon"]]
    kept = all(
        row[f"tpr_at_{rate}"] <= row[f"limit_at_{rate}"]
        for row in private
        for rate in ("0.01", "0.1", "0.5")
    )
    said = "No attack finds more than" if kept else "An attack finds more than"
    remark = f"{said} its (ε, δ) allows at any of these rates of false positives."
    return Reproduction(rows, [remark], plot=membership_plot(curves))


def _label_dp_fig1(quick: bool) -> Reproduction:
    with watched("estimating") as on_progress:
        rows = label_dp_fig1.label_dp_fig1(quick, on_progress=on_progress)
    return Reproduction(rows, label_dp_fig1.remarks(rows), plot=plots.fig1(rows))


def _rr_vs_m(quick: bool) -> Reproduction:
    with watched("training") as on_progress:
        rows = rr_vs_m.rr_vs_m(quick, on_progress=on_progress)
    return Reproduction(rows, rr_vs_m.remarks(rows), plot=plots.against_m(rows))


def _ctl_ltc(quick: bool) -> Reproduction:
    with watched("estimating") as on_progress:
        rows = ctl_vs_ltc.ctl_ltc(quick, on_progress=on_progress)
    return Reproduction(rows, ctl_vs_ltc.remarks(rows), plot=plots.settings(rows))


def _hostile_users(quick: bool) -> Reproduction:
    with watched("training") as on_progress:
        rows, world = hostile_users.hostile_users(quick, on_progress=on_progress)
    remarks = hostile_users.remarks(rows, world)
    return Reproduction(rows, remarks, plot=hostile_users.plot(rows))


ENTRIES = {
    "aup-tables": Entry(
        "Tables 1 and 2 of AUP-RLHF: in which unit they are, and what one accountant makes of them",
        _aup_tables,
    ),
    "btl-compare": Entry(
        "error of the strategies on synthetic judgements at equal ε, beside a tuned grid",
        _btl_compare,
    ),
    "group-cohort": Entry(
        "which group size and cohort for a compute budget: Estimate-and-Double and its rivals",
        _group_cohort,
    ),
    "pessimism": Entry(
        "greedy and pessimistic policies on a linear bandit, from labels protected in three ways",
        _pessimism,
    ),
    "hostile-users": Entry(
        "what a share of hostile users does to a model, beside what clipping and medians leave",
        _hostile_users,
    ),
    "uls-conjecture": Entry(
        "does sampling examples need at most K times the noise of sampling users?",
        _uls_conjecture,
    ),
    "membership": Entry(
        "which users were trained on: two attacks on reward models, beside what ε allows",
        _membership,
    ),
    "label-dp-fig1": Entry(
        "error against n behind randomized response, in the middle, and without privacy",
        _label_dp_fig1,
    ),
    "rr-vs-m": Entry(
        "many judgements of each user: randomized response against ULS and AUP, at equal ε",
        _rr_vs_m,
    ),
    "ctl-ltc-linear": Entry(
        "labels corrupted before or after they are randomized: square loss against log losses",
        _ctl_ltc,
    ),
}
