"""Figures 9 and 10 of Charles et al. 2024: which group size suits ELS, and does the median?

Source: "U", Appendix H. ELS keeps at most G judgements of a user: with few it trains on little of
what there is, with many it needs more noise, and busy users count for more. The paper fine-tunes
language models at several ε and G, and finds that the median number of examples of a user "works
well". Here it is a linear reward, of users with a heavy tail of judgements, all of one mind, or
each with an own θ. Test users count alike, whatever they gave: that is our choice, the paper's test
loss is of all test examples. At every G a round has as many judgements, and clip norm and step size
are the best of the same multiples of their defaults, by the loss of other users.

The rule: with the regret of a G, its loss above that of the G which is best on average, the median
*agrees* where its regret is less than a fifth of the worst's by the 95 % interval over seeds of the
difference, *does not agree* where it is more, and *cannot be told* between. The fifth was fixed
before the first full run, of five seeds and judged by means; the interval before that of ten.

Legend: U users, J judgements of all users, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.alignment.claims import (
    Claim,
    in_words,
    mean_interval,
)
from murmuration.research.reproductions.btl import NORM, Training, directions
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import (
    legend_below,
    log_ticks,
    open_corner,
    with_intervals,
)
from murmuration.research.reproductions.uls.personal import models
from murmuration.strategies.config import RunConfig

GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
EPSILONS = (1.0, 3.0, 8.0)
DEVIATIONS = (0.0, 2.0)
#: Judgements of a user are lognormal, and limited.
MEDIAN, SPREAD = 8, 1.0
#: Of the worst regret.
LITTLE = 0.2


@dataclass(frozen=True)
class Sizes:
    """Numbers of users, also for the test, and of judgements in a round."""

    users: int = 2000
    test_users: int = 500
    dimension: int = 16
    rounds: int = 200
    batch: int = 1600


@dataclass(frozen=True, eq=False)
class Users:
    """Judgements as differences of features, the preferred response first, grouped by user."""

    x_JD: np.ndarray
    counts_U: np.ndarray

    @classmethod
    def draw(
        cls, seed: int, users: int, deviation: float, truth_D: np.ndarray, most: int
    ) -> "Users":
        """Users with a θ of their own each, who judge by Bradley, Terry and Luce."""
        generator = np.random.default_rng([2027, seed])
        counts_U = MEDIAN * np.exp(SPREAD * generator.standard_normal(users))
        counts_U = np.clip(np.round(counts_U), 1, most).astype(np.int64)
        own_UD = truth_D + deviation * directions(generator, users, len(truth_D))
        own_JD = np.repeat(own_UD, counts_U, axis=0)
        x_JD = directions(generator, *own_JD.shape) - directions(generator, *own_JD.shape)
        agrees_J = generator.random(len(x_JD)) < expit((x_JD * own_JD).sum(axis=1))
        return cls(np.where(agrees_J[:, None], x_JD, -x_JD), counts_U)

    def examples(self) -> PairExamples:
        """The examples on which strategies train."""
        start_U = torch.from_numpy(np.concatenate([[0], np.cumsum(self.counts_U)]))
        x_RD = torch.tensor(self.x_JD, dtype=torch.float32)
        return PairExamples(x_RD, torch.ones(len(x_RD)), start_U)

    def loss(self, theta_D: np.ndarray) -> float:
        """The mean over users of their mean log loss."""
        loss_J = np.logaddexp(0.0, -self.x_JD @ theta_D)
        user_J = np.repeat(np.arange(len(self.counts_U)), self.counts_U)
        return float((np.bincount(user_J, loss_J) / self.counts_U).mean())


def settings(epsilon: float, group_size: int, sizes: Sizes, counts_U: np.ndarray) -> RunConfig:
    """The settings of a run in which a round has ``batch`` judgements, or all that there are."""
    number = int(np.minimum(counts_U, group_size).sum())
    return RunConfig.from_run_config(
        {
            "strategy": "els",
            "epsilon": epsilon,
            "delta": 1e-5,
            "adjacency": "add-remove",
            "test": "other users",
            "rounds": sizes.rounds,
            "cohort": min(sizes.users, sizes.batch),
            "group_size": group_size,
            "sampling_probability": min(1.0, sizes.batch / number),
        }
    )


def one_seed(
    task: tuple[int, Sizes, float, Sequence[float], Sequence[int]],
) -> dict[tuple[float, int], float]:
    """The test users' loss by ε and G."""
    seed, sizes, deviation, epsilons, group_sizes = task
    generator = np.random.default_rng([2027, seed, 1])
    truth_D = generator.standard_normal(sizes.dimension)
    truth_D *= NORM / np.linalg.norm(truth_D)
    trained, tuned, tested = (
        Users.draw(10 * seed + place, users, deviation, truth_D, max(group_sizes))
        for place, users in enumerate((sizes.users, sizes.test_users, sizes.test_users))
    )
    training = Training(trained.examples(), Randomness(seed))
    return {
        (epsilon, group_size): tested.loss(
            min(
                models(training, settings(epsilon, group_size, sizes, trained.counts_U)),
                key=tuned.loss,
            )
        )
        for epsilon in epsilons
        for group_size in group_sizes
    }


def median_rule(
    quick: bool = False,
    *,
    sizes: Sizes = Sizes(),
    group_sizes: Sequence[int] = GROUP_SIZES,
    deviations: Sequence[float] = DEVIATIONS,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 10,
) -> list[dict[str, Any]]:
    """Rows ``deviation, epsilon, group_size, loss, regret`` (means and intervals over seeds), then
    ``deviation, epsilon, best, worst, median_regret, worst_regret`` (again) ``, verdict``.
    ``quick``: two seeds of few users, one deviation, two ε, four group sizes."""
    if quick:
        sizes, seeds = Sizes(users=300, test_users=100, rounds=40, batch=240), 2
        deviations, epsilons, group_sizes = deviations[-1:], epsilons[::2], (1, MEDIAN, 32, 128)
    tasks = [
        (seed, sizes, deviation, tuple(epsilons), tuple(group_sizes))
        for deviation in deviations
        for seed in range(seeds)
    ]
    results = tracked(in_processes(one_seed, tasks), "group sizes", len(tasks))
    by_task = dict(zip(tasks, results, strict=True))
    rows: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    for deviation in deviations:
        same = [by_task[task] for task in tasks if task[2] == deviation]
        for epsilon in epsilons:
            mean = {g: float(np.mean([each[epsilon, g] for each in same])) for g in group_sizes}
            best, worst = min(mean, key=mean.__getitem__), max(mean, key=mean.__getitem__)
            regrets = {g: [e[epsilon, g] - e[epsilon, best] for e in same] for g in group_sizes}
            for group_size in group_sizes:
                losses = [each[epsilon, group_size] for each in same]
                rows.append(
                    {
                        "deviation": deviation,
                        "epsilon": epsilon,
                        "group_size": group_size,
                        **mean_interval("loss", losses),
                        **mean_interval("regret", regrets[group_size]),
                    }
                )
            own = regrets[MEDIAN]
            spare = [LITTLE * w - m for w, m in zip(regrets[worst], own, strict=True)]
            verdicts.append(
                {
                    "deviation": deviation,
                    "epsilon": epsilon,
                    "best": best,
                    "worst": worst,
                    **mean_interval("median_regret", own),
                    **mean_interval("worst_regret", regrets[worst]),
                    "verdict": Claim("the median", "loses little", spare).verdict,
                }
            )
    return rows + verdicts


def remarks(rows: Rows) -> list[str]:
    """A sentence for every ε and deviation."""
    return [
        f"Users differ by {row['deviation']:g}, ε = {row['epsilon']:g}: the best group size is "
        f"{row['best']}, the median, {MEDIAN}, loses {in_words(row, 'median_regret')} against it, "
        f"the worst, {row['worst']}, {in_words(row, 'worst_regret')}: {row['verdict']}."
        for row in rows
        if "verdict" in row
    ]


def plot(rows: Rows) -> Figure:
    """Loss against group size, a panel for each deviation, a line for each ε, with intervals; the
    median is marked."""
    measured = [row for row in rows if "group_size" in row]
    deviations = distinct(measured, "deviation")
    figure = Figure(figsize=(3.9 * len(deviations) + 0.4, 3.6), layout="constrained")
    panels = figure.subplots(1, len(deviations), squeeze=False)[0]
    for axes, deviation in zip(panels, deviations, strict=True):
        for i, epsilon in enumerate(distinct(measured, "epsilon")):
            same = where(measured, deviation=deviation, epsilon=epsilon)
            style = {"fmt": "o-", "color": f"C{i}", "ms": 4, "label": f"ε = {epsilon:g}"}
            with_intervals(axes, same, "group_size", "loss", **style)
        axes.axvline(MEDIAN, color="0.6", ls=":", lw=1, label="median of users")
        log_ticks(axes, distinct(measured, "group_size"))
        axes.set(
            title=f"users differ by {deviation:g}", xlabel="group size, G", ylabel="loss of a user"
        )
        open_corner(axes)
    legend_below(figure, 4)
    return figure
