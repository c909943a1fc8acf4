"""A policy from corrupted, randomized labels: χPO and Square-χPO, corruption first or last.

Source: Zhou et al. 2025 ("S"), Appendix E, Table 1. There 1,697 pairs of answers to questions about
money, of which the cautious one is preferred, labels of ε = 0.5 and corruption with α = 0.1; a
language model judges whose answers to 170 held-out prompts are better than the reference's. Here
the pairs are drawn from the embedded population's topics about money, answers are judged by the
caution that their words have (`population.reading`), and those that cannot be read lose.

Differences from the paper, besides data and size: the reference was trained on cautious and daring
answers alike (theirs on preferred ones alone), so that there is something to win; all 1,697 pairs
train; prompts are fresh for each seed, none of them among its pairs. The four policies of a seed
have the same prompts, pairs and draws of randomized response, and the two of a setting the same
corruption; one reference serves all seeds. β and passes were fixed on other seeds, with labels of
which none was randomized or corrupted. **Each loss has the step that wins most on seeds of its
own**, over both settings, out of the same few: one step for all would suit one of them.

Legend: J judgements.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.research.reproductions.alignment.claims import half_width
from murmuration.research.reproductions.bandits.corruption import Corruption
from murmuration.research.reproductions.entry import (
    Row,
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.policies.written import (
    STEPS,
    TUNING_SEED,
    Contest,
    Pairs,
    Won,
    cautions,
)
from murmuration.sims.population.population import Weights
from murmuration.sims.population.topics import MONEY_TOPICS
from murmuration.sims.population.wording import MAX_DRAWS, Draws, exchange

PAIRS, ALPHA, EPSILON = 1697, 0.1, 0.5
LOSSES = {"χPO": "chipo", "Square-χPO": "square-chipo"}
SETTINGS = {
    "CTL": Corruption(before=ALPHA, epsilon=EPSILON),
    "LTC": Corruption(after=ALPHA, epsilon=EPSILON),
}
#: S, Table 1: win rates over the reference.
PUBLISHED = {
    ("CTL", "χPO"): 0.642,
    ("CTL", "Square-χPO"): 0.670,
    ("LTC", "χPO"): 0.598,
    ("LTC", "Square-χPO"): 0.600,
}
#: What S says of them: each pair's first wins more than its second.
DIFFERENCES = (
    (("CTL", "χPO"), ("LTC", "χPO")),
    (("CTL", "Square-χPO"), ("LTC", "Square-χPO")),
    (("CTL", "Square-χPO"), ("CTL", "χPO")),
    (("LTC", "Square-χPO"), ("LTC", "χPO")),
)
#: What is preferred: caution, and nothing else.
CAUTIOUS: Weights = (-1.0, 0.0, 0.0)
#: Of a seed, streams of their own.
_PAIRS, _LABELS, _PROMPTS = range(3)
_PUBLIC = (2505, 21395)  # what the reference is made of


def finance_ctl_ltc(
    quick: bool = False,
    *,
    seeds: int = 10,
    tuning_seeds: int = 3,
) -> list[dict[str, Any]]:
    """Rows ``loss, step, tuned_win_rate, chosen`` of each step that was tried; rows ``setting,
    loss, step, win_rate_mean, win_rate_sd, published, unreadable``; and differences.

    ``win_rate`` is over the reference, which answers the same prompts by other draws; ``sd`` is
    over seeds. Last rows ``difference, value, low, high`` of four differences of win rates, paired
    by seed, with an interval at 95 %. ``quick``: a worse reference, and less of everything.
    """
    texts, pairs, prompts, tried_steps = 12_000, PAIRS, 100, STEPS
    if quick:
        texts, seeds, tuning_seeds, pairs, prompts = 300, 2, 1, 60, 20
        tried_steps = STEPS[::2]
    with reference(_exchanges(texts, np.random.default_rng(_PUBLIC))) as path:
        trials = [
            (path, TUNING_SEED + seed, pairs, prompts, dict.fromkeys(LOSSES, step))
            for step in tried_steps
            for seed in range(tuning_seeds)
        ]
        tried = list(tracked(in_processes(one_seed, trials), "steps", len(trials)))
        tuned = tuning(trials, tried)
        steps = {row["loss"]: row["step"] for row in tuned if row["chosen"]}
        tasks = [(path, seed, pairs, prompts, steps) for seed in range(seeds)]
        result = list(tracked(in_processes(one_seed, tasks), "policies", seeds))
    return [*tuned, *table(result, steps)]


def tuning(
    trials: Sequence[tuple[str, int, int, int, Mapping[str, float]]],
    tried: Sequence[Mapping[tuple[str, str], Won]],
) -> list[dict[str, Any]]:
    """Rows ``loss, step, tuned_win_rate, chosen``: mean wins over seeds and both settings."""
    result = []
    for loss in LOSSES:
        wins = {
            step: fmean(
                won[setting, loss].wins
                for (*_, steps), won in zip(trials, tried, strict=True)
                for setting in SETTINGS
                if steps[loss] == step
            )
            for step in dict.fromkeys(steps[loss] for *_, steps in trials)
        }
        best = max(wins, key=lambda step: wins[step])
        result += [
            {"loss": loss, "step": step, "tuned_win_rate": rate, "chosen": step == best}
            for step, rate in wins.items()
        ]
    return result


def finance_pairs(count: int, seed: int) -> Pairs:
    """Answers to questions about money, in random order; the cautious one is better."""
    generator = np.random.default_rng([seed, _PAIRS])
    first_J = generator.random(count) < 0.5
    drawn = list(_exchanges(count, generator))
    return Pairs(
        [prompt for prompt, _, _ in drawn],
        [
            (cautious, daring) if first else (daring, cautious)
            for first, (_, cautious, daring) in zip(first_J, drawn, strict=True)
        ],
        first_J,
    )


def finance_prompts(count: int, seed: int) -> list[str]:
    """Prompts about money, drawn apart from the seed's pairs, none of which has them."""
    generator, trained = np.random.default_rng([seed, _PROMPTS]), finance_pairs(PAIRS, seed).prompts
    fresh = (prompt for prompt, _, _ in _exchanges(None, generator))
    return [*itertools.islice(itertools.filterfalse({*trained}.__contains__, fresh), count)]


def _exchanges(count: int | None, generator: np.random.Generator) -> Iterator[tuple[str, str, str]]:
    """Prompts about money, each with a cautious and a daring answer; without end for None."""
    for _ in itertools.count() if count is None else range(count):
        drawn = Draws(generator.random(MAX_DRAWS).tolist())
        prompt, cautious, daring = exchange(MONEY_TOPICS, drawn)
        yield prompt, cautious.text, daring.text


def one_seed(
    task: tuple[str, int, int, int, Mapping[str, float]],
) -> dict[tuple[str, str], Won]:
    """The win rates of policies of each setting and loss, for a reference's folder, a seed, numbers
    of pairs and prompts, and each loss's step.
    """
    path, seed, count, prompts, steps = task
    pairs = finance_pairs(count, seed)
    contest = Contest(path, pairs, finance_prompts(prompts, seed), CAUTIOUS, seed)
    result = {}
    for setting, corruption in SETTINGS.items():
        stated_J = corruption.stated(pairs.first_J, np.random.default_rng([seed, _LABELS]))
        for loss, name in LOSSES.items():
            flip = corruption.flip_probability
            result[setting, loss] = contest.won(name, stated_J, flip, steps[loss])
    return result


def table(
    found: Sequence[Mapping[tuple[str, str], Won]], steps: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The results of seeds with each loss's step, as rows."""
    wins = {cell: np.array([each[cell].wins for each in found]) for cell in PUBLISHED}
    cells = [
        {
            "setting": setting,
            "loss": loss,
            "step": steps[loss],
            **mean_sd("win_rate", wins[setting, loss].tolist()),
            "published": PUBLISHED[setting, loss],
            "unreadable": fmean(each[setting, loss].unreadable for each in found),
        }
        for setting, loss in PUBLISHED
    ]
    return cells + [
        {
            "difference": f"{_said(more)} − {_said(less)}",
            **_interval(wins[more] - wins[less]),
            "published": PUBLISHED[more] - PUBLISHED[less],
        }
        for more, less in DIFFERENCES
    ]


def _said(cell: tuple[str, str]) -> str:
    return f"{cell[1]}, {cell[0]}"


def _interval(differences: np.ndarray) -> dict[str, float]:
    """Student's, at 95 %."""
    mean, reach = float(differences.mean()), half_width(differences.tolist())
    return {"value": mean, "low": mean - reach, "high": mean + reach}


def verdict(row: Row) -> str:
    """The rule, of a difference that S reports as positive."""
    if row["low"] > 0:
        return "agrees"
    return "disagrees" if row["high"] < 0 else "is undecided"


def remarks(rows: Rows) -> list[str]:
    """Sentences on what agrees with the paper by the rule, and on the paper's own uncertainty."""
    result = [
        f"{row['difference']}: {100 * row['value']:+.1f} points ({100 * row['low']:+.1f} to "
        f"{100 * row['high']:+.1f}), published {100 * row['published']:+.1f}: {verdict(row)}."
        for row in rows
        if "difference" in row
    ]
    steps = ", ".join(
        f"{row['loss']} {row['step']:g}{' (an end of those tried)' * _at_an_end(row)}"
        for row in rows
        if row.get("chosen")
    )
    tried_steps = ", ".join(f"{step:g}" for step in distinct(rows, "step"))
    return [
        *cautions(fmean(row["unreadable"] for row in rows if "unreadable" in row)),
        *result,
        f"Steps chosen on other seeds, out of {tried_steps}: {steps}.",
        "The rule, fixed before the run: a published difference is agreed with if the interval of "
        "ours lies above zero, disagreed with if it lies below, and undecided otherwise.",
        "Intervals are for other pairs, coins, corruption and prompts, with this one reference.",
        "The paper's wins are of 170 prompts, which alone is a standard error of 3.7 points each; "
        "its ± 0.02 to 0.05, over five seeds with the same prompts, is read as 2 to 5 points.",
    ]


def _at_an_end(row: Row) -> bool:
    return row["step"] in (min(STEPS), max(STEPS))


def plot(rows: Rows) -> Figure:
    """Win rates beside the paper's, and the differences."""
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    cells = [row for row in rows if "setting" in row]
    for place, loss in enumerate(LOSSES):
        same, at = where(cells, loss=loss), np.arange(len(SETTINGS)) + 0.18 * (2 * place - 1)
        left.errorbar(
            at,
            [100 * row["win_rate_mean"] for row in same],
            [100 * (row["win_rate_sd"] or 0.0) for row in same],
            fmt="o",
            color=f"C{place}",
            label=f"{loss}, mean and sd over seeds",
        )
        published = [100 * row["published"] for row in same]
        left.plot(at, published, "x", color=f"C{place}", label=f"{loss}, paper")
    left.axhline(50, color="0.8", lw=1, zorder=0)
    left.set_xticks(range(len(SETTINGS)), list(SETTINGS))
    left.set_ylabel("wins over the reference, %")
    left.set_xlim(-0.6, len(SETTINGS) - 0.4)
    apart = [row for row in rows if "difference" in row][::-1]
    reach = [[100 * (row["value"] - row["low"]) for row in apart]] * 2
    right.errorbar([100 * row["value"] for row in apart], range(len(apart)), xerr=reach, fmt="ok")
    right.plot([100 * row["published"] for row in apart], range(len(apart)), "x", color="C3")
    right.set_yticks(range(len(apart)), [row["difference"] for row in apart])
    right.axvline(0, color="0.8", lw=1, zorder=0)
    right.set_xlabel("points (95 % interval; ×: paper)")
    for axes in (left, right):
        open_corner(axes)
        axes.tick_params(labelsize=8)
    figure.legend(
        *left.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    return figure
