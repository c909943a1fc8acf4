"""Does it matter whether labels are corrupted before or after they are randomized?

Source: Zhou et al. 2025, Theorem 3.5: with the square loss the error is √(…/n)·c(ε) + √α where
corruption comes first (CTL) and √(…/n)·c(ε) + √(α·c(ε)) where it comes last (LTC). Here on a
linear population with Bradley–Terry–Luce labels: ‖θ*‖ = 2 in five dimensions, Gaussian features,
ε = 0.5 (c = 4.08) and α = 0.1 as in the paper's Appendix E. Two adversaries: the paper's mask,
which states the opposite of the truth, and one that pulls towards a direction of its own.

Losses: square (S eq. 6, linear form), de-biased log (L eq. 4), the log-likelihood of what is stated
(MLE-RR), and the plain log loss, which is what the paper's comparison trains with. All over the
ball ‖θ‖ ≤ 4.

Legend: P repetitions, J judgements, D dimensions.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.research.reproductions.bandits.corruption import Adversary, Corruption, opposite
from murmuration.research.reproductions.entry import Rows, mean_sd, tracked, where
from murmuration.research.reproductions.plots import Style, against_n

ALPHA, EPSILON, DIMENSION, NORM = 0.1, 0.5, 5, 2.0
LOSSES = {
    "square": "square",
    "log, de-biased": "debiased",
    "log, likelihood (MLE-RR)": "mle",
    "log, plain": "plain",
}
ADVERSARIES = ("opposite", "one direction")


def ctl_ltc(
    quick: bool = False,
    *,
    sizes: Sequence[int] = (1000, 3000, 10_000, 30_000),
    repetitions: int = 20,
    alpha: float = ALPHA,
    epsilon: float = EPSILON,
) -> list[dict[str, Any]]:
    """Rows ``adversary, setting, loss, n, error_mean, error_sd, probability_error``.

    ``setting`` is "coins only", "CTL", "LTC" or "both" (α/2 before and after); ``error`` is
    ‖θ̂ − θ*‖₂, ``probability_error`` the root mean square of the error of P(first is preferred).
    """
    if quick:
        sizes, repetitions = (1000, 4000), 4
    sums: dict[tuple[str, str, str, int], list[tuple[float, float]]] = {}
    for repetition in tracked(range(repetitions), "estimating", repetitions):
        truth_D, x_JD, first_J = _people(repetition, max(sizes))
        for adversary, (setting, corruption) in _settings(x_JD, alpha, epsilon):
            stated_J = corruption.stated(first_J, np.random.default_rng([repetition, 1]))
            for size in sizes:
                labels = RandomizedLabels.of_pairs(
                    torch.from_numpy(x_JD[:size]),
                    torch.from_numpy(stated_J[:size]),
                    corruption.flip_probability,
                )
                for name, loss in LOSSES.items():
                    theta_D = fit(labels, loss, ball=2 * NORM).theta_D.numpy()
                    off_J = _chances(x_JD[:size], theta_D) - _chances(x_JD[:size], truth_D)
                    sums.setdefault((adversary, setting, name, size), []).append(
                        (float(np.linalg.norm(theta_D - truth_D)), math.sqrt((off_J**2).mean()))
                    )
    return [
        {
            "adversary": adversary,
            "setting": setting,
            "loss": name,
            "n": size,
            **mean_sd("error", [error for error, _ in result]),
            "probability_error": fmean(off for _, off in result),
        }
        for (adversary, setting, name, size), result in sums.items()
    ]


def _people(seed: int, judgements: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, 0])
    truth_D = generator.standard_normal(DIMENSION)
    truth_D *= NORM / np.linalg.norm(truth_D)
    x_JD = generator.standard_normal((judgements, DIMENSION))
    return truth_D, x_JD, generator.random(judgements) < _chances(x_JD, truth_D)


def _settings(
    x_JD: np.ndarray, alpha: float, epsilon: float
) -> list[tuple[str, tuple[str, Corruption]]]:
    wanted_J = x_JD[:, 0] > 0
    adversaries: dict[str, Adversary] = dict(
        zip(ADVERSARIES, (opposite, lambda first_J: wanted_J), strict=True)
    )
    return [
        (name, setting)
        for name, adversary in adversaries.items()
        for setting in (
            ("coins only", Corruption(epsilon=epsilon)),
            ("CTL", Corruption(alpha, 0.0, epsilon, adversary)),
            ("LTC", Corruption(0.0, alpha, epsilon, adversary)),
            ("both", Corruption(alpha / 2, alpha / 2, epsilon, adversary)),
        )
    ]


def _chances(x_JD: np.ndarray, theta_D: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x_JD @ theta_D))


def remarks(rows: Rows) -> list[str]:
    """Sentences on the rows of the largest sample."""
    most = max(row["n"] for row in rows)

    def error(adversary: str, setting: str, loss: str) -> float:
        (row,) = where(rows, adversary=adversary, setting=setting, loss=loss, n=most)
        return row["error_mean"]

    return [
        f"Adversary “{adversary}”, n = {most:,}: the error is "
        + "; ".join(
            f"{error(adversary, 'coins only', loss):.2f} without corruption, "
            f"{error(adversary, 'CTL', loss):.2f} under CTL and "
            f"{error(adversary, 'LTC', loss):.2f} under LTC with {words}"
            for loss, words in (
                ("square", "the square loss"),
                ("log, de-biased", "the de-biased log loss"),
            )
        )
        + "."
        for adversary in ADVERSARIES
    ]


_STYLES: dict[str, Style] = {
    "square": ("C0", "-", "o"),
    "log, de-biased": ("C1", "-", "o"),
    "log, likelihood (MLE-RR)": ("C3", "--", "o"),
    "log, plain": ("0.6", ":", "o"),
}


def plot(rows: Rows) -> Figure:
    """Error against n: a row of panels for each adversary, a column for each setting."""
    figure = against_n(
        rows,
        down="adversary",
        across="setting",
        lines="loss",
        styles=_STYLES,
        title=lambda row: "both, half each" if row["setting"] == "both" else row["setting"],
        ylabel=lambda row: f"adversary: {row['adversary']}\n‖θ̂ − θ*‖₂, mean",
        size=(2.7, 2.7),
        margin=(0.5, 0.8),
        columns=4,
        sharey="all",
        ms=3,
    )
    figure.suptitle(
        f"Labels corrupted with α = {ALPHA:g} before (CTL) or after (LTC) coins of ε = {EPSILON:g}",
        fontsize=11,
    )
    return figure
