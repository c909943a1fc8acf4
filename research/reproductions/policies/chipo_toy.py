"""Does DPO go where the data is thin, and does χPO stay away?

Sources: Zhou et al. 2025, §2.2; Huang et al. 2024 (χPO). Their claim: what DPO misses depends on
how well *all* policies are covered by data, what χPO misses on how well one good policy is. The
smallest problem that shows it: one prompt; a good response (true reward 1) that the reference gives
three times in ten, a usual one (0.7), and fifty rare ones (0), each four times in ten thousand. Of
a rare one there is a judgement or none; a third of those that were judged once won, by luck, and
then look as good as anything can.

Policies are those that some reward in [0, R_max] makes best under the regularizer, as the papers
assume: KL for DPO, KL and χ² for χPO (π/π_ref + log π/π_ref = (reward − λ)/β). Over such policies
the loss depends on differences of rewards alone, so DPO and χPO learn the *same* reward, whatever
β, and differ in what they make of it: DPO multiplies a response's share by up to e^(Δ/β), χPO by
about 1 + Δ/β. The fit is of that reward, with the losses that policies are trained with; it starts
at one value for all, which responses without judgements keep.

The problem was made to show the effect: a large R_max, a small difference worth learning, and rare
responses in the data. Three such problems were looked at, with ten repetitions each, before this
one and its rule were fixed. Whether it agrees is said by a rule, ``agrees``; where the claim is
empty, or fails for χPO too, remarks say so.

Legend: A responses, J different pairs, B values of β, R repetitions, S prompts.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from scipy import optimize, special, stats

from murmuration.preference.policy_losses import PolicyLoss
from murmuration.research.reproductions.entry import Rows, distinct, mean_sd, tracked, where
from murmuration.research.reproductions.plots import (
    Style,
    legend_below,
    logarithmic,
    open_corner,
    styled,
)

RARE, R_MAX = 50, 3.0
#: What the reference gives, and the true reward, of the good, the usual and all rare responses.
_SHARES, _REWARDS = (0.3, 0.68, 0.02), (1.0, 0.7, 0.0)
REFERENCE_A = np.array([*_SHARES[:2], *[_SHARES[2] / RARE] * RARE])
TRUE_A = np.array([*_REWARDS[:2], *[_REWARDS[2]] * RARE])
#: What the reference itself misses.
REFERENCE_GAP = float(TRUE_A.max() - REFERENCE_A @ TRUE_A)
#: The loss of a policy's rewards, and whether χ² regularizes beside KL.
METHODS = {
    "DPO": ("dpo", False),
    "χPO": ("dpo", True),
    "Square-DPO": ("square-dpo", False),
    "Square-χPO": ("square-dpo", True),
}
BETAS = tuple(float(beta) for beta in np.geomspace(0.005, 5.0, 16))
#: The claim is about few judgements of each rare response: fewer than so many, on average.
SCARCE = 10.0
_PANELS = (300, 3000, 30_000)
_CONFIDENCE = 0.95


def chipo_toy(
    quick: bool = False,
    *,
    sizes: Sequence[int] = (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    repetitions: int = 20,
) -> list[dict[str, Any]]:
    """Rows ``method, n, beta, gap_mean, gap_sd``, and of the β with the smallest mean gap
    ``method, n, best_beta, best_gap, times_chipo, above_chipo, above_chipo_low``.

    ``gap``: J(π*) − J(π), the true expected reward that a policy misses. ``best_beta`` is chosen
    with hindsight, for each method. ``above_chipo``: the gap less that of χPO at its best β, mean
    over repetitions, and the lower end of its 95 % interval (paired, Student's).
    """
    if quick:
        sizes, repetitions = _PANELS, 8
    gap: dict[tuple[str, int], list[list[float]]] = {(m, n): [] for n in sizes for m in METHODS}
    tasks = [(n, repetition) for n in sizes for repetition in range(repetitions)]
    for n, repetition in tracked(tasks, "learning", len(tasks)):
        wins_AA = judged(n, repetition)
        learnt = {name: fitted(wins_AA, name) for name in ("dpo", "square-dpo")}
        for method, (loss, chi) in METHODS.items():
            gap[method, n].append([policy_gap(learnt[loss], beta, chi=chi) for beta in BETAS])
    rows: list[dict[str, Any]] = [
        {"method": method, "n": n, "beta": beta, **mean_sd("gap", list(gap_R))}
        for (method, n), gap_RB in gap.items()
        for beta, gap_R in zip(BETAS, zip(*gap_RB, strict=True), strict=True)
    ]
    for n in sizes:
        gap_RB = {method: np.array(gap[method, n]) for method in METHODS}
        best = {method: int(gap_RB[method].mean(axis=0).argmin()) for method in METHODS}
        at_best_R = {method: gap_RB[method][:, best[method]] for method in METHODS}
        for method in METHODS:
            above_R = at_best_R[method] - at_best_R["χPO"]
            rows.append(
                {
                    "method": method,
                    "n": n,
                    "best_beta": BETAS[best[method]],
                    "best_gap": float(at_best_R[method].mean()),
                    "times_chipo": float(at_best_R[method].mean() / at_best_R["χPO"].mean()),
                    "above_chipo": float(above_R.mean()),
                    "above_chipo_low": _lower(above_R),
                }
            )
    return rows


def judged(n: int, seed: int) -> np.ndarray:
    """The number of times each response was preferred to each other, (A, A), in ``n``
    judgements.
    """
    generator = np.random.default_rng([2407, seed])
    pairs_N2 = generator.choice(len(REFERENCE_A), (n, 2), p=REFERENCE_A)
    chance_N = special.expit(TRUE_A[pairs_N2[:, 0]] - TRUE_A[pairs_N2[:, 1]])
    second_N = (generator.random(n) >= chance_N).astype(int)
    wins_AA = np.zeros((len(REFERENCE_A),) * 2)
    place_N = np.arange(n)
    np.add.at(wins_AA, (pairs_N2[place_N, second_N], pairs_N2[place_N, 1 - second_N]), 1.0)
    np.fill_diagonal(wins_AA, 0.0)  # two equal responses: whatever is said, nothing is learnt
    return wins_AA


def fitted(wins_AA: np.ndarray, loss: str) -> np.ndarray:
    """The reward in [0, R_max] with the least ``loss``, (A,).

    With β = 1, log-ratios are rewards up to a constant, which cancels.
    """
    first_J, other_J = np.nonzero(wins_AA)
    weight_J = torch.from_numpy(wins_AA[first_J, other_J] / wins_AA.sum())
    pairs_J2 = torch.from_numpy(np.stack([first_J, other_J], axis=1))
    y_J1, policy = torch.ones(len(first_J), 1, dtype=torch.float64), PolicyLoss(loss, 1.0, R_MAX)

    def mean_loss(reward_A: np.ndarray) -> tuple[float, np.ndarray]:
        reward = torch.tensor(reward_A, requires_grad=True)
        mean = policy.loss(reward[pairs_J2], y_J1) @ weight_J
        (slope_A,) = torch.autograd.grad(mean, reward)
        return float(mean.detach()), slope_A.numpy()

    result = optimize.minimize(
        mean_loss,
        np.full(len(wins_AA), R_MAX / 2),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, R_MAX)] * len(wins_AA),
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9},
    )
    return result.x


def log_ratios(
    reward_SA: np.ndarray, reference_SA: np.ndarray, beta: float, *, chi: bool
) -> np.ndarray:
    """log π/π_ref, (S, A), of the policy with the best reward less β times its distance.

    The distance is KL(π, π_ref), or with ``chi`` that and χ²(π, π_ref): eq. 4 of Huang et al. 2024.
    """
    scaled_SA = reward_SA / beta
    if not chi:
        total_S1 = special.logsumexp(scaled_SA, axis=1, b=reference_SA, keepdims=True)
        return scaled_SA - np.asarray(total_S1)
    low_S1, high_S1 = scaled_SA.min(1, keepdims=True) - 1, scaled_SA.max(1, keepdims=True) - 1
    for _ in range(100):  # the multiplier λ/β: shares fall with it
        middle_S1 = (low_S1 + high_S1) / 2
        ratio_SA = special.wrightomega(scaled_SA - middle_S1)  # ratio + log ratio is that
        above_S1 = (reference_SA * ratio_SA).sum(axis=1, keepdims=True) > 1.0
        low_S1, high_S1 = (
            np.where(above_S1, middle_S1, low_S1),
            np.where(above_S1, high_S1, middle_S1),
        )
    return scaled_SA - high_S1 - special.wrightomega(scaled_SA - high_S1)


def policy_gap(reward_A: np.ndarray, beta: float, *, chi: bool) -> float:
    """The true expected reward that the policy made of a learnt reward misses."""
    share_A = REFERENCE_A * np.exp(log_ratios(reward_A[None], REFERENCE_A[None], beta, chi=chi)[0])
    return float(share_A @ (TRUE_A.max() - TRUE_A))


def scarce(n: int) -> bool:
    """True if each rare response has few judgements: the claim is about this case."""
    return 2 * n * REFERENCE_A[-1] < SCARCE


def agrees(rows: Rows) -> bool:
    """The rule, for every n at which rare responses are scarce.

    At its best β, chosen with hindsight, DPO misses at least 1.5 times as much as χPO, and more
    beyond doubt (the interval of the paired difference is above zero); so does Square-DPO, and
    Square-χPO misses at most 1.5 times as much as χPO.
    """
    result = [row for row in rows if "best_gap" in row and scarce(row["n"])]
    return (
        bool(result)
        and all(
            row["times_chipo"] >= 1.5 and row["above_chipo_low"] > 0.0
            for row in where(result, method=("DPO", "Square-DPO"))
        )
        and all(row["times_chipo"] <= 1.5 for row in where(result, method="Square-χPO"))
    )


def _lower(above_R: np.ndarray) -> float:
    if not above_R.any():
        return 0.0
    error = above_R.std(ddof=1) / np.sqrt(len(above_R))
    return float(above_R.mean() - stats.t.ppf((1 + _CONFIDENCE) / 2, len(above_R) - 1) * error)


def remarks(rows: Rows) -> list[str]:
    """Sentences on whether the claim agrees, and where it does not hold."""
    best = [row for row in rows if "best_gap" in row]
    sizes = distinct(best, "n")

    def told(method: str, n: int) -> str:
        (row,) = where(best, method=method, n=n)
        return f"{row['best_gap']:.3f}"

    few, many = [n for n in sizes if scarce(n)], [n for n in sizes if not scarce(n)]
    result = [
        f"Agrees by the rule: {'yes' if agrees(rows) else 'NO'}. Each at its best β, DPO misses "
        + "; ".join(f"{told('DPO', n)} (χPO {told('χPO', n)}) at n = {n:,}" for n in few)
        + f". The reference misses {REFERENCE_GAP:.3f}."
    ]
    failed = [
        f"{row['method']} at n = {row['n']:,} ({row['times_chipo']:.2f} times)"
        for row in best
        if scarce(row["n"])
        and row["method"] in ("DPO", "Square-DPO")
        and not (row["times_chipo"] >= 1.5 and row["above_chipo_low"] > 0.0)
    ]
    if failed:
        result.append("Not worse than χPO by the rule: " + ", ".join(failed) + ".")
    if many:
        result.append(
            "Where rare responses are no longer scarce, nothing is claimed: DPO misses "
            + "; ".join(f"{told('DPO', n)} (χPO {told('χPO', n)}) at n = {n:,}" for n in many)
            + "."
        )
    for method in ("DPO", "χPO"):
        worse = [row["beta"] for row in where(rows, method=method) if _worse_than_reference(row)]
        result.append(
            f"{method} does worse than the reference for some n at "
            + (f"β up to {max(worse):.3g}." if worse else "no β of the grid.")
        )
    gap = {(row["method"], row["n"], row["beta"]): row["gap_mean"] for row in rows if "beta" in row}
    for n in sizes:
        better = [beta for beta in BETAS if gap["DPO", n, beta] < gap["χPO", n, beta] - 1e-3]
        if better:
            result.append(
                f"At equal β, DPO misses less than χPO at n = {n:,} for β from {min(better):.3g} "
                f"to {max(better):.3g}: χ² holds a policy nearer to the reference."
            )
    result.append(
        f"No β is safe because it is small: at β = {min(BETAS):g} χPO, too, misses up to "
        f"{max(row['gap_mean'] for row in where(rows, method='χPO', beta=min(BETAS))):.2f}; and a "
        f"large one learns nothing: at β = {max(BETAS):g} all miss "
        f"{fmean(row['gap_mean'] for row in where(rows, beta=max(BETAS))):.2f}."
    )
    return result


def _worse_than_reference(row: Any) -> bool:
    return "beta" in row and row["gap_mean"] > REFERENCE_GAP


_STYLES: dict[str, Style] = {
    "DPO": ("C3", "-", "o"),
    "χPO": ("C0", "-", "o"),
    "Square-DPO": ("C1", "--", "s"),
    "Square-χPO": ("C2", "--", "s"),
}


def plot(rows: Rows) -> Figure:
    """The gap against β at some n, and at the best β against n."""
    shown = [n for n in distinct(rows, "n") if n in _PANELS]
    figure = Figure(figsize=(3.2 * (len(shown) + 1), 3.6), layout="constrained")
    *panels, last = figure.subplots(1, len(shown) + 1)
    for axes, n in zip(panels, shown, strict=True):
        for method, style in _STYLES.items():
            same = [row for row in where(rows, method=method, n=n) if "beta" in row]
            styled(axes, same, "beta", "gap_mean", style, method, ms=3)
        axes.axhline(REFERENCE_GAP, color="0.6", lw=1, ls=":")
        axes.set(xscale="log", xlabel="β", title=f"n = {n:,}", ylim=(0.0, 1.05))
        axes.grid(True, color="0.9", lw=0.6)
        open_corner(axes)
    panels[0].set_ylabel("true reward missed, J(π*) − J(π)")
    panels[0].annotate("the reference", (5.0, REFERENCE_GAP + 0.02), ha="right", color="0.4")
    for method, style in _STYLES.items():
        same = [row for row in where(rows, method=method) if "best_gap" in row]
        styled(last, same, "n", "best_gap", style, method, ms=3)
    logarithmic(last)
    last.xaxis.set_major_locator(LogLocator())
    last.set(xlabel="judgements, n", title="at the best β of each", ylim=(1e-3, 1.0))
    legend_below(figure, 4)
    return figure
