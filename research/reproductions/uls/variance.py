"""Figures 2 and 6 of Charles et al. 2024: variance of the noise of ELS and ULS at equal compute.

Source: "U", §3 and Appendix C: N = 1024 users with K = 32 examples, T = 1000, δ = 1e-6,
G_ELS = 32, L_ELS = 10; per coordinate (σ_ELS L_ELS/B)² against (σ_ULS L_ULS/M)², where B = M·G_ULS
is the compute. Two extremes of gradients within a user: all alike, L_ULS = L_ELS, and as diverse as
can be, L_ULS = L_ELS/√G_ULS. Which ε, M and B the figures have cannot be read; here ε is 0.5, 2 and
8, M is 32 and 128, and B is M times a power of two.

The paper's claims: (1) where gradients are alike ELS has less "in nearly all settings"; (2) where
they are diverse ULS has less "often", above all where ε is small or the compute large.
"""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.research.reproductions.entry import Rows, distinct, tracked, where
from murmuration.research.reproductions.plots import legend_below, line, logarithmic
from murmuration.research.reproductions.uls import accounting

USERS, EXAMPLES, ROUNDS, DELTA, LIPSCHITZ = 1024, 32, 1000, 1e-6, 10.0
EPSILONS, COHORTS = (0.5, 2.0, 8.0), (32, 128)
GROUP_SIZES = (1, 2, 4, 8, 16, 32)
noise_multiplier = partial(accounting.noise_multiplier, rounds=ROUNDS, delta=DELTA)


def variance(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``epsilon, cohort, group_size, compute, els, uls_alike, uls_diverse``: variances of a
    coordinate's noise. ``quick``: one cohort, two ε, three group sizes."""
    epsilons, cohorts, sizes = EPSILONS, COHORTS, GROUP_SIZES
    if quick:
        epsilons, cohorts, sizes = epsilons[::2], cohorts[:1], sizes[::2]
    cells = [(e, m, g) for e in epsilons for m in cohorts for g in sizes]
    rows = []
    for epsilon, cohort, size in tracked(cells, "variances", len(cells)):
        compute = cohort * size
        els = noise_multiplier(epsilon, EXAMPLES, compute / (EXAMPLES * USERS))
        alike = (noise_multiplier(epsilon, 1, cohort / USERS) * LIPSCHITZ / cohort) ** 2
        rows.append(
            {
                "epsilon": epsilon,
                "cohort": cohort,
                "group_size": size,
                "compute": compute,
                "els": (els * LIPSCHITZ / compute) ** 2,
                "uls_alike": alike,
                "uls_diverse": alike / size,
            }
        )
    return rows


def remarks(rows: Rows) -> list[str]:
    """Sentences on how often each has less noise, and whether ε and compute matter."""
    alike = sum(row["els"] <= row["uls_alike"] for row in rows)
    diverse = sum(row["uls_diverse"] < row["els"] for row in rows)
    result = [
        f"Gradients alike: ELS has less noise in {alike} of {len(rows)} settings.",
        f"Gradients diverse: ULS has less noise in {diverse} of {len(rows)} settings.",
    ]
    for column, what in (("epsilon", "ε"), ("compute", "compute")):
        values = distinct(rows, column)
        ratios = [
            float(np.mean([row["uls_diverse"] / row["els"] for row in where(rows, **{column: v})]))
            for v in values
        ]
        text = ", ".join(f"{r:.2f} at {v:g}" for v, r in sorted(zip(values, ratios, strict=True)))
        result.append(f"Variance of ULS over that of ELS, diverse, by {what}: {text}.")
    return result


def plot(rows: Rows) -> Figure:
    """Variance against compute: a row of panels for each ε, a column for each cohort."""
    epsilons, cohorts = distinct(rows, "epsilon"), distinct(rows, "cohort")
    size = (3.4 * len(cohorts), 2.6 * len(epsilons) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(epsilons), len(cohorts), squeeze=False)
    for i, epsilon in enumerate(epsilons):
        for j, cohort in enumerate(cohorts):
            same, axes = where(rows, epsilon=epsilon, cohort=cohort), panels[i, j]
            line(axes, same, "compute", "els", "o-", color="C3", ms=3, label="ELS")
            line(axes, same, "compute", "uls_alike", "s--", color="C0", ms=3,
                 label="ULS, gradients alike")  # fmt: skip
            line(axes, same, "compute", "uls_diverse", "s-", color="C0", ms=3,
                 label="ULS, gradients diverse")  # fmt: skip
            axes.set_title(f"ε = {epsilon:g}, M = {cohort}", fontsize=10)
            logarithmic(axes)
            if j == 0:
                axes.set_ylabel("variance of noise")
            if i == len(epsilons) - 1:
                axes.set_xlabel("compute, B (examples a round)")
    legend_below(figure, 3)
    return figure
