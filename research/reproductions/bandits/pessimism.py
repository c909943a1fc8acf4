"""Greedy and pessimistic policies on a linear bandit, as n and ε vary.

Source: Chowdhury et al. 2024, §4.2 (eq. 9) and §4.3: with every direction judged the greedy policy
is fine; pessimism is for directions that judgements hardly cover. Labels are clean, perturbed in
the centre, or randomized by their owners (``research.reproductions.bandits.bandit``).
"""

from collections.abc import Iterator, Sequence
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.research.reproductions.bandits.bandit import Bandit, Channel, learn
from murmuration.research.reproductions.entry import Rows, distinct, mean_sd, where
from murmuration.research.reproductions.plots import line, open_corner
from murmuration.research.theory import policies

#: How what is judged falls off over directions, and how θ* does.
COVERAGE = {
    "every direction": (0.0, 0.0),
    "what matters": (2.0, 2.0),
    "little of what matters": (2.0, 0.0),
}
_PLACES = {"centre": "in the centre", "local": "by their owners"}
GREEDY, PESSIMISTIC, SAFEST = "greedy", "pessimistic", "pessimistic by prompt"
_TINY = 1e-6  # gaps below this are as good as none


def pessimism(
    quick: bool = False,
    *,
    users: Sequence[int] = (250, 500, 1000, 2000, 4000, 8000),
    epsilons: Sequence[float] = (0.5, 1.0, 3.0),
    dimension: int = 8,
    seeds: int = 20,
) -> list[dict[str, Any]]:
    """Rows ``coverage, labels, epsilon, n, policy, gap_mean, gap_sd, in_set, error_mean``.

    ``gap``: the expected true reward that the policy misses, in units in which answering at random
    misses one. ``in_set``: how often θ* is in the 95 % confidence set. ``quick``: fewer of all.
    """
    if quick:
        users, epsilons, seeds = tuple(users)[1::2], tuple(epsilons)[1:], min(seeds, 10)
    channels = [
        Channel("none"),
        *(Channel(kind, epsilon) for kind in ("centre", "local") for epsilon in epsilons),
    ]
    rows = []
    for coverage, (skew, matter) in COVERAGE.items():
        for size in users:
            bandits = [
                Bandit.draw(seed, users=size, dimension=dimension, skew=skew, matter=matter)
                for seed in range(seeds)
            ]
            for channel in channels:
                rows += compared(coverage, channel, bandits)
    return rows


def remarks(rows: Rows) -> list[str]:
    """Sentences that compare the policies, for each coverage, over all n, labels and ε."""
    result = []
    for coverage in COVERAGE:
        pairs: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in where(rows, coverage=coverage):
            case = row["labels"], row["epsilon"], row["n"]
            pairs.setdefault(case, {})[row["policy"]] = row["gap_mean"]
        better = sum(gaps[PESSIMISTIC] < gaps[GREEDY] for gaps in pairs.values())
        largest = max(case[2] for case in pairs)
        ratio = geometric_mean(
            max(gaps[PESSIMISTIC], _TINY) / max(gaps[GREEDY], _TINY)
            for case, gaps in pairs.items()
            if case[2] == largest
        )
        result.append(
            f"Judges look at {coverage}: the pessimistic policy misses less than the greedy one in "
            f"{better} of {len(pairs)} cases; at n = {largest} it misses {ratio:.2f} times "
            "as much, on (geometric) average."
        )
    return result


def plot(rows: Rows) -> Figure:
    """Gap against n: a column for each coverage, a row for central and for local privacy."""
    figure = Figure(figsize=(3.6 * len(COVERAGE), 5.6), layout="constrained")
    panels = figure.subplots(2, len(COVERAGE), sharex=True, sharey=True)
    sizes = sorted(distinct(rows, "n"))
    epsilons = sorted(distinct(rows, "epsilon"))
    for place, kind in enumerate(("centre", "local")):
        for column, coverage in enumerate(COVERAGE):
            axes = panels[place, column]
            for index, epsilon in enumerate([None, *epsilons]):
                label = "no privacy" if epsilon is None else f"ε = {epsilon:g}"
                for policy, style in ((GREEDY, "o-"), (PESSIMISTIC, "s--")):
                    same = where(rows, coverage=coverage, epsilon=epsilon, policy=policy)
                    line(
                        axes,
                        where(same, labels=("none", kind)),
                        "n",
                        "gap_mean",
                        style,
                        color=f"C{index}" if epsilon else "0.4",
                        ms=3,
                        lw=1.2,
                        label=label if policy == GREEDY else None,
                    )
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(sizes, [str(size) for size in sizes], fontsize=7)
            axes.minorticks_off()
            open_corner(axes)
            if place == 0:
                axes.set_title(f"judges look at\n{coverage}", fontsize=9)
            else:
                axes.set_xlabel("users, n")
        panels[place, 0].set_ylabel(f"labels protected {_PLACES[kind]}\nsub-optimality gap")
    panels[0, 0].legend(frameon=False, fontsize=7, title="greedy; dashed: pessimistic")
    return figure


def compared(
    coverage: str, channel: Channel, bandits: Sequence[Bandit]
) -> Iterator[dict[str, Any]]:
    """A row for each policy, learnt from the bandits' labels through a channel."""
    gaps: dict[str, list[float]] = {GREEDY: [], PESSIMISTIC: [], SAFEST: []}
    inside, errors = [], []
    for seed, bandit in enumerate(bandits):
        known = learn(bandit, channel, seed)
        phi_SAD, truth_D = bandit.phi_SAD, bandit.truth_D
        inside.append(known.contains(truth_D))
        errors.append(float(np.linalg.norm(known.theta_D - truth_D)))
        anyhow_SA = np.full(phi_SAD.shape[:2], 1.0 / phi_SAD.shape[1])
        unit = policies.gap(phi_SAD, anyhow_SA, truth_D)
        chosen = {
            GREEDY: policies.greedy(phi_SAD, known.theta_D),
            PESSIMISTIC: policies.pessimistic(phi_SAD, known).chance_SA,
            SAFEST: policies.safest(phi_SAD, known),
        }
        for name, chance_SA in chosen.items():
            gaps[name].append(policies.gap(phi_SAD, chance_SA, truth_D) / unit)
    for name, result in gaps.items():
        yield {
            "coverage": coverage,
            "labels": channel.kind,
            "epsilon": channel.epsilon if channel.kind != "none" else None,
            "n": len(bandits[0].x_JD),
            "policy": name,
            **mean_sd("gap", result),
            "in_set": fmean(inside),
            "error_mean": fmean(errors),
        }
