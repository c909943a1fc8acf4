"""Zhou et al. 2025, Theorem 3.5: how Square-χPO's errors go with n, c(ε) and corruption α.

Source: "S", Theorem 3.5 and Lemma C.2. The suboptimality gap is at most of the order of
c(ε)/√n + √α where corruption comes before the randomization (CTL) and of c(ε)/√n + √(α·c(ε)) where
it comes after it (LTC). The paper measures no rate. The population is ours: a linear bandit with
rewards φ·θ*, features of length one in all directions of 4 dimensions, ‖θ*‖ = 4, a reference that
is uniform over 8 responses of 200 prompts.

Policies are those that a reward φ·θ with ‖θ‖ ≤ 8 makes best under χ² and KL, as the paper assumes.
Over them the loss depends on differences of rewards alone, so Square-χPO's minimiser is the policy
of the θ with the least square loss. By turns n, c(ε) or α varies, alone: in sweeps over n and c(ε)
no label is corrupted, in those over α the judgements are so numerous that corruption is nearly all
of the error. The adversary states its own direction whatever is true; an adversary that states the
opposite of the truth only shrinks θ, and the policy follows the same responses.

The bound speaks of where c(ε)/√n and α are small, and of large c(ε) where it says that it does not
matter: elsewhere it is above every possible gap.

Two errors: ``reward`` is the root mean square error of differences of rewards over pairs of the
reference (what Lemma C.2 bounds, up to a constant), and ``gap`` the true expected reward that the
policy misses of the best responses, at the β of a finite set that misses least on average: the
theorem says that a proper β exists.

Legend: R seeds, J judgements, D dimensions, X points, S prompts, A responses, B values of β.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.research.reproductions.bandits.bandit import BALL, Bandit
from murmuration.research.reproductions.bandits.corruption import Corruption
from murmuration.research.reproductions.entry import Rows, distinct, in_processes, tracked, where
from murmuration.research.reproductions.plots import bound, line, logarithmic
from murmuration.research.reproductions.policies.chipo_toy import log_ratios
from murmuration.research.reproductions.slopes import Slope

DIMENSION = 4
BETAS = tuple(float(beta) for beta in np.geomspace(0.003, 3.0, 5))
ERRORS = ("reward", "gap")


@dataclass(frozen=True)
class Sweep:
    """A number that varies, where labels are corrupted, and the exponent of the bound."""

    varied: str
    setting: str
    exponent: float
    towards_zero: bool = False


@dataclass(frozen=True)
class Cell:
    """A point of a sweep."""

    sweep: Sweep
    n: int
    epsilon: float = 1.0
    alpha: float = 0.0

    @property
    def c(self) -> float:
        """c(ε) = (e^ε + 1)/(e^ε − 1)."""
        return 1.0 / math.tanh(self.epsilon / 2.0)

    @property
    def x(self) -> float:
        """The number that varies."""
        return {"n": float(self.n), "c(ε)": self.c, "α": self.alpha}[self.sweep.varied]


SWEEPS = (
    Sweep("n", "coins only", -0.5),
    Sweep("c(ε)", "coins only", 1.0, towards_zero=True),
    Sweep("α", "CTL", 0.5, towards_zero=True),
    Sweep("α", "LTC", 0.5, towards_zero=True),
    Sweep("c(ε)", "CTL", 0.0),
    Sweep("c(ε)", "LTC", 0.5, towards_zero=True),
)
#: Of the last two sweeps: how many labels are corrupted.
ALPHA = 0.02


def square_chipo_rates(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``setting, varied, n, epsilon, alpha, x, reward_mean, gap_mean, beta``, then for each
    sweep and error ``setting, varied, error, exponent, slope, low, high, verdict``.

    ``quick``: 4 seeds, three points of each sweep, a quarter of the judgements.
    """
    sizes, many, step, seeds = (2**11, 2**12, 2**13, 2**14, 2**15), 2**17, 1, 16
    epsilons, alphas = (0.25, 0.5, 1.0, 2.0, 4.0), (0.01, 0.02, 0.04, 0.08, 0.16)
    if quick:
        sizes, many, step, seeds = tuple(n // 4 for n in sizes), many // 4, 2, 4
    points = {
        ("n", "coins only"): [{"n": n} for n in sizes],
        ("c(ε)", "coins only"): [{"n": sizes[-1], "epsilon": e} for e in epsilons],
        ("α", "CTL"): [{"n": many, "alpha": a} for a in alphas],
        ("α", "LTC"): [{"n": many, "alpha": a} for a in alphas],
        ("c(ε)", "CTL"): [{"n": many, "epsilon": e, "alpha": ALPHA} for e in epsilons[1:]],
        ("c(ε)", "LTC"): [{"n": many, "epsilon": e, "alpha": ALPHA} for e in epsilons[1:]],
    }
    cells = [
        Cell(sweep, **point)
        for sweep in SWEEPS
        for point in points[sweep.varied, sweep.setting][::step]
    ]
    tasks = [(cell, seed) for cell in cells for seed in range(seeds)]
    results = list(tracked(in_processes(measured, tasks), "policies", len(tasks)))
    rows: list[dict[str, Any]] = []
    errors: dict[Cell, dict[str, np.ndarray]] = {}
    for place, cell in enumerate(cells):
        part = results[place * seeds : (place + 1) * seeds]
        gap_RB = np.array([gap_B for _, gap_B in part])
        best = int(gap_RB.mean(axis=0).argmin())
        errors[cell] = {
            "reward": np.array([reward for reward, _ in part]),
            "gap": gap_RB[:, best],
        }
        rows.append(
            {
                "setting": cell.sweep.setting,
                "varied": cell.sweep.varied,
                "n": cell.n,
                "epsilon": cell.epsilon,
                "alpha": cell.alpha,
                "x": cell.x,
                "reward_mean": float(errors[cell]["reward"].mean()),
                "gap_mean": float(errors[cell]["gap"].mean()),
                "beta": BETAS[best],
            }
        )
    for sweep in SWEEPS:
        swept = [cell for cell in cells if cell.sweep == sweep]
        for error in ERRORS:
            error_RX = np.stack([errors[cell][error] for cell in swept], axis=1)
            slope = Slope.fitted([cell.x for cell in swept], error_RX)
            rows.append(
                {
                    "setting": sweep.setting,
                    "varied": sweep.varied,
                    "error": error,
                    **slope.columns(sweep.exponent, "upper", towards_zero=sweep.towards_zero),
                }
            )
    return rows


def measured(task: tuple[Cell, int]) -> tuple[float, np.ndarray]:
    """The error of rewards, and the gap at every β, (B,), for a cell and a seed."""
    cell, seed = task
    bandit = Bandit.draw(seed, users=cell.n, dimension=DIMENSION)
    wanted_J = bandit.x_JD[:, 0] > 0
    before = cell.alpha if cell.sweep.setting == "CTL" else 0.0
    corruption = Corruption(before, cell.alpha - before, cell.epsilon, lambda first_J: wanted_J)
    stated_J = corruption.stated(bandit.first_J, np.random.default_rng([seed, 35]))
    labels = RandomizedLabels.of_pairs(
        torch.from_numpy(bandit.x_JD), torch.from_numpy(stated_J), corruption.flip_probability
    )
    theta_D = fit(labels, "square", ball=2 * BALL).theta_D.numpy()
    return reward_error(bandit, theta_D), gaps(bandit, theta_D)


def reward_error(bandit: Bandit, theta_D: np.ndarray) -> float:
    """Root mean square error of r(s, a) − r(s, b), over prompts and pairs of the reference."""
    off_SA = bandit.phi_SAD @ (theta_D - bandit.truth_D)
    return float(np.sqrt(2.0 * off_SA.var(axis=1).mean()))


def gaps(bandit: Bandit, theta_D: np.ndarray) -> np.ndarray:
    """The true expected reward that the policy of θ misses, for every β, (B,)."""
    true_SA, learnt_SA = bandit.phi_SAD @ bandit.truth_D, bandit.phi_SAD @ theta_D
    missed_SA = true_SA.max(axis=1, keepdims=True) - true_SA
    reference_SA = np.full(true_SA.shape, 1.0 / true_SA.shape[1])
    shares = (
        reference_SA * np.exp(log_ratios(learnt_SA, reference_SA, beta, chi=True)) for beta in BETAS
    )
    return np.array([(share_SA * missed_SA).sum(axis=1).mean() for share_SA in shares])


def remarks(rows: Rows) -> list[str]:
    """A sentence for each sweep: both exponents beside the bound's, and the verdicts."""
    result = []
    for sweep in SWEEPS:
        parts = [
            f"the {row['error']} goes with the power {row['slope']:.2f} "
            f"[{row['low']:.2f}, {row['high']:.2f}]: {row['verdict']}"
            for row in where(rows, varied=sweep.varied, setting=sweep.setting, error=ERRORS)
        ]
        result.append(
            f"S Thm 3.5, {sweep.setting}, {sweep.varied} (bound: {sweep.exponent:g}): "
            + "; ".join(parts)
            + "."
        )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of both errors against n, c(ε) and α: a row of panels for each error; dotted: the
    bound's exponents.
    """
    figure = Figure(figsize=(10.0, 6.0), layout="constrained")
    panels = figure.subplots(2, 3)
    points = where(rows, error=None)
    settings = distinct(points, "setting")
    for j, varied in enumerate(("n", "c(ε)", "α")):
        for i, error in enumerate(ERRORS):
            axes = panels[i, j]
            same = where(points, varied=varied)
            for setting in distinct(same, "setting"):
                line(axes, where(same, setting=setting), "x", f"{error}_mean", "o-",
                     color=f"C{settings.index(setting)}", ms=3.5, label=setting)  # fmt: skip
            for sweep in SWEEPS:
                if sweep.varied == varied:
                    swept = where(same, setting=sweep.setting)
                    swept.sort(key=lambda row: row["x"], reverse=sweep.exponent >= 0)
                    colour = f"C{settings.index(sweep.setting)}"
                    bound(axes, swept, "x", f"{error}_mean", sweep.exponent, color=colour)
            logarithmic(axes)
            axes.set_xlabel(varied)
            if i == 0:
                axes.legend(frameon=False, fontsize=8)
            if j == 0:
                axes.set_ylabel("error of rewards" if error == "reward" else "J(π*) − J(π)")
    return figure
