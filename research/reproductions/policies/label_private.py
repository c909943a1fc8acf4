"""Policies from labels that were randomized one by one: how often what they write wins.

At item level, as in the papers: ε is for one label, and ten times that for a user who gave ten.
Labels of the embedded population's users go through randomized response; a policy is fitted to what
is stated, by one of

- Square-χPO (Zhou et al. 2025, Algorithm 1): corrected for the randomization;
- χPO (Huang et al. 2024): takes statements for true;
- robust DPO (Chowdhury, Kini and Natarajan 2024): the log loss, corrected for the randomization;
- DPO in two stages, as PROPS does it (2508.06783): a first policy from half of the statements; of
  the other half, where it disagrees with a statement, the label is what is likelier true. The
  accuracy of the first policy is estimated from its agreement with the statements of that half,
  whose flip probability is known. All statements, with these labels in place, make the second
  policy.

All have the same pairs, randomization, prompts and β. **Each has the step that wins most on seeds
of its own**, at each ε, out of the same few: a loss that corrects for the randomization multiplies
labels by as much as 20, and one step for all would suit one of them. Beside them, DPO and
Square-χPO from true labels, with steps chosen alike. One user's judgements all count; ties are left
out.
"""

import itertools
from collections.abc import Mapping, Sequence
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
from murmuration.research.reproductions.policies.written import (
    STEPS,
    TUNING_SEED,
    Contest,
    Pairs,
    Won,
    cautions,
)
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
#: An ε, None of true labels, and a method.
Cell = tuple[float | None, str]
_LABELS = 1  # of a seed, the stream of coins; 0 is that of pairs


def label_private(
    quick: bool = False,
    *,
    epsilons: Sequence[float] = (0.1, 0.5, 2.0),
    seeds: int = 3,
    pairs: int = 1500,
    prompts: int = 300,
    tuning_seeds: int = 2,
) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, step, tuned_win_rate, chosen`` of each step that was tried; then rows
    ``epsilon, method, step, win_rate_mean, win_rate_sd, unreadable, true_labels``.

    ``win_rate`` is over the reference; ``sd`` is over seeds. ``true_labels`` is the number of true
    labels with the same information as the stated ones, pairs · (1 − 2·flip)². Rows without ε are
    of true labels.
    """
    texts, steps = 16_000, STEPS
    if quick:
        texts, epsilons, seeds, pairs, prompts = 300, tuple(epsilons)[-1:], 2, 60, 20
        steps, tuning_seeds = STEPS[::2], 1
    cells = [*((None, method) for method in CLEAN), *itertools.product(epsilons, METHODS)]
    with reference(Population().texts("train", texts)) as path:
        trials = [
            (path, TUNING_SEED + seed, dict.fromkeys(cells, step), pairs, prompts)
            for step in steps
            for seed in range(tuning_seeds)
        ]
        tried = list(tracked(in_processes(one_seed, trials), "steps", len(trials)))
        rows = tuning(
            steps, [tried[i : i + tuning_seeds] for i in range(0, len(tried), tuning_seeds)]
        )
        own = {(row["epsilon"], row["method"]): row["step"] for row in rows if row["chosen"]}
        tasks = [(path, seed, own, pairs, prompts) for seed in range(seeds)]
        result = list(tracked(in_processes(one_seed, tasks), "policies", seeds))
    return rows + [
        {
            "epsilon": epsilon,
            "method": method,
            "step": own[epsilon, method],
            **mean_sd("win_rate", [each[epsilon, method].wins for each in result]),
            "unreadable": fmean(each[epsilon, method].unreadable for each in result),
            "true_labels": pairs * (1.0 - 2.0 * _flip(epsilon)) ** 2,
        }
        for epsilon, method in result[0]
    ]


def tuning(
    steps: Sequence[float], tried: Sequence[Sequence[Mapping[Cell, Won]]]
) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, step, tuned_win_rate, chosen``, of what seeds won with each step."""
    rows = []
    for epsilon, method in tried[0][0]:
        wins = [fmean(won[epsilon, method].wins for won in same) for same in tried]
        rows += [
            {
                "epsilon": epsilon,
                "method": method,
                "step": step,
                "tuned_win_rate": rate,
                "chosen": place == wins.index(max(wins)),
            }
            for place, (step, rate) in enumerate(zip(steps, wins, strict=True))
        ]
    return rows


def one_seed(task: tuple[str, int, Mapping[Cell, float], int, int]) -> dict[Cell, Won]:
    """The win rates of policies, by ε and method, for a reference's folder, a seed, the step of
    each, and numbers of pairs and prompts.
    """
    path, seed, steps, count, asked = task
    population = Population(seed=1000 + seed)
    prompts = list(population.prompts("train", asked))
    contest = Contest(path, judged(count, seed), prompts, population.crowd, seed)
    first_J = contest.pairs.first_J
    result: dict[Cell, Won] = {}
    for (epsilon, method), step in steps.items():
        if epsilon is None:
            result[epsilon, method] = contest.won(CLEAN[method], first_J, 0.0, step)
            continue
        coins = Corruption(epsilon=epsilon)
        stated_J = coins.stated(first_J, np.random.default_rng([seed, _LABELS]))
        flip = coins.flip_probability
        if method == TWO_STAGES:  # of whose labels none knows how likely they are false
            stated_J, flip = two_stages(contest, stated_J, flip, step), 0.0
        result[epsilon, method] = contest.won(METHODS[method], stated_J, flip, step)
    return result


def judged(count: int, seed: int) -> Pairs:
    """``count`` judgements drawn from all users', with the better response first or second at
    random.
    """
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


def two_stages(contest: Contest, stated_J: np.ndarray, flip: float, step: float) -> np.ndarray:
    """Statements, of the second half the likelier of statement and a first policy's opinion."""
    half = len(stated_J) // 2
    opinion_J = contest.predicted("dpo", stated_J[:half], flip, step)
    return likelier(stated_J, opinion_J, half, flip)


def likelier(stated_J: np.ndarray, opinion_J: np.ndarray, half: int, flip: float) -> np.ndarray:
    """Statements, replaced from ``half`` on by the opinion if that is right more often.

    Two sources that err independently, with probabilities that do not depend on the truth: where
    they disagree, the likelier is what the better one says. An opinion that is right with
    probability p agrees with a statement with probability p(1 − flip) + (1 − p)·flip, so p is
    estimated from the rate of agreement, within about 1/((1 − 2·flip)·√labels): at ε = 0.1 no
    better than chance. (That an opinion which is mostly wrong should be turned around is left out.)
    """
    agree = float((stated_J[half:] == opinion_J[half:]).mean())
    right = (agree - flip) / (1.0 - 2.0 * flip)
    later_J = np.arange(len(stated_J)) >= half
    return np.where(later_J & (right > 1.0 - flip), opinion_J, stated_J)


def _flip(epsilon: float | None) -> float:
    return 0.0 if epsilon is None else RandomizedResponse(epsilon).flip_probability


def remarks(rows: Rows) -> list[str]:
    """Wins at each ε, the most first; whether others would stand in that order is not tested."""
    tried_steps = ", ".join(f"{step:g}" for step in distinct(rows, "step"))
    rows, result = [row for row in rows if "win_rate_mean" in row], []
    for epsilon in distinct(rows, "epsilon"):
        here = sorted(where(rows, epsilon=epsilon), key=lambda row: -row["win_rate_mean"])
        result.append(
            f"ε = {epsilon:g} a label, worth {here[0]['true_labels']:,.0f} true labels: "
            + ", ".join(f"{row['method']} {_said(row)}" for row in here)
            + "."
        )
    clean = ", ".join(f"{row['method']} {_said(row)}" for row in where(rows, epsilon=None))
    at_an_end = sum(row["step"] in (STEPS[0], STEPS[-1]) for row in rows)
    return [
        *cautions(rows),
        *result,
        f"True labels: {clean}.",
        "Wins over the reference, mean ± sd over seeds: differences of less than that are none.",
        f"Each has the step that won most on other seeds, out of {tried_steps}; "
        f"{at_an_end} of {len(rows)} are at an end.",
    ]


def _said(row: Any) -> str:
    sd = "" if row["win_rate_sd"] is None else f" ± {row['win_rate_sd']:.1%}"
    return f"{row['win_rate_mean']:.1%}{sd}"


def plot(rows: Rows) -> Figure:
    """Wins against ε, a line for each method; dashed: from true labels."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in rows if "win_rate_mean" in row]
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
