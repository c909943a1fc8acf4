"""Figure 7 of Charles et al. 2024: estimating a mean by sampled examples or by sampled users.

Source: "U", Appendix E: μ ~ N(0, I) in d = 32; N = 256 users with means N(μ, I) and K = 16 examples
N(μ_u, σ₂² I); the loss is half the squared distance; T = 256, δ = 1e-6; by default ε = 1, compute
B = 64 and σ₂ = 1, each varied by itself; G_ELS = K, M = B/G_ULS. Step size and clip norm are swept
and the best is reported over 128 trials, for both algorithms over the same grid. That is a choice
which looks at the truth, and the same favour to both. Which values the figure varies over cannot be
read; the grids here are ours.

The paper's claims: (1) ULS with G = 1 is comparable to ELS or better, everywhere; (2) larger groups
help ULS where ε is small, the compute large, or σ₂ large.

Legend: R trials, N users, K examples of each, D dimensions, C settings of step size and clip norm,
S examples or users that were drawn.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.research.reproductions.entry import Rows, distinct, in_processes, tracked, where
from murmuration.research.reproductions.plots import legend_below, logarithmic
from murmuration.research.reproductions.uls.accounting import noise_multiplier

DIMENSION, USERS, EXAMPLES, ROUNDS, DELTA = 32, 256, 16, 256, 1e-6
EPSILONS, COMPUTES, SPREADS = (0.25, 1.0, 4.0, 16.0), (16, 64, 256), (0.25, 1.0, 4.0)
GROUP_SIZES = (1, 2, 4, 8, 16)
RATES, CLIPS = (0.003, 0.01, 0.03, 0.1, 0.3), (0.3, 1.0, 3.0, 10.0)
ELS = "ELS"


@dataclass(frozen=True)
class Setting:
    """One point of a sweep: the name of the one of three numbers that varies, and all three."""

    varied: str
    epsilon: float = 1.0
    compute: int = 64
    spread: float = 1.0


def mean_estimation(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``varied, epsilon, compute, spread, algorithm, group_size, error_mean, error_sd, rate,
    clip``: ‖θ̂ − μ‖ of the best step size and clip norm, its sd over trials. ``quick``: 8 trials,
    the ends of the sweep over ε, G = 1 and 16."""
    settings = [
        *(Setting("epsilon", epsilon=value) for value in EPSILONS),
        *(Setting("compute", compute=value) for value in COMPUTES),
        *(Setting("spread", spread=value) for value in SPREADS),
    ]
    sizes, trials = GROUP_SIZES, 128
    if quick:
        settings, sizes, trials = settings[0:4:3], sizes[::4], 8
    tasks = [
        (setting, size, trials, ROUNDS)
        for setting in settings
        for size in (0, *sizes)
        if size <= setting.compute
    ]
    return list(tracked(in_processes(best_of_sweep, tasks), "means", len(tasks)))


def best_of_sweep(task: tuple[Setting, int, int, int]) -> dict[str, Any]:
    """The row of a setting and a group size of ULS (0: ELS): trials, rounds."""
    setting, group_size, trials, rounds = task
    if group_size:
        probability, group, draws = setting.compute / group_size / USERS, 1, USERS
    else:
        probability, group = setting.compute / (EXAMPLES * USERS), EXAMPLES
        draws = USERS * EXAMPLES
    sigma = noise_multiplier(setting.epsilon, group, probability, rounds=rounds, delta=DELTA)
    generator = torch.Generator().manual_seed(trials)  # the same people for all

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    mean_RD = normal(trials, DIMENSION)
    x_RNKD = mean_RD[:, None, None] + normal(trials, USERS, 1, DIMENSION)
    x_RNKD = x_RNKD + setting.spread * normal(trials, USERS, EXAMPLES, DIMENSION)
    grid = list(itertools.product(RATES, CLIPS))
    rate_C11, clip_C11 = (torch.tensor(column)[:, None, None] for column in zip(*grid, strict=True))
    theta_CRD = torch.zeros(len(grid), trials, DIMENSION)
    nominal = setting.compute / (group_size or 1)
    for _ in range(rounds):
        trial_S, draw_S = (
            torch.rand(trials, draws, generator=generator) < probability
        ).nonzero(as_tuple=True)  # fmt: skip
        if group_size:
            # The first of a random order of a user's examples.
            order_SK = torch.rand(len(draw_S), EXAMPLES, generator=generator).argsort(dim=1)
            chosen_SG = order_SK[:, :group_size]
            target_SD = x_RNKD[trial_S[:, None], draw_S[:, None], chosen_SG].mean(dim=1)
        else:
            target_SD = x_RNKD[trial_S, draw_S // EXAMPLES, draw_S % EXAMPLES]
        grads_CSD = theta_CRD[:, trial_S] - target_SD
        grads_CSD *= (clip_C11 / grads_CSD.norm(dim=-1, keepdim=True)).clamp_max(1.0)
        sum_CRD = torch.zeros_like(theta_CRD).index_add_(1, trial_S, grads_CSD)
        sum_CRD += sigma * clip_C11 * normal(trials, DIMENSION)
        theta_CRD -= rate_C11 / nominal * sum_CRD
    error_CR = (theta_CRD - mean_RD).norm(dim=-1).nan_to_num(nan=np.inf)
    best = int(error_CR.mean(dim=1).argmin())
    rate, clip = grid[best]
    return {
        "varied": setting.varied,
        "epsilon": setting.epsilon,
        "compute": setting.compute,
        "spread": setting.spread,
        "algorithm": f"ULS, G = {group_size}" if group_size else ELS,
        "group_size": group_size or EXAMPLES,
        "error_mean": float(error_CR[best].mean()),
        "error_sd": float(error_CR[best].std()),
        "rate": rate,
        "clip": clip,
    }


def remarks(rows: Rows) -> list[str]:
    """Sentences on whether ULS with G = 1 is no worse than ELS, and where larger groups help."""
    result = []
    for varied in distinct(rows, "varied"):
        for value in distinct(where(rows, varied=varied), varied):
            same = where(rows, varied=varied, **{varied: value})
            els = where(same, algorithm=ELS)[0]
            uls = [row for row in same if row["algorithm"] != ELS]
            one, best = uls[0], min(uls, key=lambda row: row["error_mean"])
            result.append(
                f"{varied} = {value:g}: ELS {els['error_mean']:.2f}, ULS with G = 1 "
                f"{one['error_mean']:.2f} ({one['error_mean'] / els['error_mean'] - 1:+.0%}), best "
                f"at G = {best['group_size']}, {best['error_mean']:.2f}."
            )
    ends = [row for row in rows if row["rate"] in (RATES[0], RATES[-1])]
    ends += [row for row in rows if row["clip"] in (CLIPS[0], CLIPS[-1]) and row not in ends]
    result.append(
        f"The best of the sweep lies at an end of the grid in {len(ends)} of {len(rows)}."
    )
    return result


def plot(rows: Rows) -> Figure:
    """Error against each of what is varied, a line for each algorithm, as in the paper."""
    names = {"epsilon": "ε", "compute": "compute, B", "spread": "spread within a user, σ₂"}
    varied = distinct(rows, "varied")
    figure = Figure(figsize=(3.6 * len(varied), 3.6), layout="constrained")
    panels = figure.subplots(1, len(varied), squeeze=False)
    for axes, name in zip(panels[0], varied, strict=True):
        for place, algorithm in enumerate(distinct(rows, "algorithm")):
            same = sorted(where(rows, varied=name, algorithm=algorithm), key=lambda row: row[name])
            style = {"color": "k", "ls": "--"} if algorithm == ELS else {"color": f"C{place - 1}"}
            axes.errorbar(
                [row[name] for row in same],
                [row["error_mean"] for row in same],
                [row["error_sd"] for row in same],
                marker="o",
                ms=3,
                lw=1.2,
                elinewidth=0.6,
                label=algorithm,
                **style,
            )
        logarithmic(axes)
        axes.set_xlabel(names[name])
    panels[0, 0].set_ylabel("‖θ̂ − μ‖, mean and sd over trials")
    legend_below(figure, 6)
    return figure
