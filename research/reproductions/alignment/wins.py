"""Figures 2, 5 and 6 of AUP-RLHF: how often answers win over the reference's, by private rewards.

The paper summarizes posts (TL;DR): 1,800 users with 50 judgements each, ε = 3 and 8, PPO, and
GPT-4 as the judge of summaries beside those of the SFT model. Here the embedded population judges,
by its truth: best of 16 of a small reference's answers by each reward, against another answer of
the reference; exactly, over all subsets of one pool and over all answers of a second one. Equals
are half a win; an answer that cannot be read loses.

The paper's claims are those of Section 6.2, judged as ``claims`` says:

1. AUP wins more often than each baseline, at both ε;
2. of each strategy, wins at ε = 8 are more than at ε = 3;
3. at ε = 8 AUP wins in more than 50 % (from 39 % to 63 %, with Gemma-2-2B).

The baseline in place of 50 % is the win rate of the reference's own answers here, which differs
from it by chance: an uninformative reward has exactly this win rate.

The paper also reports that at ε = 3 every strategy wins in less than 50 %. That cannot be compared,
and has no verdict: best of n by a reward of noise is another answer of the reference, where PPO on
it goes astray.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from murmuration.alignment.best_of_n import expected_best
from murmuration.research.reproductions.alignment import frontier
from murmuration.research.reproductions.alignment.answers import (
    Answers,
    written,
)
from murmuration.research.reproductions.alignment.claims import Claim, mean_interval, told
from murmuration.research.reproductions.alignment.frontier import (
    EPSILONS,
    STYLES,
    TRUTH,
    Found,
    rewards_of_seeds,
)
from murmuration.research.reproductions.alignment.rewards import (
    NONPRIVATE,
    VARIANTS,
    Sizes,
    halts,
)
from murmuration.research.reproductions.entry import Reproduction, Row, Rows, distinct, where
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.written import cautions

#: Of how many answers a reward chooses, and of how many of the reference's it meets each.
BEST_OF = 16

Wins = Mapping[tuple[str, float | None], Sequence[float]]


def wins(quick: bool = False) -> Reproduction:
    """Rows ``strategy, epsilon, win_mean, win_interval, accuracy_mean, rounds``.

    The first half of 32 answers is chosen from, the second is the reference's. ``quick``: a
    reference of few texts, fewer of everything.
    """
    sizes, seeds, prompts = Sizes(users=1800, each=50, cohort_as_run=100), 5, 250
    if quick:
        sizes, seeds, prompts = Sizes(300, 10), 2, 20
    return measured(written(quick, prompts, 2 * BEST_OF), rewards_of_seeds(sizes, seeds))


def measured(answers: Answers, found: Found) -> Reproduction:
    """Rows, remarks and plot of rewards on a pool."""
    pool, others = halves(answers)
    won_PN = shares(pool.truth_PN, others.truth_PN)
    wins = {
        key: [win_rate(pool.rewards(learnt[key].theta_D), won_PN) for learnt in found]
        for key in found[0]
    }
    rows: list[Row] = [
        {
            "strategy": name,
            "epsilon": epsilon,
            **mean_interval("win", values),
            "accuracy_mean": fmean(learnt[name, epsilon].accuracy for learnt in found),
            "rounds": fmean(learnt[name, epsilon].rounds for learnt in found),
        }
        for (name, epsilon), values in wins.items()
    ]
    most, own = win_rate(pool.truth_PN, won_PN), float(won_PN.mean())
    remarks = [
        *cautions(answers.unreadable),
        *told(list(claims(wins, own))),
        *halts(found),
        "That all win in less than 50 % at ε = 3, as in the paper, cannot be compared: best of n "
        "by noise wins what the reference wins, and PPO is not run.",
        f"Best of {pool.truth_PN.shape[1]} replaced PPO. Choosing by {TRUTH} wins in {most:.1%}, "
        f"by nothing in {own:.1%}; {answers.unreadable:.1%} of the answers cannot be "
        "read.",
    ]
    extra = {
        "prompts": len(pool.truth_PN),
        "best_of": pool.truth_PN.shape[1],
        "unreadable": answers.unreadable,
        "seeds": len(found),
        "by_the_truth": most,
        "by_nothing": own,
    }
    return Reproduction(rows, remarks, extra=extra, plot=plot(rows))


def halves(answers: Answers) -> tuple[Answers, Answers]:
    """Answers that rewards choose from, and as many of the reference."""
    half = answers.truth_PN.shape[1] // 2
    return answers.first(half), answers.rest(half)


def shares(truth_PN: np.ndarray, others_PM: np.ndarray) -> np.ndarray:
    """Over which share of a prompt's other answers each of its answers wins, (P, N)."""
    ahead_PNM = truth_PN[:, :, None] - others_PM[:, None, :]
    return np.where(np.abs(ahead_PNM) < 1e-9, 0.5, ahead_PNM > 0).mean(axis=2)


def win_rate(rewards_PN: np.ndarray, won_PN: np.ndarray) -> float:
    """The win rate of the best by a reward, among the largest number of answers."""
    return float(expected_best(rewards_PN, won_PN)[-1].mean())


def claims(wins: Wins, own: float) -> Iterator[Claim]:
    """The paper's, of each variant of AUP where they are about AUP; ``own`` stands for 50 %."""
    yield from frontier.claims(wins)
    high = max(EPSILONS)
    for variant in VARIANTS:
        over = [value - own for value in wins[variant, high]]
        yield Claim("Above 50 %", f"{variant} above 50 % at ε = {high:g}", over)


def plot(rows: Rows) -> Figure:
    """Wins as bars, a group for each ε, as in the paper; the line is what chance wins."""
    epsilons = distinct(rows, "epsilon")
    figure = Figure(figsize=(8.4, 4.0), layout="constrained")
    axes = figure.subplots()
    names = [name for name in STYLES if name != NONPRIVATE]
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        same = where(rows, strategy=name)
        axes.bar(
            [
                epsilons.index(row["epsilon"]) + (place - len(names) / 2 + 0.5) * width
                for row in same
            ],
            [100 * row["win_mean"] for row in same],
            width * 0.92,
            yerr=[100 * (row["win_interval"] or 0.0) for row in same],
            color=STYLES[name][0],
            error_kw={"lw": 0.8},
            label=name,
        )
    (clean,) = where(rows, strategy=NONPRIVATE)
    axes.axhline(100 * clean["win_mean"], color="0.4", ls="--", lw=1, label=NONPRIVATE)
    axes.axhline(50, color="0.7", lw=1)
    axes.set_xticks(range(len(epsilons)), [f"ε = {epsilon:g}" for epsilon in epsilons])
    axes.set_ylabel("wins over the reference, % (95 % over seeds)")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    open_corner(axes)
    return figure
