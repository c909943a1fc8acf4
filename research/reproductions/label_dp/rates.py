"""Chowdhury et al. 2024: do errors go with n, d and ε as the paper's bounds say?

Source: "L", Theorems 3.1 to 5.3 and D.3. The paper proves rates and measures none of them; the
population is ours, and is one in which its assumptions hold with coverage of the best order:
responses have features of length L = 1 in all directions, so κ = 2/d, ‖θ*‖ = 1/2 and B = 1. By
turns n, d or ε varies, the others being the base's. δ = 1e-5 in the centre.

Estimators: the exact minimiser of the de-biased loss (L eq. 4); one pass of SGD-RR with the steps
of Theorem 4.5's proof, 1/(γ_ε κ t) with γ_ε = γ(e^ε − 1)/(e^ε + 1), and the last iterate; objective
perturbation (L Alg. 2) with the paper's noise, whose ``private part`` is how far the noise moves
the minimiser on the same data. The paper's β is left out: it is not needed for label privacy.

Rates as the paper has them, logarithms and γ left out, with κ = 2/d. In place of ε stands
c(ε) = (e^ε + 1)/(e^ε − 1) for the local model, and 1/ε for the central one.

Theorem D.5 is left out: its private term is the square root of what Theorem D.3 has, times B/γ. It
is above the error wherever that is below the ball, and its powers are of another number.

Legend: R seeds, J judgements, D dimensions, X points.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.projected_sgd import Steps, one_pass
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.research.reproductions.entry import Rows, in_processes, tracked, where
from murmuration.research.reproductions.plots import bound, legend_below, line, logarithmic
from murmuration.research.reproductions.slopes import Slope, compared
from murmuration.research.strategies.objective_noise import LabelObjective

BALL, NORM, DELTA = 1.0, 0.5, 1e-5
#: γ of Assumption 2.1 where ‖φ‖ ≤ 1, ‖θ‖ ≤ B: logits are at most 2.
GAMMA = 1.0 / (2.0 + math.exp(-2.0 * BALL) + math.exp(2.0 * BALL))
DEBIASED, SGD = "de-biased minimiser", "SGD-RR"
OBJECTIVE, PRIVATE_PART = "objective perturbation", "objective perturbation, private part"
SEMI, L2 = "semi-norm", "l2"
VARIED = ("n", "dimension", "epsilon")


@dataclass(frozen=True)
class Cell:
    """One point of a sweep: the name of the one of three numbers that varies, and all three."""

    varied: str
    n: int
    dimension: int
    epsilon: float

    @property
    def contrast(self) -> float:
        """1/c(ε)."""
        return math.tanh(self.epsilon / 2.0)

    def x(self, estimator: str) -> float:
        """The rates' variable in place of the number that varies."""
        if self.varied != "epsilon":
            return float(self.n if self.varied == "n" else self.dimension)
        return 1.0 / (self.contrast if estimator in (DEBIASED, SGD) else self.epsilon)


@dataclass(frozen=True)
class Rate:
    """A bound's exponents of n, d and (in place of ε) c(ε) or 1/ε."""

    theorem: str
    side: Literal["upper", "lower"]
    estimator: str
    norm: str
    n: float
    dimension: float
    epsilon: float


RATES = (
    Rate("L Thm 3.1", "lower", DEBIASED, SEMI, -0.5, 0.5, 1.0),
    Rate("L Thm 4.2", "upper", DEBIASED, SEMI, -0.5, 0.5, 1.0),
    Rate("L Thm 3.2", "lower", DEBIASED, L2, -0.5, 1.0, 1.0),
    Rate("L Cor. 4.3", "upper", DEBIASED, L2, -0.5, 1.0, 1.0),
    Rate("L Thm 4.5", "upper", SGD, L2, -0.5, 1.0, 1.0),
    Rate("L Thm 5.1, private term", "lower", PRIVATE_PART, L2, -1.0, 0.5, 1.0),
    Rate("L Thm 5.3, private term", "upper", PRIVATE_PART, L2, -1.0, 1.5, 1.0),
    Rate("L Thm D.3, private term", "lower", PRIVATE_PART, SEMI, -1.0, 1.0, 1.0),
)


def label_dp_bounds(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``varied, n, dimension, epsilon, estimator, norm, x, error_mean``, then, for every bound
    and number, ``theorem, side, estimator, norm, varied, exponent, slope, low, high, verdict``.

    ``x`` is the number that varies, c(ε) or 1/ε for ε. ``quick``: 5 seeds, three points of each,
    at most 2^14 judgements.
    """
    sizes, dimensions = (2**12, 2**13, 2**14, 2**15), (2, 4, 8, 16)
    epsilons, seeds = (0.25, 0.5, 1.0, 2.0), 30
    if quick:
        sizes, dimensions, epsilons, seeds = sizes[:3], dimensions[:3], epsilons[1:], 5
    base = Cell("", max(sizes), 8, 1.0)
    cells = [
        *(Cell("n", size, base.dimension, base.epsilon) for size in sizes),
        *(Cell("dimension", base.n, dimension, base.epsilon) for dimension in dimensions),
        *(Cell("epsilon", base.n, base.dimension, epsilon) for epsilon in epsilons),
    ]
    tasks = [(cell, seeds) for cell in cells]
    errors = dict(
        zip(cells, tracked(in_processes(measured, tasks), "errors", len(cells)), strict=True)
    )
    rows: list[dict[str, Any]] = [
        {
            "varied": cell.varied,
            "n": cell.n,
            "dimension": cell.dimension,
            "epsilon": cell.epsilon,
            "estimator": estimator,
            "norm": norm,
            "x": cell.x(estimator),
            "error_mean": float(error_R.mean()),
        }
        for cell in cells
        for (estimator, norm), error_R in errors[cell].items()
    ]
    for rate in RATES:
        for varied in VARIED:
            swept = [cell for cell in cells if cell.varied == varied]
            error_RX = np.stack([errors[cell][rate.estimator, rate.norm] for cell in swept], axis=1)
            slope = Slope.fitted([cell.x(rate.estimator) for cell in swept], error_RX)
            rows.append(
                {
                    "theorem": rate.theorem,
                    "side": rate.side,
                    "estimator": rate.estimator,
                    "norm": rate.norm,
                    "varied": varied,
                    **slope.columns(getattr(rate, varied), rate.side),
                }
            )
    return rows


def directions(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Vectors of length one, which point everywhere alike."""
    drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return drawn / drawn.norm(dim=-1, keepdim=True)


def measured(task: tuple[Cell, int]) -> dict[tuple[str, str], np.ndarray]:
    """The errors of a cell, (R,) each, by estimator and norm.

    Cells have different seeds for people and randomization, except cells of the same shape.
    """
    cell, seeds = task
    generator = torch.Generator().manual_seed(1000 * cell.dimension + int(math.log2(cell.n)))
    shape = (seeds, cell.n, cell.dimension)
    truth_RD = NORM * directions(generator, seeds, cell.dimension)
    x_RJD = directions(generator, *shape) - directions(generator, *shape)
    chance_RJ = torch.sigmoid((x_RJD @ truth_RD.unsqueeze(-1)).squeeze(-1))
    first_RJ = torch.rand(chance_RJ.shape, generator=generator) < chance_RJ
    flip = RandomizedResponse(cell.epsilon).flip_probability
    coins_RJ = torch.rand(chance_RJ.shape, generator=generator, dtype=torch.float64)
    noise_RD = torch.randn(seeds, cell.dimension, generator=generator, dtype=torch.float64)

    stated = RandomizedLabels.of_pairs(x_RJD, first_RJ ^ (coins_RJ < flip), flip)
    clean = RandomizedLabels.of_pairs(x_RJD, first_RJ, 0.0)
    steps = Steps(rate=cell.dimension / (2.0 * GAMMA * cell.contrast), power=1.0, averaging=False)
    std = LabelObjective(cell.epsilon, DELTA, 2.0, "paper").std
    plain_RD = fit(clean, "plain", ball=BALL).theta_D
    tilted_RD = fit(clean, "plain", ball=BALL, start_D=plain_RD, tilt_D=std * noise_RD).theta_D
    debiased_RD = fit(stated, "debiased", ball=BALL).theta_D
    off = {
        DEBIASED: debiased_RD - truth_RD,
        SGD: one_pass(stated, ball=BALL, steps=steps) - truth_RD,
        OBJECTIVE: tilted_RD - truth_RD,
        PRIVATE_PART: tilted_RD - plain_RD,
    }
    result = {}
    for name, off_RD in off.items():
        along_RJ = (x_RJD @ off_RD.unsqueeze(-1)).squeeze(-1)
        result[name, L2] = off_RD.norm(dim=-1).numpy()
        result[name, SEMI] = (along_RJ**2).mean(dim=-1).sqrt().numpy()
    return result


_SYMBOLS = {"n": "n", "dimension": "d", "epsilon": "c(ε) or 1/ε"}


def remarks(rows: Rows) -> list[str]:
    """A sentence for every bound: measured exponents, the bound's, and the verdict."""
    result = []
    for rate in RATES:
        parts = [
            compared(row, _SYMBOLS[row["varied"]]) for row in where(rows, theorem=rate.theorem)
        ]
        result.append(
            f"{rate.theorem} ({rate.side}, {rate.norm}, {rate.estimator}): "
            + "; ".join(parts)
            + "."
        )
    return result


_COLOURS = {DEBIASED: "C0", SGD: "C1", OBJECTIVE: "C2", PRIVATE_PART: "C3"}


def plot(rows: Rows) -> Figure:
    """Error against n, d and ε: a row of panels for each norm, a column for each of the three;
    dotted: exponents of upper bounds."""
    figure = Figure(figsize=(10.5, 6.2), layout="constrained")
    panels = figure.subplots(2, len(VARIED))
    for i, norm in enumerate((SEMI, L2)):
        for j, varied in enumerate(VARIED):
            axes = panels[i, j]
            for name, colour in _COLOURS.items():
                same = where(rows, varied=varied, norm=norm, estimator=name, theorem=None)
                line(axes, same, "x", "error_mean", "o-", color=colour, ms=3.5, label=name)
                for rate in RATES:
                    if (rate.side, rate.estimator, rate.norm) == ("upper", name, norm):
                        bound(axes, same, "x", "error_mean", getattr(rate, varied), color=colour)
            logarithmic(axes)
            axes.set_xlabel(_SYMBOLS[varied])
            if j == 0:
                axes.set_ylabel(f"error, {norm}")
    legend_below(figure, 4)
    return figure
