"""Figures 1, 3 and 4 of AUP-RLHF: reward against KL divergence, for rewards learnt in private.

The paper generates film reviews of a wanted sentiment: 2,500 users with 10 judgements each,
ε = 3 and 8, a reward head on RoBERTa, PPO on Gemma-2-2B and Llama-2-7B, and reward and KL every ten
steps. Here the embedded population stands for it, whose truth is known (no public data set of
reviews is at hand, and its true sentiment would be another model's), a small reference that writes
its answers, and best of n for PPO (``alignment.answers``): reward at KL = ln n − (n − 1)/n for
n = 1 … N, exactly, over all subsets of one pool.

Two frontiers: by the true reward, and by the reward that chose (proxy), in standard deviations
within prompts of each. Where the proxy rises and the truth does not, the reward is over-optimized.

The paper's claims are those of Section 6.2, judged as ``claims`` says by the mean gain in true
reward over the frontier's whole range of KL (the area under it):

1. at the same KL, AUP's reward is higher than that of each baseline;
2. of each strategy, the reward at ε = 8 is higher than at ε = 3.

Its third, on the size of models, cannot be tried with one small reference. The centred variant,
which is ours, is judged by the same claims.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.alignment.best_of_n import expected_best, kl_bound
from murmuration.research.reproductions.alignment.answers import (
    Answers,
    written,
)
from murmuration.research.reproductions.alignment.claims import (
    Claim,
    apart,
    mean_interval,
    told,
)
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    BASELINES,
    CENTRED,
    CLAIMED,
    EVERYBODY,
    GROUP,
    MOMENTS,
    NONPRIVATE,
    PRIVATE,
    PUBLISHED,
    RESPONSE,
    RESPONSE_SPLIT,
    USERWISE,
    VARIANTS,
    Learnt,
    Sizes,
    compared,
    halts,
)
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import (
    Style,
    legend_below,
    line,
    open_corner,
    with_intervals,
)
from murmuration.research.reproductions.policies.written import cautions

EPSILONS = (3.0, 8.0)
TRUTH = "the true reward"

#: Rewards of each seed by strategy and ε.
Found = Sequence[dict[tuple[str, float | None], Learnt]]


@dataclass(frozen=True, eq=False)
class Curve:
    """For one reward: mean true reward and proxy of best of n, for n = 1 … N.

    ``true_n`` is in logits, ``gain_n`` and ``proxy_n`` are gains in standard deviations within
    prompts.
    """

    true_n: np.ndarray
    gain_n: np.ndarray
    proxy_n: np.ndarray

    @classmethod
    def of(cls, answers: Answers, theta_D: np.ndarray | None) -> "Curve":
        """The curve of a linear reward, or of the true one (None)."""
        truth_PN = answers.truth_PN
        by_PN = truth_PN if theta_D is None else answers.rewards(theta_D)
        true_n, proxy_n = (expected_best(by_PN, of_PN).mean(1) for of_PN in (truth_PN, by_PN))
        return cls(
            true_n,
            (true_n - true_n[0]) / _spread(truth_PN),
            (proxy_n - proxy_n[0]) / _spread(by_PN),
        )

    @property
    def area(self) -> float:
        """Mean gain in true reward over the frontier's range of KL, in logits."""
        kl_n = kls(len(self.true_n))
        return float(np.trapezoid(self.true_n - self.true_n[0], kl_n) / kl_n[-1])

    @property
    def gap(self) -> float:
        """The proxy's gain at the end less the truth's, in their own units."""
        return float(self.proxy_n[-1] - self.gain_n[-1])


def kls(most: int) -> np.ndarray:
    """KL divergences at n = 1 … ``most``, at most."""
    return np.array([kl_bound(n) for n in range(1, most + 1)])


def _spread(rewards_PN: np.ndarray) -> float:
    """Standard deviation within prompts; one where a reward says the same of all."""
    return float(np.sqrt(rewards_PN.var(axis=1).mean())) or 1.0


def rewards_of_seeds(sizes: Sizes, seeds: int, names: Sequence[str] = PRIVATE) -> Found:
    """The rewards of each seed's users, by strategy and ε."""
    tasks = [(sizes, seed, EPSILONS, names) for seed in range(seeds)]
    return list(tracked(in_processes(compared, tasks), "rewards", seeds))


def frontier(quick: bool = False) -> Reproduction:
    """Rows of two kinds: of frontiers, and of what each reward comes to.

    ``strategy, epsilon, n, kl, true_mean, true_interval, proxy_mean, gain_mean``; then ``strategy,
    epsilon, accuracy_mean, rounds, area_mean, area_interval, gap_mean, gap_interval``. ``quick``: a
    reference of few texts, fewer of everything.
    """
    sizes, seeds, prompts, samples = Sizes(users=2500, each=10), 5, 200, 64
    if quick:
        sizes, seeds, prompts, samples = Sizes(500, 10), 2, 20, 16
    return measured(written(quick, prompts, samples), rewards_of_seeds(sizes, seeds))


def measured(answers: Answers, found: Found) -> Reproduction:
    """Rows, remarks and plot of rewards on a pool."""
    curves = {key: [Curve.of(answers, learnt[key].theta_D) for learnt in found] for key in found[0]}
    rows = [
        *_frontier_rows(curves | {(TRUTH, None): [Curve.of(answers, None)]}),
        *(_summary(key, same, [learnt[key] for learnt in found]) for key, same in curves.items()),
    ]
    remarks = [
        *cautions(answers.unreadable),
        *told(list(claims({key: [each.area for each in same] for key, same in curves.items()}))),
        *halts(found),
        *_more(curves, answers),
    ]
    extra = {
        "prompts": len(answers.truth_PN),
        "samples": answers.truth_PN.shape[1],
        "unreadable": answers.unreadable,
        "seeds": len(found),
    }
    return Reproduction(rows, remarks, extra=extra, plot=plot(rows))


def _frontier_rows(
    curves: dict[tuple[str, float | None], list[Curve]],
) -> Iterator[dict[str, Any]]:
    for (strategy, epsilon), same in curves.items():
        most = len(same[0].true_n)
        sizes = [2**k for k in range(int(log(most, 2)) + 1)]
        for n in sizes:
            yield {
                "strategy": strategy,
                "epsilon": epsilon,
                "n": n,
                "kl": kl_bound(n),
                **mean_interval("true", [float(curve.true_n[n - 1]) for curve in same]),
                "gain_mean": fmean(curve.gain_n[n - 1] for curve in same),
                "proxy_mean": fmean(curve.proxy_n[n - 1] for curve in same),
            }


def _summary(
    key: tuple[str, float | None], same: Sequence[Curve], learnt: Sequence[Learnt]
) -> dict[str, Any]:
    strategy, epsilon = key
    return {
        "strategy": strategy,
        "epsilon": epsilon,
        **mean_interval("accuracy", [one.accuracy for one in learnt]),
        "rounds": fmean(one.rounds for one in learnt),
        **mean_interval("area", [curve.area for curve in same]),
        **mean_interval("gap", [curve.gap for curve in same]),
    }


def claims(values: Mapping[tuple[str, float | None], Sequence[float]]) -> Iterator[Claim]:
    """The paper's of Section 6.2, of each variant of AUP where they are about AUP."""
    for variant, epsilon, name in itertools.product(VARIANTS, EPSILONS, BASELINES):
        above = apart(values[variant, epsilon], values[name, epsilon])
        yield Claim(variant, f"{variant} above {name} at ε = {epsilon:g}", above)
    low, high = EPSILONS
    for name in CLAIMED:
        said = f"{name} at ε = {high:g} above ε = {low:g}"
        yield Claim("More for more ε", said, apart(values[name, high], values[name, low]))


def _more(curves: dict[tuple[str, float | None], list[Curve]], answers: Answers) -> Iterator[str]:
    most = answers.truth_PN.shape[1]
    yield (
        f"Best of n replaced PPO: KL is at most {kl_bound(most):.2f}, at n = {most}, and nothing "
        "is trained on a reward. The paper goes further, and there rewards break more."
    )
    truth, unreadable = Curve.of(answers, None), f"{answers.unreadable:.1%}"
    if not truth.area:
        yield f"All answers are worth the same: {unreadable} cannot be read, so this says NOTHING."
        return
    whole = next(key for key in curves if key[1] is None)
    reached = fmean(curve.area for curve in curves[whole]) / truth.area
    yield (
        f"Choosing by the truth gains {truth.area:.2f} logits on average over the frontier; "
        f"{whole[0]} reaches {reached:.0%} of that. {unreadable} of the answers cannot be read, "
        "and are worth the least of all: no reward was taught that."
    )


STYLES: dict[str, Style] = {
    NONPRIVATE: ("0.4", "--", ""),
    PUBLISHED: ("C3", "-", "v"),
    AS_RUN: ("C8", "-", "<"),
    EVERYBODY: ("C1", "-", "^"),
    CENTRED: ("C0", "-", "o"),
    USERWISE: ("C2", "-", "s"),
    GROUP: ("C4", "-", "D"),
    RESPONSE: ("C5", "-", "x"),
    RESPONSE_SPLIT: ("C7", "-", "+"),
    MOMENTS: ("C6", "-", "P"),
}


def plot(rows: Rows) -> Figure:
    """Reward against KL as in the paper's figures, a column for each ε; below it the proxy's."""
    curves = [row for row in rows if "kl" in row]
    epsilons = distinct(curves, "epsilon")
    figure = Figure(figsize=(4.4 * len(epsilons), 6.6), layout="constrained")
    panels = figure.subplots(2, len(epsilons), squeeze=False, sharex=True, sharey="row")
    for column, epsilon in enumerate(epsilons):
        here = where(curves, epsilon=(None, epsilon))
        for name, (colour, dashes, marker) in STYLES.items():
            same = where(here, strategy=name)
            draw = {"color": colour, "ls": dashes, "marker": marker, "ms": 4, "label": name}
            with_intervals(panels[0, column], same, "kl", "true", **draw)
            line(panels[1, column], same, "kl", "proxy_mean", **draw)
        panels[0, column].set_title(f"ε = {epsilon:g}", fontsize=10)
        panels[1, column].set_xlabel("KL divergence from the reference, at most")
    panels[0, 0].set_ylabel("true reward, logits (95 % over seeds)")
    panels[1, 0].set_ylabel("gain by the reward that chose, sd")
    for axes in panels.flat:
        open_corner(axes)
    legend_below(figure, 3)
    return figure
