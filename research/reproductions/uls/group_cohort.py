"""Does Estimate-and-Double choose well? Group sizes and cohorts of ULS, all of them, on judgements.

Source: Charles et al. 2024, App. I.1, Figures 11 to 13, where the loss is that of language models;
here it is ‖θ̂ − θ*‖₂ on the populations of ``research.reproductions.btl``, where answering zero has
two. Every pair of powers of two is trained, with the clip norm at the median length of gradients
that is estimated from *other* people and the best of a few step sizes, chosen by looking at θ*, as
nobody can. Then each strategy says which pair it would have taken for a budget, and is compared
with the best of that budget.

The paper starts from G = 1, M = 32, as here.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.planning import estimate_and_double
from murmuration.planning.estimate_and_double import Point, Space
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.preference.models import preference_model
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Population, Training
from murmuration.research.reproductions.entry import Rows, distinct, mean_sd, where
from murmuration.research.reproductions.plots import line, open_corner
from murmuration.strategies.config import RunConfig

_SETTINGS = RunConfig(
    strategy="uls", delta=1e-5, adjacency="add-remove", rounds=100, test="the true model"
)
_START = Point(1, 32)
#: Step sizes in units of the clip norm: of the default's ceiling, and below. Few judgements in a
#: round need short steps, and how the default is chosen looks at the noise alone.
RATES = (10.0, 2.0, 0.4)
_ORACLE, _DOUBLE = "greedy local oracle", "estimate-and-double"
#: Whose gradients are looked at; no seed of those who are trained on.
_PUBLIC_SEED = 1_000_003
_RANDOM = "random"

#: Mean error of each pair.
Losses = Mapping[Point, float]


@dataclass(frozen=True)
class _Size:
    users: int
    each: int
    dimension: int

    def population(self, seed: int) -> Population:
        return Population.draw(seed, users=self.users, each=self.each, dimension=self.dimension)

    def grid(self) -> list[Point]:
        groups = [1 << k for k in range(self.each.bit_length())]
        cohorts = [_START.cohort << k for k in range((self.users // _START.cohort).bit_length())]
        return [Point(group, cohort) for group in groups for cohort in cohorts]


def group_cohort(
    quick: bool = False,
    *,
    users: int = 2048,
    each: int = 16,
    dimension: int = 32,
    epsilons: Sequence[float] = (1.0, 8.0),
    seeds: int = 2,
    rates: Sequence[float] = RATES,
    settings: RunConfig = _SETTINGS,
) -> list[dict[str, Any]]:
    """Rows of two kinds.

    ``epsilon, group_size, cohort, clip, noise, error_mean`` of each pair; then ``strategy, compute,
    regret_mean, regret_sd``: by how much the error of the pair that a strategy takes is above
    that of the best pair of its budget, over all ε. ``quick``: 256 users
    with 8 judgements, one seed, one step size.
    """
    if quick:
        users, each, seeds, rates = min(users, 256), min(each, 8), 1, rates[1:2]
    size = _Size(users, each, dimension)
    norms = GroupNorms.of(size.population(_PUBLIC_SEED).examples, preference_model("btl"))

    @cache
    def multiplier(epsilon: float, cohort: int) -> float:
        return accountant.noise_multiplier_for(
            epsilon,
            delta=settings.delta,
            probability=cohort / users,
            rounds=settings.rounds,
            adjacency=Adjacency(settings.adjacency),
        )

    rows, losses = [], {}
    people = [_Trained(size.population(seed), seed, settings) for seed in range(seeds)]
    for epsilon in epsilons:
        table = {}
        for point in size.grid():
            clip = norms.length(point.group_size)
            table[point] = min(
                fmean(trained.error(epsilon, point, clip, rate / clip) for trained in people)
                for rate in rates
            )
            rows.append(
                {
                    "epsilon": epsilon,
                    "group_size": point.group_size,
                    "cohort": point.cohort,
                    "clip": clip,
                    "noise": clip * multiplier(epsilon, point.cohort) / point.cohort,
                    "error_mean": table[point],
                }
            )
        losses[epsilon] = table
    budgets = sorted({point.compute for point in size.grid()})
    regrets: dict[tuple[str, int], list[float]] = {}
    for epsilon, compute in itertools.product(epsilons, budgets):
        chosen = _chosen(
            losses[epsilon],
            Space(_START, compute, users),
            norms,
            lambda cohort, epsilon=epsilon: multiplier(epsilon, cohort),
        )
        for name, regret in chosen.items():
            regrets.setdefault((name, compute), []).append(regret)
    for (name, compute), result in regrets.items():
        rows.append({"strategy": name, "compute": compute, **mean_sd("regret", result)})
    return rows


def _chosen(
    losses: Losses, space: Space, norms: GroupNorms, multiplier: estimate_and_double.Multiplier
) -> dict[str, float]:
    """By how much each strategy's pair is worse than the best pair of the budget."""
    same = [point for point in losses if point.compute == space.compute]
    best = min(losses[point] for point in same)
    steps = estimate_and_double.estimate_and_double(space, norms.length, multiplier)
    taken = {
        _DOUBLE: steps[-1].to if steps else space.start,
        _ORACLE: greedy_oracle(space, lambda point: losses.get(point, math.inf)),
        "least noise": min(
            same, key=lambda p: estimate_and_double.noise(p, norms.length, multiplier)
        ),
        "max cohort": max(same, key=lambda point: point.cohort),
        "max group size": max(same, key=lambda point: point.group_size),
    }
    result = {name: losses[point] - best for name, point in taken.items()}
    return {**result, _RANDOM: fmean(losses[point] for point in same) - best}


def greedy_oracle(space: Space, loss: Callable[[Point], float]) -> Point:
    """Return where the paper's "greedy local oracle" ends, which doubles whichever leads to the
    smaller true ``loss``.

    A yardstick for local strategies; nobody can compute it without training at every point. Like
    the paper's it uses the whole budget, whether or not that helps.
    """
    point = space.start
    while True:
        nearby = [p for p in (space.doubled_group(point), space.doubled_cohort(point)) if p]
        if not nearby:
            return point
        point = min(nearby, key=loss)


class _Trained:
    """One population, to train on with any pair."""

    def __init__(self, population: Population, seed: int, settings: RunConfig) -> None:
        self._population, self._settings = population, replace(settings, seed=seed)
        self._training = Training(population.examples, Randomness(seed))

    def error(self, epsilon: float, point: Point, clip: float, rate: float) -> float:
        """‖θ̂ − θ*‖ after training with these."""
        config = replace(
            self._settings,
            epsilon=epsilon,
            group_size=point.group_size,
            cohort=point.cohort,
            clip_norm=clip,
            learning_rate=rate,
        )
        strategy, _ = self._training.run(config)
        return self._population.error(strategy.optimizer.result_D)


def remarks(rows: Rows) -> list[str]:
    """Return how much worse than the best each strategy is, over all budgets."""
    regrets = {
        name: [row["regret_mean"] for row in where(rows, strategy=name)]
        for name in distinct(rows, "strategy")
    }
    order = sorted(regrets, key=lambda name: fmean(regrets[name]))
    listed = ", ".join(f"{name} {fmean(regrets[name]):.3f}" for name in order)
    return [f"Error above that of the best pair of the budget, mean over budgets and ε: {listed}."]


def plot(rows: Rows) -> Figure:
    """A map of errors for each ε (the paper's Figure 11), and regret by budget (Figure 12)."""
    pairs = [row for row in rows if "error_mean" in row]
    epsilons, groups, cohorts = (
        sorted(distinct(pairs, column)) for column in ("epsilon", "group_size", "cohort")
    )
    figure = Figure(figsize=(3.0 * len(epsilons) + 4.0, 3.4), layout="constrained")
    *maps, regret = figure.subplots(
        1, len(epsilons) + 1, gridspec_kw={"width_ratios": [3.0] * len(epsilons) + [4.0]}
    )
    for axes, epsilon in zip(maps, epsilons, strict=True):
        errors = np.full((len(groups), len(cohorts)), np.nan)
        for row in where(pairs, epsilon=epsilon):
            at = groups.index(row["group_size"]), cohorts.index(row["cohort"])
            errors[at] = row["error_mean"]
        axes.imshow(errors, origin="lower", cmap="viridis_r", aspect="auto")
        for (i, j), value in np.ndenumerate(errors):
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6, color="0.1")
        axes.set_xticks(range(len(cohorts)), [str(c) for c in cohorts], fontsize=7)
        axes.set_yticks(range(len(groups)), [str(g) for g in groups], fontsize=7)
        axes.set(title=f"error, ε = {epsilon:g}", xlabel="cohort M", ylabel="group size G")
    for name in distinct(rows, "strategy"):
        style = {"ms": 3, "lw": 2.0 if name == _DOUBLE else 1.0, "label": name}
        line(regret, where(rows, strategy=name), "compute", "regret_mean", "o-", **style)
    regret.set(xscale="log", xlabel="judgements in a round, G·M", ylabel="error above the best")
    regret.legend(frameon=False, fontsize=7)
    open_corner(regret)
    return figure
