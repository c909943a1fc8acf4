"""Centred AUP without tuning against the best of a grid of ULS, on synthetic judgements.

The error is ‖θ̂ − θ*‖₂ on the populations of ``research.reproductions.btl``, where answering zero
has error two. Everything runs through the strategies, messages and ledgers that users get.

Strategies that protect labels only are compared among themselves (``label_compare``), beside the
same grid under ``replace-labels``: figures under two adjacencies do not compare.

The grid's best is chosen with knowledge of θ*, which is impossible in practice, and its privacy
cost is not charged: it is a bound on what tuning could achieve. Its ends are worse than its middle,
except for the smallest clip norm: below that every user is scaled to one length, and nothing
changes.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import NORM, Population, Training
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.theory.bounds import Bound, Case, all_bounds
from murmuration.strategies.config import RunConfig

_SETTINGS = RunConfig(
    strategy="aup",
    delta=1e-5,
    adjacency="add-remove",
    rounds=200,
    cohort=500,
    test="the true model",
)
USERS, EACH, DIMENSION = 2500, 10, 32
#: Clip norms of the grid, and its step sizes in units of the clip norm.
CLIPS = (0.1, 0.2, 0.3, 0.4)
RATES = (0.25, 0.35, 0.5, 0.7, 1.0)
#: What is run as a user would run it, with nothing chosen.
UNTUNED: Mapping[str, Mapping[str, Any]] = {
    "aup": {"strategy": "aup"},
    "aup above-threshold": {"strategy": "aup", "variant": "above-threshold"},
    "adaptive": {"strategy": "adaptive"},
    "uls default": {"strategy": "uls"},
    "aup:published": {"strategy": "aup", "variant": "published"},
}
#: The same where prompts and responses are public.
UNTUNED_LABELS: Mapping[str, Mapping[str, Any]] = {
    "label-moment": {"strategy": "label-moment", "rounds": 1},
    "label-moment, 2 rounds": {"strategy": "label-moment", "rounds": 2},
    "objective-perturbation": {"strategy": "objective-perturbation", "rounds": 1},
    "aup": {"strategy": "aup"},
}


@dataclass(frozen=True)
class _Trial:
    """One population at one epsilon, with all runs on it."""

    people: Population
    config: RunConfig
    clips: tuple[float, ...]
    rates: tuple[float, ...]
    untuned: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """The result of one run; ``clip`` and ``rate`` if they were chosen."""

    strategy: str
    error: float
    semi_norm: float
    spent: float
    rounds: int
    clip: float | None = None
    rate: float | None = None


def _try(trial: _Trial) -> list[_Found]:
    """Every run of a trial, in an order that is the same for all seeds."""
    people = trial.people
    training = Training(people.examples, Randomness(trial.config.seed))

    def result(name: str, config: RunConfig, **chosen: float) -> _Found:
        strategy, ledger = training.run(config)
        theta_D = strategy.optimizer.result_D
        errors = people.error(theta_D), people.semi_norm_error(theta_D)
        return _Found(name, *errors, ledger.epsilon(), strategy.rounds_done, **chosen)

    untuned = [
        result(name, trial.config.changed(**{**UNTUNED, **UNTUNED_LABELS}[name]))
        for name in trial.untuned
    ]
    uls = replace(trial.config, strategy="uls")
    grid = [
        result(
            "uls",
            replace(uls, clip_norm=clip, learning_rate=steps / clip),
            clip=clip,
            rate=steps / clip,
        )
        for clip, steps in itertools.product(trial.clips, trial.rates)
    ]
    return [*untuned, *grid]


def btl_compare(
    quick: bool = False,
    *,
    users: int = USERS,
    each: int = EACH,
    dimension: int = DIMENSION,
    epsilons: Sequence[float] = (1.0, 3.0),
    seeds: int = 5,
    settings: RunConfig = _SETTINGS,
    clips: Sequence[float] = CLIPS,
    rates: Sequence[float] = RATES,
    untuned: Sequence[str] = tuple(UNTUNED),
) -> list[dict[str, Any]]:
    """Errors by strategy and epsilon: what is not tuned, then the grid's best, then the grid.

    Rows hold ``strategy, epsilon, error_mean, error_sd, semi_norm_mean`` (the error in the
    semi-norm of Σ_D), and under an epsilon ``ratio`` (the error over that of the grid's best),
    ``epsilon_spent``, ``rounds``, ``adjacency``, ``clip`` and ``learning_rate`` (where they were
    chosen). Those with epsilon None are the non-private references. ``quick``: two seeds and a
    fourth of the grid.
    """
    if quick:
        seeds, clips, rates = 2, clips[1::2], rates[::2]
    populations = [
        Population.draw(seed, users=users, each=each, dimension=dimension) for seed in range(seeds)
    ]
    trials = [
        _Trial(
            people,
            replace(settings, epsilon=epsilon, seed=seed),
            tuple(clips),
            tuple(rates),
            tuple(untuned),
        )
        for epsilon in epsilons
        for seed, people in enumerate(populations)
    ]
    rows = []
    for name, known in (
        ("maximum likelihood", [population.likeliest() for population in populations]),
        ("zero", [np.zeros(dimension) for _ in populations]),
    ):
        both = list(zip(populations, known, strict=True))
        semi = fmean(population.semi_norm_error(theta_D) for population, theta_D in both)
        errors = [population.error(theta_D) for population, theta_D in both]
        rows.append(_row(name, None, errors, semi_norm_mean=semi))
    results = tracked(in_processes(_try, trials), "training", len(trials))
    for epsilon in epsilons:
        by_run = zip(*itertools.islice(results, seeds), strict=True)
        result = [_summary(epsilon, settings.adjacency, same) for same in by_run]
        grid = [row for row in result if row["strategy"] == "uls"]
        best = min(grid, key=lambda row: row["error_mean"])
        ordered = [*result[: len(untuned)], {**best, "strategy": "uls best of grid"}, *grid]
        rows += [{**row, "ratio": row["error_mean"] / best["error_mean"]} for row in ordered]
    return rows


def label_compare(quick: bool = False, **given: Any) -> list[dict[str, Any]]:
    """``btl_compare`` under ``replace-labels``, without the references; arguments as there."""
    settings = replace(given.pop("settings", _SETTINGS), adjacency="replace-labels")
    given.setdefault("untuned", tuple(UNTUNED_LABELS))
    rows = btl_compare(quick, settings=settings, **given)
    return [row for row in rows if row["epsilon"] is not None]


def theory(epsilon: float) -> list[Bound]:
    """The papers' bounds for these populations, where κ is 2/d, L is 1 and B is ‖θ*‖."""
    sizes = (USERS, EACH, DIMENSION, epsilon, _SETTINGS.delta)
    return all_bounds(Case(*sizes, model_bound=NORM, coverage=2.0 / DIMENSION))


def _summary(epsilon: float, adjacency: str, same: Sequence[_Found]) -> dict[str, Any]:
    """The row of one strategy from its runs on all populations."""
    first = same[0]
    return _row(
        first.strategy,
        epsilon,
        [result.error for result in same],
        semi_norm_mean=fmean(result.semi_norm for result in same),
        epsilon_spent=max(result.spent for result in same),
        rounds=fmean(result.rounds for result in same),
        clip=first.clip,
        learning_rate=first.rate,
        adjacency=adjacency,
    )


def _row(
    strategy: str, epsilon: float | None, errors: Sequence[float], **more: Any
) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "epsilon": epsilon,
        **mean_sd("error", errors),
        **more,
    }


def reproduced(quick: bool) -> Reproduction:
    """Both comparisons, beside the papers' bounds."""
    rows = [*btl_compare(quick), *label_compare(quick)]
    epsilons = sorted(distinct(rows, "epsilon"))
    bounds = {f"{epsilon:g}": [bound.row() for bound in theory(epsilon)] for epsilon in epsilons}
    said = [*remarks(rows), *_of_theory(bounds)]
    return Reproduction(rows, said, extra={"bounds": bounds}, plot=plot(rows))


def remarks(rows: Rows) -> list[str]:
    """Sentences that compare untuned strategies with the best of the grid."""
    result = [
        f"ε = {row['epsilon']:g}: {row['strategy']}, with nothing tuned, has {row['ratio']:.3f} "
        "times the error of the best of a grid of ULS, chosen by looking at the truth for free."
        for row in where(rows, strategy="aup", adjacency="add-remove")
    ]
    return result + [
        f"ε = {row['epsilon']:g} for labels: {row['strategy']} in {row['rounds']:g} "
        f"round{'s' if row['rounds'] > 1 else ''} has {row['ratio']:.3f} times the error of the "
        "best of the grid of ULS in 200 under the same adjacency."
        for row in rows
        if row["strategy"].startswith(("label-moment", "objective-perturbation"))
    ]


def _of_theory(bounds: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[str]:
    for epsilon, same in bounds.items():
        for row in where(same, source="A Thm 6"):
            yield (
                f"ε = {epsilon}: for the worst θ*, no estimator with this ε for labels has a root "
                f"mean square error below {row['proved']:.3g} ({row['source']} with the constants "
                "of its proof)."
            )


def plot(rows: Rows) -> Figure:
    """Error of each strategy at each epsilon under each adjacency, with one standard deviation."""
    private = [row for row in rows if row["epsilon"] is not None]
    cases = sorted({(row["adjacency"], row["epsilon"]) for row in private})
    figure = Figure(figsize=(4.2 * len(cases), 4.4), layout="constrained")
    for axes, case in zip(figure.subplots(1, len(cases), squeeze=False)[0], cases, strict=True):
        # The grid itself would bury the rest: its best stands for it.
        same = [r for r in rows if r["epsilon"] is None or (r["adjacency"], r["epsilon"]) == case]
        same = [row for row in same if row["strategy"] != "uls"]
        places = range(len(same))
        axes.barh(
            places,
            [row["error_mean"] for row in same],
            xerr=[row["error_sd"] or 0.0 for row in same],
            color="C0",
            alpha=0.8,
        )
        axes.set_yticks(places, [row["strategy"] for row in same], fontsize=8)
        axes.invert_yaxis()
        axes.axvline(2.0, color="0.5", ls=":", lw=1)
        axes.set(title=f"{case[0]}, ε = {case[1]:g}", xlabel="error of θ (answering zero: 2)")
        open_corner(axes)
    return figure
