"""Chowdhury et al. 2024, Theorem C.2: choices among K responses, through K-ary randomized response.

Source: "L", Appendix C, with the steps of its proof (a constant one, as stated, does not converge).
A person names the best of K responses, by Plackett and Luce's model; what is stated is the truth
with probability e^ε/(e^ε + K − 1), else one of the others. SGD-KRR takes steps of 1/(γ_{K,ε} κ t)
and gives the last iterate, with γ = e^{−4LB}/2 and γ_{K,ε} = γ(e^ε − 1)/(e^ε + K − 1). Its error is
bounded by c_K(ε)/(γκ√n) up to a constant and logarithms, where c_K(ε) = (e^ε + K − 1)/(e^ε − 1).
The paper measures none of it; the population is that of ``rates``, where L = B = 1 and κ = 2/d
whatever K is. By turns n, K or ε varies.

Beside it, outside of the theorem, the exact minimiser of the de-biased likelihood: what
``--strategy local-label`` solves for.

The rule, fixed before the full run, is that of ``slopes``. In place of K and of ε stands c_K(ε).

Legend: R seeds, J judgements, K responses, W = K − 1, D dimensions, X points.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.projected_sgd import Steps, one_pass
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.research.reproductions.entry import Rows, in_processes, tracked, where
from murmuration.research.reproductions.label_dp.rates import BALL, NORM, directions
from murmuration.research.reproductions.plots import bound, legend_below, line, logarithmic
from murmuration.research.reproductions.slopes import Slope, compared

DIMENSION = 4
GAMMA = math.exp(-4.0 * BALL) / 2.0
SGD, MINIMISER = "SGD-KRR", "de-biased minimiser"
#: What varies, and the power of it (of K and ε: of c_K(ε)) in Theorem C.2.
EXPONENTS = {"n": -0.5, "responses": 1.0, "epsilon": 1.0}


@dataclass(frozen=True)
class Cell:
    """One point of a sweep: the name of the one of three numbers that varies, and all three."""

    varied: str
    n: int
    responses: int
    epsilon: float

    @property
    def x(self) -> float:
        """The bound's variable in place of the number that varies."""
        return float(self.n) if self.varied == "n" else 1.0 / self.contrast

    @property
    def contrast(self) -> float:
        """1/c_K(ε)."""
        return math.expm1(self.epsilon) / (math.exp(self.epsilon) + self.responses - 1)


def label_dp_choices(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``varied, n, responses, epsilon, estimator, x, error_mean``, then, for each number and
    estimator, ``varied, estimator, exponent, slope, low, high, verdict``.

    ``quick``: 5 seeds, three points of each, at most 2^14 judgements.
    """
    sizes, counts = (2**12, 2**13, 2**14, 2**15), (2, 3, 4, 6, 8)
    epsilons, seeds = (0.25, 0.5, 1.0, 2.0), 30
    if quick:
        sizes, counts, epsilons, seeds = sizes[:3], (2, 4, 8), epsilons[1:], 5
    cells = [
        *(Cell("n", size, 4, 1.0) for size in sizes),
        *(Cell("responses", sizes[-1], count, 1.0) for count in counts),
        *(Cell("epsilon", sizes[-1], 4, epsilon) for epsilon in epsilons),
    ]
    tasks = [(cell, seeds) for cell in cells]
    made = tracked(in_processes(measured, tasks), "errors", len(tasks))
    errors = dict(zip(cells, made, strict=True))
    rows: list[dict[str, Any]] = [
        {
            "varied": cell.varied,
            "n": cell.n,
            "responses": cell.responses,
            "epsilon": cell.epsilon,
            "estimator": name,
            "x": cell.x,
            "error_mean": float(error_R.mean()),
        }
        for cell in cells
        for name, error_R in errors[cell].items()
    ]
    for varied, exponent in EXPONENTS.items():
        swept = [cell for cell in cells if cell.varied == varied]
        for name in (SGD, MINIMISER):
            error_RX = np.stack([errors[cell][name] for cell in swept], axis=1)
            slope = Slope.fitted([cell.x for cell in swept], error_RX)
            rows.append({"varied": varied, "estimator": name, **slope.columns(exponent, "upper")})
    return rows


def measured(task: tuple[Cell, int]) -> dict[str, np.ndarray]:
    """The errors ‖θ̂ − θ*‖₂ of a cell, (R,), by estimator."""
    cell, seeds = task
    count = cell.responses
    generator = torch.Generator().manual_seed(100 * count + int(math.log2(cell.n)))

    def coins() -> torch.Tensor:
        return torch.rand(seeds, cell.n, generator=generator, dtype=torch.float64)

    truth_RD = NORM * directions(generator, seeds, DIMENSION)
    phi_RJKD = directions(generator, seeds, cell.n, count, DIMENSION)
    chance_RJK = torch.einsum("rjkd,rd->rjk", phi_RJKD, truth_RD).softmax(-1)
    best_RJ = (chance_RJK.cumsum(-1) < coins()[..., None]).sum(-1).clamp(max=count - 1)
    flip = RandomizedResponse(cell.epsilon, count).flip_probability
    other_RJ = (best_RJ + 1 + (coins() * (count - 1)).long()) % count
    stated_RJ = torch.where(coins() < flip, other_RJ, best_RJ)
    labels = RandomizedLabels.of_choices(
        phi_RJKD[..., :1, :] - phi_RJKD[..., 1:, :], stated_RJ, flip
    )
    rate = DIMENSION / (2.0 * GAMMA * cell.contrast)
    # One pass multiplies gradients by the contrast, as the paper's are.
    made = {
        SGD: one_pass(labels, ball=BALL, steps=Steps(rate, power=1.0, averaging=False)),
        MINIMISER: fit(labels, "debiased", ball=BALL).theta_D,
    }
    return {name: (theta_RD - truth_RD).norm(dim=-1).numpy() for name, theta_RD in made.items()}


_SYMBOLS = {"n": "n", "responses": "c(ε) by K", "epsilon": "c(ε) by ε"}


def remarks(rows: Rows) -> list[str]:
    """Sentences with each estimator's exponents beside the bound's, which holds for the first
    one.
    """
    sentences = []
    for name in (SGD, MINIMISER):
        parts = [
            compared(row, _SYMBOLS[row["varied"]])
            for row in where(rows, estimator=name)
            if "verdict" in row
        ]
        sentences.append(f"L Thm C.2 (upper, l2, {name}): {'; '.join(parts)}.")
    return sentences


def plot(rows: Rows) -> Figure:
    """Error against n and c_K(ε): a panel for each number that varies; dotted, the bound."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    points = [row for row in rows if "error_mean" in row]
    for axes, (varied, exponent) in zip(
        figure.subplots(1, len(EXPONENTS)), EXPONENTS.items(), strict=True
    ):
        for place, name in enumerate((SGD, MINIMISER)):
            same = where(points, varied=varied, estimator=name)
            line(axes, same, "x", "error_mean", "o-", color=f"C{place}", ms=4, label=name)
        same = where(points, varied=varied, estimator=SGD)
        bound(axes, same, "x", "error_mean", exponent, color="0.5", label="as the bound")
        logarithmic(axes)
        axes.set(xlabel=_SYMBOLS[varied], ylabel="error of θ" if varied == "n" else "")
    legend_below(figure, 3)
    return figure
