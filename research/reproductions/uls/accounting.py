"""Figure 1 of Charles et al. 2024: what sampling examples costs a user, tightly and as a black box.

Source: "U", Theorem 1 and Figure 1: T = 2000 rounds, p = 0.01, δ = 1e-6. The tight accountant is
the mixture of Gaussians with Binomial(G, p) means; the black box is group privacy (Vadhan 2017,
Lemma 2.2) of example-level DP-SGD. Which noise multipliers the figure has cannot be read; here they
are 1, 2, 4 and 8. Two claims are tried: that the tight ε grows nearly linearly in G, and that the
black box grows exponentially, and ends.
"""

import math
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.group_privacy import group_epsilon
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.entry import Rows, distinct, tracked, where
from murmuration.research.reproductions.plots import line, open_corner

ROUNDS, PROBABILITY, DELTA = 2000, 0.01, 1e-6
SIGMAS = (1.0, 2.0, 4.0, 8.0)
GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)
_ADD = Adjacency.ADD_REMOVE
#: A coarser grid than a run's: errs upward by less than a figure shows.
_INTERVAL = 1e-3


@cache
def noise_multiplier(
    epsilon: float, group_size: int, probability: float, *, rounds: int, delta: float
) -> float:
    """σ of sums over sampled examples, of which a user has ``group_size``, that meets (ε, δ) over
    all rounds, by U's Theorem 1; of sums over sampled users, Theorem 2, for a group of one."""
    return accountant.calibrate_noise(
        epsilon,
        lambda sigma: {MixtureGaussian(sigma, group_size, probability): rounds},
        delta=delta,
        adjacency=_ADD,
    )


def accounting(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``sigma, group_size, epsilon_tight, epsilon_black_box``; the last is None where the
    conversion certifies nothing. ``quick``: two noise multipliers, group sizes 1, 4 and 16."""
    sigmas, sizes = (SIGMAS[1:3], GROUP_SIZES[0:5:2]) if quick else (SIGMAS, GROUP_SIZES)
    cells = [(sigma, size) for sigma in sigmas for size in sizes]
    rows = []
    for sigma, size in tracked(cells, "accounting", len(cells)):
        mixture = MixtureGaussian(sigma, size, PROBABILITY)
        example = PoissonGaussian(PROBABILITY, sigma)
        black_box = group_epsilon(
            [(example, ROUNDS)], group_size=size, adjacency=_ADD, delta=DELTA, interval=_INTERVAL
        )
        rows.append(
            {
                "sigma": sigma,
                "group_size": size,
                "epsilon_tight": accountant.epsilon(
                    [(mixture, ROUNDS)], adjacency=_ADD, delta=DELTA, interval=_INTERVAL
                ),
                "epsilon_black_box": black_box if math.isfinite(black_box) else None,
            }
        )
    return rows


def remarks(rows: Rows) -> list[str]:
    """Sentences on the growth of ε with G under both accountants, for each noise multiplier."""
    result = []
    for sigma in distinct(rows, "sigma"):
        same = where(rows, sigma=sigma)
        boxed = [row for row in same if row["epsilon_black_box"] is not None]
        ends = same[len(boxed) :]
        last = boxed[-1]
        result.append(
            f"σ = {sigma:g}: the tight ε goes like G to the power "
            f"{power(same, 'epsilon_tight'):.2f}; the black box's is "
            f"{last['epsilon_black_box'] / last['epsilon_tight']:.1f} times as much at G = "
            f"{last['group_size']}"
            + (f", and certifies nothing from G = {ends[0]['group_size']} on." if ends else ".")
        )
    return result


def power(rows: Rows, column: str) -> float:
    """The slope of log ε against log G."""
    x = np.log([row["group_size"] for row in rows])
    return float(np.polyfit(x, np.log([row[column] for row in rows]), 1)[0])


def plot(rows: Rows) -> Figure:
    """ε against G, both logarithmic: tight drawn through, black box dashed, its end marked."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for place, sigma in enumerate(distinct(rows, "sigma")):
        same = where(rows, sigma=sigma)
        boxed = [row for row in same if row["epsilon_black_box"] is not None]
        colour = f"C{place}"
        line(axes, same, "group_size", "epsilon_tight", "o-", color=colour, ms=4,
             label=f"σ = {sigma:g}")  # fmt: skip
        line(axes, boxed, "group_size", "epsilon_black_box", "s--", color=colour, ms=4)
        if len(boxed) < len(same):
            line(axes, boxed[-1:], "group_size", "epsilon_black_box", "x", color=colour, ms=10)
    axes.set(xscale="log", yscale="log", xlabel="group size, G", ylabel="ε at δ = 1e-6")
    axes.set_title("mixture of Gaussians (—), black box (- -, × where it ends)", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    open_corner(axes)
    return figure
