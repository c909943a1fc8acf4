"""Does Estimate-and-Double choose well? Group sizes and cohorts of ULS, all of them, on judgements.

Source: Charles et al. 2024, App. I.1, Figures 11 to 13, where the loss is that of language models;
here it is ‖θ̂ − θ*‖₂ on the populations of ``research.reproductions.btl``, where answering zero has
two. Every pair of powers of two is trained, with the clip norm at the median length of gradients
that is estimated from *other* people, the same for all seeds, and the step size of a few that is
best on average over seeds, with knowledge of θ*, which is impossible in practice. Then each
strategy says which pair it would have taken for a budget, and is compared with the pair that is
best on average over seeds. The greedy oracle looks at errors averaged over the same seeds.
Strategies and ε are the paper's, which starts from G = 1, M = 32, as here, except for "least
noise", which it does not have.

The claims, with rules that were fixed before the full run, by 95 % intervals over seeds of
differences of the same seed, averaged over ε and budgets:

1. it does well, that is better than random, max cohort and max group size: *agrees* where the
   interval of its regret less theirs is below zero, *does not agree* where it is above, *cannot be
   told* between; the same by ε;
2. it does as well as the oracle at most budgets: a budget agrees where its
   regret less the oracle's is less than a fifth of random's regret, beyond the interval of the
   difference, and does not where it is more. The claim *agrees* where more than half of the budgets
   that have a choice do, *does not agree* where at least half do not, *cannot be told* between.

Legend: E values of ε, B budgets, S seeds.
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
from matplotlib.patches import Rectangle

from murmuration.planning import estimate_and_double
from murmuration.planning.estimate_and_double import Point, Space
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.preference.models import preference_model
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.alignment.claims import (
    AGREES,
    DISAGREES,
    OPEN,
    Claim,
    in_words,
    mean_interval,
)
from murmuration.research.reproductions.btl import Population, Training
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner, with_intervals
from murmuration.strategies.config import RunConfig

_SETTINGS = RunConfig(
    strategy="uls", delta=1e-5, adjacency="add-remove", rounds=100, test="the true model"
)
_START = Point(1, 32)
EPSILONS = (1.0, 4.0, 16.0, 64.0)
#: Step sizes in units of the clip norm: of the default's ceiling, and below. Few judgements in a
#: round need short steps, and how the default is chosen looks at the noise alone.
RATES = (10.0, 2.0, 0.4)
DOUBLE, ORACLE, RANDOM = "estimate-and-double", "greedy local oracle", "random"
#: Those that the first claim is about.
WORSE = (RANDOM, "max cohort", "max group size")
#: Of random's regret.
LITTLE = 0.2
#: Whose gradients are looked at; no seed of those who are trained on.
_PUBLIC_SEED = 1_000_003

#: Errors of each pair, (S,).
Losses = Mapping[Point, np.ndarray]


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


def one_seed(
    task: tuple[int, _Size, Mapping[int, float], Sequence[float], Sequence[float], RunConfig],
) -> dict[tuple[float, int, int, float], float]:
    """‖θ̂ − θ*‖ by ε, group size, cohort and step size in units of the clip norm."""
    seed, size, clips, epsilons, rates, settings = task
    population = size.population(seed)
    training = Training(population.examples, Randomness(seed))
    result = {}
    for epsilon, point, rate in itertools.product(epsilons, size.grid(), rates):
        clip = clips[point.group_size]
        config = replace(
            settings,
            seed=seed,
            epsilon=epsilon,
            group_size=point.group_size,
            cohort=point.cohort,
            clip_norm=clip,
            learning_rate=rate / clip,
        )
        strategy, _ = training.run(config)
        error = population.error(strategy.optimizer.result_D)
        result[epsilon, point.group_size, point.cohort, rate] = error
    return result


def group_cohort(
    quick: bool = False,
    *,
    users: int = 2048,
    each: int = 16,
    dimension: int = 32,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 10,
    rates: Sequence[float] = RATES,
    settings: RunConfig = _SETTINGS,
) -> list[dict[str, Any]]:
    """Rows of two kinds; means have intervals over seeds.

    ``epsilon, group_size, cohort, clip, noise, rate, error`` of each pair. ``strategy, regret,
    difference``: the error of the pair that a strategy takes less that of the best pair of its
    budget, and Estimate-and-Double's regret less this: for each ``compute`` over all ε, for each
    ``epsilon`` over all budgets, and over everything; with a ``verdict`` where there is a claim.
    ``quick``: 256 users with 8 judgements, two seeds, two ε, one step size.
    """
    if quick:
        users, each, seeds = min(users, 256), min(each, 8), min(seeds, 2)
        epsilons, rates = epsilons[::3], rates[1:2]
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

    clips = {point.group_size: norms.length(point.group_size) for point in size.grid()}
    tasks = [(seed, size, clips, tuple(epsilons), tuple(rates), settings) for seed in range(seeds)]
    found = list(tracked(in_processes(one_seed, tasks), "group sizes", len(tasks)))
    rows, losses = [], {epsilon: {} for epsilon in epsilons}
    for epsilon, point in itertools.product(epsilons, size.grid()):
        group_size, cohort = point.group_size, point.cohort
        by_rate = {r: [one[epsilon, group_size, cohort, r] for one in found] for r in rates}
        rate, errors = min(by_rate.items(), key=lambda item: fmean(item[1]))
        losses[epsilon][point] = np.array(errors)
        rows.append(
            {
                "epsilon": epsilon,
                "group_size": group_size,
                "cohort": cohort,
                "clip": clips[group_size],
                "noise": clips[group_size] * multiplier(epsilon, cohort) / cohort,
                "rate": rate,
                **mean_interval("error", errors),
            }
        )
    budgets = sorted({point.compute for point in size.grid()})
    regrets = [
        [
            _regrets(
                losses[epsilon],
                Space(_START, compute, users),
                norms,
                lambda cohort, epsilon=epsilon: multiplier(epsilon, cohort),
            )
            for compute in budgets
        ]
        for epsilon in epsilons
    ]
    by_name = {
        name: np.array([[one[name] for one in same] for same in regrets]) for name in regrets[0][0]
    }
    return rows + _compared(by_name, epsilons, budgets)


def _regrets(
    losses: Losses, space: Space, norms: GroupNorms, multiplier: estimate_and_double.Multiplier
) -> dict[str, np.ndarray]:
    """The error of each strategy's pair less that of the best pair of the budget, (S,)."""
    mean = {point: float(loss_S.mean()) for point, loss_S in losses.items()}
    same = [point for point in losses if point.compute == space.compute]
    best_S = losses[min(same, key=mean.__getitem__)]
    steps = estimate_and_double.estimate_and_double(space, norms.length, multiplier)
    taken = {
        DOUBLE: steps[-1].to if steps else space.start,
        ORACLE: greedy_oracle(space, lambda point: mean.get(point, math.inf)),
        "least noise": min(
            same, key=lambda p: estimate_and_double.noise(p, norms.length, multiplier)
        ),
        "max cohort": max(same, key=lambda point: point.cohort),
        "max group size": max(same, key=lambda point: point.group_size),
    }
    result = {name: losses[point] - best_S for name, point in taken.items()}
    return {**result, RANDOM: np.mean([losses[point] for point in same], axis=0) - best_S}


def greedy_oracle(space: Space, loss: Callable[[Point], float]) -> Point:
    """The end point of the paper's "greedy local oracle", which doubles whichever of the two leads
    to the smaller true ``loss``.

    A yardstick for local strategies; it cannot be computed without training at every point. Like
    the paper's it uses the whole budget, whether or not that helps.
    """
    point = space.start
    while True:
        nearby = [p for p in (space.doubled_group(point), space.doubled_cohort(point)) if p]
        if not nearby:
            return point
        point = min(nearby, key=loss)


def _compared(
    by_name: Mapping[str, np.ndarray], epsilons: Sequence[float], budgets: Sequence[int]
) -> list[dict[str, Any]]:
    """The rows of strategies, from their regrets (E, B, S), with verdicts by the rules."""
    rows = []
    for name, regret_EBS in by_name.items():
        less_EBS = by_name[DOUBLE] - regret_EBS
        spare_BS = (LITTLE * by_name[RANDOM] - less_EBS).mean(axis=0)
        votes = []
        for b, compute in enumerate(budgets):
            row = _row(name, regret_EBS[:, b].mean(axis=0), less_EBS[:, b].mean(axis=0))
            if name == ORACLE and by_name[RANDOM][:, b].any():
                votes.append(Claim(name, "as good", spare_BS[b].tolist()).verdict)
                row["verdict"] = votes[-1]
            rows.append({**row, "compute": compute})
        for e, epsilon in enumerate(epsilons):
            row = _row(name, regret_EBS[e].mean(axis=0), less_EBS[e].mean(axis=0))
            rows.append({**row, "epsilon": epsilon})
        rows.append(_row(name, regret_EBS.mean(axis=(0, 1)), less_EBS.mean(axis=(0, 1))))
        if name == ORACLE:
            rows[-1]["verdict"] = _most(votes)
    return rows


def _row(name: str, regret_S: np.ndarray, less_S: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {
        "strategy": name,
        **mean_interval("regret", regret_S.tolist()),
        **mean_interval("difference", less_S.tolist()),
    }
    if name in WORSE:
        row["verdict"] = Claim(name, "has more", (-less_S).tolist()).verdict
    return row


def _most(votes: Sequence[str]) -> str:
    if 2 * votes.count(AGREES) > len(votes):
        return AGREES
    return DISAGREES if votes and 2 * votes.count(DISAGREES) >= len(votes) else OPEN


def remarks(rows: Rows) -> list[str]:
    """Sentences on each strategy's regret, and the claims' verdicts with their differences."""
    kinds = [row for row in rows if "strategy" in row]
    budgets = [row for row in kinds if "compute" in row]
    over_all = {row["strategy"]: row for row in where(kinds, compute=None, epsilon=None)}
    order = sorted(over_all.values(), key=lambda row: row["regret_mean"])
    listed = ", ".join(f"{row['strategy']} {in_words(row, 'regret')}" for row in order)
    result = [
        f"Error above that of the best pair of the budget, mean over budgets and ε: {listed}."
    ]
    for name in WORSE:
        by_epsilon = [row for row in where(kinds, strategy=name) if "epsilon" in row]
        agree = f"{len(where(by_epsilon, verdict=AGREES))} of {len(by_epsilon)}"
        result.append(
            f"{over_all[name]['verdict']}: {DOUBLE} minus {name} "
            f"{in_words(over_all[name], 'difference')}; by ε it agrees in {agree}."
        )
    choices = [row for row in where(budgets, strategy=ORACLE) if "verdict" in row]
    counts = ", ".join(
        f"{word} at {len(where(choices, verdict=word))}" for word in (AGREES, DISAGREES, OPEN)
    )
    result.append(
        f"{over_all[ORACLE]['verdict']}: {DOUBLE} as good as the {ORACLE} within a fifth of "
        f"{RANDOM}'s regret: of {len(choices)} budgets {counts}; over all, minus the oracle, "
        f"{in_words(over_all[ORACLE], 'difference')}."
    )
    pairs = [row for row in rows if "rate" in row]
    ends = [row for row in pairs if row["rate"] != RATES[1]]
    result.append(
        f"The best step size is the least or largest of three for {len(ends)} of {len(pairs)}."
    )
    return result


def plot(rows: Rows) -> Figure:
    """A map of errors for each ε, with each budget's best pair framed (the paper's Figure 11), and
    regret by budget, with intervals over seeds (its Figures 12 and 13)."""
    pairs = [row for row in rows if "rate" in row]
    epsilons, groups, cohorts = (
        sorted(distinct(pairs, column)) for column in ("epsilon", "group_size", "cohort")
    )
    figure = Figure(figsize=(11.0, 5.0), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[6.0, 5.0])
    left, right = halves
    maps = left.subplots(-(-len(epsilons) // 2), 2, sharex=True, sharey=True, squeeze=False)
    for axes, epsilon in zip(maps.flat, epsilons, strict=False):
        errors = np.full((len(groups), len(cohorts)), np.nan)
        best: dict[int, tuple[float, int, int]] = {}
        for row in where(pairs, epsilon=epsilon):
            i, j = groups.index(row["group_size"]), cohorts.index(row["cohort"])
            errors[i, j] = row["error_mean"]
            compute = row["group_size"] * row["cohort"]
            best[compute] = min(best.get(compute, (math.inf, 0, 0)), (errors[i, j], i, j))
        axes.imshow(errors, origin="lower", cmap="viridis_r", aspect="auto")
        for (i, j), value in np.ndenumerate(errors):
            colour = "0.1" if value < (np.nanmin(errors) + np.nanmax(errors)) / 2 else "w"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
        for _, i, j in best.values():
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, lw=1.5))
        axes.set_xticks(range(len(cohorts)), [str(c) for c in cohorts], fontsize=7)
        axes.set_yticks(range(len(groups)), [str(g) for g in groups], fontsize=7)
        axes.set_title(f"error, ε = {epsilon:g}", fontsize=9)
    left.supxlabel("cohort M", fontsize=9)
    left.supylabel("group size G", fontsize=9)
    axes = right.subplots()
    budgets = [row for row in rows if "compute" in row]
    for name in distinct(budgets, "strategy"):
        own = {"lw": 2.0, "zorder": 3} if name == DOUBLE else {"lw": 1.0}
        style = {"fmt": "o-", "ms": 3, "label": name, **own}
        with_intervals(axes, where(budgets, strategy=name), "compute", "regret", **style)
    axes.set_xscale("log", base=2)
    axes.set_xticks(computes := distinct(budgets, "compute")[::2], [f"{c:,}" for c in computes])
    axes.set(xlabel="judgements in a round, G·M", ylabel="error above the best")
    axes.legend(frameon=False, fontsize=7)
    open_corner(axes)
    return figure
