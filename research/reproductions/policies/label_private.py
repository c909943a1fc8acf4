"""Policies from labels that were randomized one by one: how often what they write wins.

At item level, as papers have it: ε is of one label, and who gave ten has ten times that. Labels of
the embedded population's users go through randomized response; a policy is fitted to what is
stated, by one of

- Square-χPO (Zhou et al. 2025, Algorithm 1): corrected for the coins;
- χPO (Huang et al. 2024): takes statements for true;
- robust DPO (Chowdhury, Kini and Natarajan 2024): the log loss, corrected for the coins;
- DPO in two stages, as PROPS does it (2508.06783): a first policy from half of the statements; of
  the other half, where it disagrees with a statement, the label is what is likelier true. How often
  the first policy is right is told by how often it agrees with the statements of that half, whose
  coins are known. All statements, with these labels in place, make the second policy.

All have the same pairs, coins, prompts, β and steps. Beside them, DPO and Square-χPO from true
labels. One user's judgements all count; ties are left out.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.research.reproductions.bandits.corruption import Corruption
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import legend_below, open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.policies.written import Contest, Pairs, Won, cautions
from murmuration.sims.population.population import Population

METHODS = {
    "Square-χPO": "square-chipo",
    "χPO": "chipo",
    "robust DPO": "robust-dpo",
    "DPO in two stages": "dpo",
}
TWO_STAGES = "DPO in two stages"
#: From true labels.
CLEAN = {"DPO": "dpo", "Square-χPO": "square-chipo"}
_LABELS = 1  # of a seed, the stream of coins; 0 is that of pairs


def label_private(
    quick: bool = False,
    *,
    epsilons: Sequence[float] = (0.1, 0.5, 2.0),
    seeds: int = 3,
    pairs: int = 1500,
    prompts: int = 300,
) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, win_rate_mean, win_rate_sd, unreadable, true_labels``.

    ``win_rate`` is over the reference; ``sd`` is over seeds. ``true_labels`` is how many true ones
    tell as much as what was stated, pairs · (1 − 2·flip)². Rows without ε are of true labels.
    """
    texts = 16_000
    if quick:
        texts, epsilons, seeds, pairs, prompts = 1000, tuple(epsilons)[::2], 2, 200, 50
    with reference(Population().texts("train", texts)) as path:
        tasks = [(path, seed, tuple(epsilons), pairs, prompts) for seed in range(seeds)]
        result = list(tracked(in_processes(one_seed, tasks), "policies", seeds))
    return [
        {
            "epsilon": epsilon,
            "method": method,
            **mean_sd("win_rate", [each[epsilon, method].wins for each in result]),
            "unreadable": fmean(each[epsilon, method].unreadable for each in result),
            "true_labels": pairs * (1.0 - 2.0 * _flip(epsilon)) ** 2,
        }
        for epsilon, method in result[0]
    ]


def one_seed(
    task: tuple[str, int, Sequence[float], int, int],
) -> dict[tuple[float | None, str], Won]:
    """Return what policies win, by ε and method: of a reference's folder, a seed, ε's, how many
    pairs, and how many prompts."""
    path, seed, epsilons, count, asked = task
    population = Population(seed=1000 + seed)
    prompts = list(population.prompts("train", asked))
    contest = Contest(path, judged(count, seed), prompts, population.crowd, seed)
    first_J = contest.pairs.first_J
    result: dict[tuple[float | None, str], Won] = {
        (None, method): contest.won(loss, first_J) for method, loss in CLEAN.items()
    }
    for epsilon in epsilons:
        coins = Corruption(epsilon=epsilon)
        stated_J = coins.stated(first_J, np.random.default_rng([seed, _LABELS]))
        for method, loss in METHODS.items():
            told_J, flip = stated_J, coins.flip_probability
            if method == TWO_STAGES:  # of whose labels none knows how likely they are false
                told_J, flip = two_stages(contest, stated_J, flip), 0.0
            result[epsilon, method] = contest.won(loss, told_J, flip)
    return result


def judged(count: int, seed: int) -> Pairs:
    """So many judgements drawn from all users', the better response first or second by a coin."""
    population, generator = Population(seed=1000 + seed), np.random.default_rng([seed, 0])
    given = [one for one in population.judgements("train") if not one.tie]
    some = [given[place] for place in generator.choice(len(given), count, replace=False)]
    first_J = generator.random(count) < 0.5
    return Pairs(
        [one.prompt for one in some],
        [
            (one.chosen.text, one.rejected.text)[:: 1 if first else -1]
            for one, first in zip(some, first_J, strict=True)
        ],
        first_J,
    )


def two_stages(contest: Contest, stated_J: np.ndarray, flip: float) -> np.ndarray:
    """Statements, of the second half the likelier of statement and a first policy's opinion."""
    half = len(stated_J) // 2
    opinion_J = contest.predicted("dpo", stated_J[:half], flip)
    return likelier(stated_J, opinion_J, half, flip)


def likelier(stated_J: np.ndarray, opinion_J: np.ndarray, half: int, flip: float) -> np.ndarray:
    """Statements, from ``half`` on those of the opinion if it is right more often than they are.

    Two sources that err independently, with probabilities that do not depend on the truth: where
    they disagree, the likelier is what the better one says. An opinion that is right with
    probability p agrees with a statement with probability p(1 − flip) + (1 − p)·flip, so p is told
    by how often they agree, within 1/((1 − 2·flip)·√labels) or so: at ε = 0.1 no better than a
    coin. (That an opinion which is mostly wrong should be turned around is left out.)
    """
    agree = float((stated_J[half:] == opinion_J[half:]).mean())
    right = (agree - flip) / (1.0 - 2.0 * flip)
    later_J = np.arange(len(stated_J)) >= half
    return np.where(later_J & (right > 1.0 - flip), opinion_J, stated_J)


def _flip(epsilon: float | None) -> float:
    return 0.0 if epsilon is None else RandomizedResponse(epsilon).flip_probability


def remarks(rows: Rows) -> list[str]:
    """Wins at each ε, the most first; whether others would stand in that order is not tested."""
    result = []
    for epsilon in distinct(rows, "epsilon"):
        here = sorted(where(rows, epsilon=epsilon), key=lambda row: -row["win_rate_mean"])
        result.append(
            f"ε = {epsilon:g} a label, worth {here[0]['true_labels']:,.0f} true labels: "
            + ", ".join(f"{row['method']} {_said(row)}" for row in here)
            + "."
        )
    clean = ", ".join(f"{row['method']} {_said(row)}" for row in where(rows, epsilon=None))
    return [
        *cautions(rows),
        *result,
        f"True labels: {clean}.",
        "Wins over the reference, mean ± sd over seeds: differences of less than that are none.",
    ]


def _said(row: Any) -> str:
    sd = "" if row["win_rate_sd"] is None else f" ± {row['win_rate_sd']:.1%}"
    return f"{row['win_rate_mean']:.1%}{sd}"


def plot(rows: Rows) -> Figure:
    """Wins against ε, a line for each method; dashed: from true labels."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    private = [row for row in rows if row["epsilon"]]
    for place, method in enumerate(METHODS):
        same = where(private, method=method)
        apart = 1.0 + 0.04 * (place - 1.5)  # side by side
        axes.errorbar(
            [row["epsilon"] * apart for row in same],
            [100 * row["win_rate_mean"] for row in same],
            [100 * (row["win_rate_sd"] or 0.0) for row in same],
            marker="o",
            ms=4,
            color=f"C{place}",
            label=method,
        )
    for place, row in enumerate(where(rows, epsilon=None)):
        axes.axhline(
            100 * row["win_rate_mean"],
            ls=("--", ":")[place],
            color="0.4",
            label=f"{row['method']}, true labels",
        )
    axes.axhline(50, color="0.85", lw=1, zorder=0)
    axes.set_xscale("log")
    epsilons = distinct(rows, "epsilon")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel("ε of a label")
    axes.set_ylabel("wins over the reference, %")
    open_corner(axes)
    legend_below(figure, 3)
    return figure
