"""Figure 1 of the label-DP paper: error of estimators behind randomized response, against n.

Source: Chowdhury et al. 2024 ("L"), §6: θ* and features of both responses are standard Gaussian in
d dimensions, labels follow Bradley–Terry–Luce, δ = 0.001 for objective perturbation, 100
repetitions. What the paper leaves open is chosen here: B = 2√d (θ* is drawn again where it is
longer), and rows longer than √(2d) + 2√2, a few in a thousand, are clipped to that
length for objective perturbation.

Estimators: the likelihood of clean labels; objective perturbation with the paper's constants and
with the least noise; the exact de-biased minimiser; SGD-RR with steps that fall, and with
steps of 0.1 and the last iterate, as the text says; MLE-RR; and the likelihood that takes
randomized labels for true ones.

The paper has gradient steps for all of its three curves, and says that nothing was tuned. So its
order of errors is counted twice: with SGD-RR behind randomized response, and, like for like with
the other two, with the exact de-biased minimiser.

The authors' public notebook (sayakrc/Differentialy_Private_Estimation) does something else, and is
rerun beside them, with the difference that each repetition has its own θ*: one pass of gradient
steps of length 1 in a ball of radius exactly ‖θ*‖, the last iterate, for all three of its curves.
Its "MLE" takes the true labels, its "RR" randomized ones, its "Obj" true ones with Gaussian noise
of L √log(1/δ)/(ε√n) in every gradient, which is no objective perturbation. What it plots is the
error *divided by √n*. Whether the printed figure came of it cannot be known.

All estimators see the same people, and all ε use the same uniform draws with another threshold, so
that differences are not chance. The samples of size n are the first n of the largest.

Legend: P repetitions, J judgements, D dimensions, K paths of gradient steps.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.projected_sgd import PUBLISHED, one_pass
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.research.reproductions.entry import Rows, distinct, in_processes, tracked, where
from murmuration.research.reproductions.plots import Style, against_n
from murmuration.research.strategies.objective_noise import LabelObjective

DELTA = 1e-3
SIZES = (1000, 2000, 4000, 6000, 8000, 10_000)
NON_PRIVATE, OBJECTIVE, OBJECTIVE_PAPER = (
    "non-private",
    "objective perturbation",
    "objective perturbation, paper's constants",
)
DEBIASED, SGD, SGD_PUBLISHED = "de-biased minimiser", "SGD-RR", "SGD-RR, steps of 0.1"
MLE, PLAIN = "MLE-RR", "randomized labels taken as true"
NOTEBOOK_CLEAN, NOTEBOOK_RR, NOTEBOOK_NOISY = (
    "notebook: MLE",
    "notebook: RR",
    "notebook: Obj",
)
_TOGETHER = 10  # repetitions of a task: what fits a processor's cache

#: ‖θ̂ − θ*‖ and how much too long θ̂ is along θ*, of each repetition.
_Found = dict[tuple[float | None, int, str], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Task:
    """Some repetitions in one dimension, at all sizes and epsilons."""

    dimension: int
    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]
    repetitions: int
    seed: int


def label_dp_fig1(
    quick: bool = False,
    *,
    dimensions: Sequence[int] = (3, 5, 10),
    sizes: Sequence[int] = SIZES,
    epsilons: Sequence[float] = (0.1, 0.5, 1.0),
    repetitions: int = 100,
) -> list[dict[str, Any]]:
    """Rows ``dimension, epsilon, n, estimator, error_mean, error_sd, error_over_root_n, excess``.

    ``error_over_root_n`` is what the authors' notebook plots. ``excess`` is the mean of
    ⟨θ̂ − θ*, θ*⟩/‖θ*‖²: 0.5 for an answer that is half as long again as it should be. The
    non-private estimators have no epsilon. ``quick``: one dimension, three sizes, ε = 0.1 and 1,
    20 repetitions.
    """
    if quick:
        dimensions, sizes, epsilons, repetitions = (5,), (1000, 2000, 4000), (0.1, 1.0), 20
    tasks = [
        _Task(
            dimension,
            tuple(sizes),
            tuple(epsilons),
            min(_TOGETHER, repetitions - first),
            seed=1000 * dimension + first,
        )
        for dimension in sorted(dimensions, reverse=True)
        for first in range(0, repetitions, _TOGETHER)
    ]
    found: dict[int, list[_Found]] = {dimension: [] for dimension in dimensions}
    results = tracked(in_processes(_estimate, tasks), "estimating", len(tasks))
    for task, result in zip(tasks, results, strict=True):
        found[task.dimension].append(result)
    return [row for dimension in dimensions for row in _rows(dimension, found[dimension])]


def _estimate(task: _Task) -> _Found:
    generator = torch.Generator().manual_seed(task.seed)
    ball, most = 2 * math.sqrt(task.dimension), max(task.sizes)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    truth_PD = normal(task.repetitions, task.dimension)
    while (outside := truth_PD.norm(dim=-1) > ball).any():
        truth_PD[outside] = normal(int(outside.sum()), task.dimension)
    x_PJD = normal(task.repetitions, most, task.dimension)
    x_PJD -= normal(task.repetitions, most, task.dimension)
    chance_PJ = torch.sigmoid((x_PJD @ truth_PD.unsqueeze(-1)).squeeze(-1))
    first_PJ = torch.rand(chance_PJ.shape, generator=generator) < chance_PJ
    coins_PJ = torch.rand(chance_PJ.shape, generator=generator, dtype=torch.float64)
    noise_PD = normal(task.repetitions, task.dimension)
    length = math.sqrt(2 * task.dimension) + 2 * math.sqrt(2)
    shrink_PJ1 = (length / x_PJD.norm(dim=-1, keepdim=True)).clamp_max(1.0)

    result: _Found = {}

    def note(epsilon: float | None, size: int, estimator: str, theta_PD: torch.Tensor) -> None:
        off_PD = theta_PD - truth_PD
        excess_P = (off_PD * truth_PD).sum(-1) / (truth_PD**2).sum(-1)
        result[epsilon, size, estimator] = off_PD.norm(dim=-1).numpy(), excess_P.numpy()

    clean = RandomizedLabels.of_pairs(x_PJD, first_PJ, 0.0)
    bounded = RandomizedLabels.of_pairs(x_PJD * shrink_PJ1, first_PJ, 0.0)
    start: dict[int, torch.Tensor] = {}
    for size in task.sizes:
        start[size] = fit(clean.head(size), "plain", ball=ball).theta_D
        note(None, size, NON_PRIVATE, start[size])
    for epsilon in task.epsilons:
        flip = RandomizedResponse(epsilon).flip_probability
        told = RandomizedLabels.of_pairs(x_PJD, first_PJ ^ (coins_PJ < flip), flip)
        for name, calibration in ((OBJECTIVE, "analytic"), (OBJECTIVE_PAPER, "paper")):
            std = LabelObjective(epsilon, DELTA, length, calibration).std  # type: ignore[arg-type]
            for size in task.sizes:
                part, begin, tilt = bounded.head(size), start[size], std * noise_PD
                solved = fit(part, "plain", ball=ball, start_D=begin, tilt_D=tilt)
                note(epsilon, size, name, solved.theta_D)
        for size in task.sizes:
            part = told.head(size)
            for name, loss in ((DEBIASED, "debiased"), (MLE, "mle"), (PLAIN, "plain")):
                # A hundred-millionth of the loss is far below what would change the likelihood.
                note(epsilon, size, name, fit(part, loss, ball=ball, flat=1e-8).theta_D)
        sizes = sorted(task.sizes)
        path = one_pass(told, ball=ball, at=sizes)
        as_published = one_pass(told, ball=ball, steps=PUBLISHED, at=sizes)
        for place, size in enumerate(sizes):
            note(epsilon, size, SGD, path[place])
            note(epsilon, size, SGD_PUBLISHED, as_published[place])
    for key, theta_PD in notebook(x_PJD, first_PJ, coins_PJ, truth_PD, task, normal).items():
        note(*key, theta_PD)
    return result


def notebook(
    x_PJD: torch.Tensor,
    first_PJ: torch.Tensor,
    coins_PJ: torch.Tensor,
    truth_PD: torch.Tensor,
    task: "_Task",
    normal: Callable[..., torch.Tensor],
) -> dict[tuple[float | None, int, str], torch.Tensor]:
    """The estimates of the authors' notebook, (P, D) each, by ε, n and estimator."""
    paths: list[tuple[float | None, int, str]] = [(None, 0, NOTEBOOK_CLEAN)]
    for epsilon in task.epsilons:
        paths.append((epsilon, 0, NOTEBOOK_RR))
        paths += [(epsilon, size, NOTEBOOK_NOISY) for size in task.sizes]
    # A step's gradient is (a·p − b)·x + noise, where p is the model's chance of the first response.
    y_PJ = first_PJ.to(torch.float64)
    a_K1, noise_KP1 = torch.ones(len(paths), 1), torch.zeros(len(paths), len(truth_PD), 1)
    b_KPJ = y_PJ.expand(len(paths), *y_PJ.shape).clone()
    for k, (epsilon, size, name) in enumerate(paths):
        if name == NOTEBOOK_RR:
            assert epsilon
            truthful = 1.0 / (1.0 + math.exp(-epsilon))
            stated_PJ = (first_PJ ^ (coins_PJ < 1.0 - truthful)).to(torch.float64)
            a_K1[k] = 2.0 * truthful - 1.0
            b_KPJ[k] = truthful * stated_PJ - (1.0 - truthful) * (1.0 - stated_PJ)
        elif name == NOTEBOOK_NOISY:
            assert epsilon
            longest_P1 = x_PJD[:, :size].norm(dim=-1).amax(-1, keepdim=True)
            noise_KP1[k] = longest_P1 * math.sqrt(math.log(1.0 / DELTA) / size) / epsilon
    theta_KPD = torch.zeros(len(paths), *truth_PD.shape, dtype=torch.float64)
    ball_P1, result = truth_PD.norm(dim=-1, keepdim=True), {}
    for j in range(max(task.sizes)):
        x_PD = x_PJD[:, j]
        p_KP = torch.sigmoid((theta_KPD * x_PD).sum(-1))
        slope_KP = a_K1 * p_KP - b_KPJ[:, :, j]
        theta_KPD -= slope_KP.unsqueeze(-1) * x_PD + noise_KP1 * normal(*theta_KPD.shape)
        theta_KPD *= (ball_P1 / theta_KPD.norm(dim=-1, keepdim=True)).clamp_max(1.0)
        if j + 1 in task.sizes:
            for k, (epsilon, size, name) in enumerate(paths):
                if size in (0, j + 1):
                    result[epsilon, j + 1, name] = theta_KPD[k].clone()
    return result


def _rows(dimension: int, parts: Sequence[_Found]) -> Iterator[dict[str, Any]]:
    for epsilon, size, estimator in parts[0]:
        error_P, excess_P = (
            np.concatenate([part[epsilon, size, estimator][which] for part in parts])
            for which in (0, 1)
        )
        yield {
            "dimension": dimension,
            "epsilon": epsilon,
            "n": size,
            "estimator": estimator,
            "error_mean": float(error_P.mean()),
            "error_sd": float(error_P.std(ddof=1)),
            "error_over_root_n": float(error_P.mean()) / math.sqrt(size),
            "excess": float(excess_P.mean()),
        }


def remarks(rows: Rows) -> list[str]:
    """Sentences on how the rows compare with the paper."""
    return [*_orders(rows), *_trends(rows), *_of_notebook(rows), _bias(rows)]


def _errors(rows: Rows, dimension: int, epsilon: float | None, estimator: str) -> dict[int, float]:
    same = where(rows, dimension=dimension, epsilon=epsilon, estimator=estimator)
    return {row["n"]: row["error_mean"] for row in same}


def _orders(rows: Rows) -> Iterator[str]:
    epsilons = sorted(distinct(rows, "epsilon"))
    for epsilon, local_name in itertools.product(epsilons, (SGD, DEBIASED)):
        failed, cases = [], 0
        for dimension in sorted(distinct(rows, "dimension")):
            clean = _errors(rows, dimension, None, NON_PRIVATE)
            objective, paper, local = (
                _errors(rows, dimension, epsilon, name)
                for name in (OBJECTIVE, OBJECTIVE_PAPER, local_name)
            )
            cases += len(clean)
            failed += [
                f"d = {dimension}, n = {n:,}"
                for n in clean
                if not clean[n] < objective[n] < paper[n] < local[n]
            ]
        but = f", not at {'; '.join(failed)}" if failed else ""
        yield (
            f"ε = {epsilon:g}: non-private < objective perturbation (with the least noise, and "
            f"with the paper's) < {local_name} in {cases - len(failed)} of {cases} cases{but}."
        )


def _trends(rows: Rows) -> Iterator[str]:
    epsilons = sorted(distinct(rows, "epsilon"))
    private = (OBJECTIVE, DEBIASED, SGD, SGD_PUBLISHED, MLE)
    for name, epsilon in [(NON_PRIVATE, None), *itertools.product(private, epsilons)]:
        slopes = []
        for dimension in sorted(distinct(rows, "dimension")):
            errors = _errors(rows, dimension, epsilon, name)
            slope = np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1)[0]
            slopes.append(f"{slope:.2f} (d = {dimension})")
        at = "" if epsilon is None else f", ε = {epsilon:g}"
        yield f"{name}{at}: the error goes like n to the power " + ", ".join(slopes) + "."


def _of_notebook(rows: Rows) -> Iterator[str]:
    least, most = min(distinct(rows, "n")), max(distinct(rows, "n"))
    for name in (NOTEBOOK_CLEAN, NOTEBOOK_RR, NOTEBOOK_NOISY):
        epsilon = None if name == NOTEBOOK_CLEAN else max(distinct(rows, "epsilon"))
        ends = [
            [
                where(rows, dimension=d, epsilon=epsilon, estimator=name, n=n)[0]["error_mean"]
                for n in (least, most)
            ]
            for d in sorted(distinct(rows, "dimension"))
        ]
        errors = ", ".join(
            f"{first:.2f} → {last:.2f} ({first / math.sqrt(least):.4f} → "
            f"{last / math.sqrt(most):.4f} when divided by √n)"
            for first, last in ends
        )
        yield f"{name}, from n = {least:,} to {most:,}: the error goes {errors}."


def _bias(rows: Rows) -> str:
    least, most = min(distinct(rows, "epsilon")), max(distinct(rows, "n"))
    result = ", ".join(
        f"{row['estimator']} {row['excess']:+.0%} (d = {row['dimension']})"
        for row in where(rows, epsilon=least, n=most, estimator=(MLE, DEBIASED))
    )
    return (
        f"Along θ* the answers at ε = {least:g}, n = {most:,} are off by: {result}. "
        "What is left of the signal there is so weak that the ball stops the answer."
    )


_STYLES: dict[str, Style] = {
    NON_PRIVATE: ("0.25", "-", "o"),
    OBJECTIVE: ("C2", "-", "s"),
    OBJECTIVE_PAPER: ("C2", ":", "s"),
    DEBIASED: ("C0", "-", "^"),
    SGD: ("C1", "-", "D"),
    SGD_PUBLISHED: ("C1", ":", "D"),
    MLE: ("C3", "--", "v"),
    PLAIN: ("0.65", ":", "x"),
    NOTEBOOK_CLEAN: ("C4", "-", "<"),
    NOTEBOOK_RR: ("C4", "--", "<"),
    NOTEBOOK_NOISY: ("C4", ":", "<"),
}


def plot(rows: Rows) -> Figure:
    """Error against n: a row of panels for each dimension, a column for each epsilon."""
    return against_n(
        rows,
        down="dimension",
        across="epsilon",
        lines="estimator",
        styles=_STYLES,
        title=lambda row: f"d = {row['dimension']}, ε = {row['epsilon']:g}",
        ylabel=lambda row: "‖θ̂ − θ*‖₂, mean",
        size=(3.4, 2.7),
        margin=(0.4, 1.2),
        columns=3,
        ms=3.5,
        lw=1.3,
    )
