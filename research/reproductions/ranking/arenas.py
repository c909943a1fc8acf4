"""Error of private boards on arenas of known strengths, beside other protections, and none.

*user*: all votes of a voter are one bounded vector, the ranking strategy. *vote*: the same with
every vote a voter of its own, which protects single votes, not people: who gave 30 spends 30 times
the ε. *local*: each voter releases one vote, through randomized response at ε, without any trusted
party; the answers are de-biased. *none*: the fit to all votes.

The truth is the leaderboard of infinitely many such voters (``ranking.arena``).

Legend: V votes, U voters, K items.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from murmuration.ranking.arena import Arena, Votes
from murmuration.ranking.board import fit_board
from murmuration.ranking.bradley_terry import ELO_PER_UNIT, PRIOR_STD, strengths
from murmuration.ranking.layout import VoteLayout
from murmuration.research.reproductions.entry import Rows, distinct, mean_sd, tracked, where
from murmuration.research.reproductions.plots import Style, legend_below, open_corner, styled
from murmuration.research.reproductions.ranking.released import (
    NO_BOUND,
    exact_sums,
    item_votes,
    with_noise,
)

EPSILONS = (0.25, 0.5, 1.0, 3.0)
NONE, USER, VOTE, LOCAL = "none", "user", "vote", "local"
#: The arena of which one thing at a time is changed, and what it is changed to.
BASE = Arena(voters=3000, items=20, median_votes=8.0, tie=0.0)
SWEEPS: dict[str, Sequence[float]] = {
    "voters": (300, 1000, 3000, 10_000),
    "items": (6, 20, 50),
    "median_votes": (2, 8, 32),
}
_CAP = 10


def ranking(
    quick: bool = False,
    *,
    base: Arena = BASE,
    sweeps: dict[str, Sequence[float]] | None = None,
    epsilons: Sequence[float] = EPSILONS,
    seeds: Sequence[int] = range(5),
) -> list[dict[str, Any]]:
    """Rows ``sweep, value, protection, epsilon`` with Spearman's correlation, the root mean squared
    error in points, and how often the best item comes first.

    ``quick``: three numbers of voters, ε = 1, two seeds.
    """
    sweeps = SWEEPS if sweeps is None else sweeps
    if quick:
        sweeps, epsilons, seeds = {"voters": (300, 1000, 3000)}, (1.0,), range(2)
    cases = [(name, value) for name, values in sweeps.items() for value in values]
    rows = []
    for name, value in tracked(cases, "ranking", len(cases)):
        changed = value if name == "median_votes" else int(value)
        arenas = [replace(base, seed=seed, **{name: changed}) for seed in seeds]
        rows += _rows(name, value, arenas, epsilons)
    return rows


def _rows(
    name: str, value: float, arenas: Sequence[Arena], epsilons: Sequence[float]
) -> Iterator[dict[str, Any]]:
    outcomes: dict[tuple[str, float | None], list[tuple[float, float, float]]] = {}
    for arena in arenas:
        votes, truth_K = arena.votes(), arena.truth().theta_K
        rng = np.random.default_rng([arena.seed, 2])
        for protection in (NONE, USER, VOTE):
            layout = VoteLayout(items=arena.items, cap=_caps(votes)[protection])
            exact = _sums(arena, votes, protection, layout, rng)
            for epsilon in epsilons if protection != NONE else (None,):
                noisy = with_noise(exact, arena.names, layout, epsilon, rng).board(0)
                measures = _measures(fit_board(noisy).scores_K, truth_K)
                outcomes.setdefault((protection, epsilon), []).append(measures)
        for epsilon in epsilons:
            theta_K = _local(votes, arena.items, epsilon, rng)
            outcomes.setdefault((LOCAL, epsilon), []).append(_measures(theta_K, truth_K))
    for (protection, epsilon), seeds in outcomes.items():
        rank, error, first = zip(*seeds, strict=True)
        yield {
            "sweep": name,
            "value": value,
            "protection": protection,
            "epsilon": epsilon,
            **mean_sd("spearman", rank),
            **mean_sd("error", error),
            "first": float(np.mean(first)),
        }


def _caps(votes: Votes) -> dict[str, int]:
    return {NONE: len(votes.voter_V), USER: _CAP, VOTE: 1}


def _sums(
    arena: Arena, votes: Votes, protection: str, layout: VoteLayout, rng: np.random.Generator
) -> np.ndarray:
    if protection == VOTE:
        votes = replace(votes, voter_V=np.arange(len(votes.voter_V)))
    bound = NO_BOUND if protection == NONE else layout.clip_norm
    return exact_sums(item_votes(votes, arena.items), layout, bound, rng)


def _local(votes: Votes, items: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Strengths from one vote of each voter, whose winner is flipped with probability
    1/(1 + e^ε).
    """
    size = len(votes.voter_V)
    shuffled_V = np.lexsort((rng.random(size), votes.voter_V))
    _, place_U = np.unique(votes.voter_V[shuffled_V], return_index=True)
    one_U = shuffled_V[place_U]
    true = math.tanh(epsilon / 2)  # P(right) − P(wrong)
    answer_U = votes.outcome_V[one_U] * np.where(rng.random(len(one_U)) < (1 + true) / 2, 1, -1)
    net_K = np.bincount(votes.first_V[one_U], answer_U / true, items)
    net_K -= np.bincount(votes.second_V[one_U], answer_U / true, items)
    pairs_KK = (1 - np.eye(items)) * len(one_U) / (items * (items - 1) / 2)
    return strengths(net_K, pairs_KK, ridge=1 / true**2 / PRIOR_STD**2).theta_K


def _measures(theta_K: np.ndarray, truth_K: np.ndarray) -> tuple[float, float, float]:
    error = ELO_PER_UNIT * math.sqrt(float(np.mean((theta_K - truth_K) ** 2)))
    rank = float(np.corrcoef(stats.rankdata(theta_K), stats.rankdata(truth_K))[0, 1])
    return rank, error, float(theta_K.argmax() == truth_K.argmax())


def remarks(rows: Rows) -> list[str]:
    """Sentences on the cost of protecting users at ε = 1, or at the only ε."""
    epsilons = distinct(rows, "epsilon")
    epsilon = 1.0 if 1.0 in epsilons else epsilons[0]
    sentences = []
    for value in distinct(where(rows, sweep="voters"), "value"):
        same = where(rows, sweep="voters", value=value, epsilon=(None, epsilon))
        words = ", ".join(
            f"{row['protection']} {row['error_mean']:.0f} points (Spearman "
            f"{row['spearman_mean']:.3f})"
            for row in same
        )
        sentences.append(f"{value:,} voters, ε = {epsilon:g}: {words}.")
    return sentences


_STYLES: dict[str, Style] = {
    NONE: ("0.25", "-", "o"),
    VOTE: ("C2", ":", "s"),
    USER: ("C0", "-", "^"),
    LOCAL: ("C3", "--", "v"),
}
_AXES = {"voters": "voters", "items": "items", "median_votes": "votes of the median voter"}


def plot(rows: Rows) -> Figure:
    """Draw the error in points: a row of panels for each ε, a column for each thing changed."""
    epsilons, sweeps = distinct(rows, "epsilon"), distinct(rows, "sweep")
    figure = Figure(
        figsize=(3.2 * len(sweeps) + 0.4, 2.4 * len(epsilons) + 0.8), layout="constrained"
    )
    panels = figure.subplots(len(epsilons), len(sweeps), squeeze=False, sharey=True, sharex="col")
    for i, epsilon in enumerate(epsilons):
        for j, sweep in enumerate(sweeps):
            axes = panels[i, j]
            for protection, style in _STYLES.items():
                of_line = None if protection == NONE else epsilon
                same = where(rows, sweep=sweep, protection=protection, epsilon=of_line)
                styled(axes, same, "value", "error_mean", style, protection, ms=3.5, lw=1.3)
            axes.set(xscale="log", yscale="log")
            values = distinct(where(rows, sweep=sweep), "value")
            axes.set_xticks(values, [f"{value:,g}" for value in values])
            axes.set_xticks([], minor=True)
            axes.set_title(f"ε = {epsilon:g}", fontsize=10)
            axes.grid(True, which="major", color="0.9", lw=0.6)
            open_corner(axes)
            if j == 0:
                axes.set_ylabel("error, Elo points")
            if i == len(epsilons) - 1:
                axes.set_xlabel(_AXES[sweep])
    legend_below(figure, 4)
    return figure
