"""Accuracy by number of users and ε: the curves that ``murmuration plan`` shows.

The embedded population, ``uls`` as it comes. Each seed draws its users anew from the 2,500 of the
population, and every run is measured on the same 500 other users. Beside it the same without
privacy, and the length baseline, which always chooses the longer response.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.data.judgements import Judgements
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    distinct,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import line, open_corner
from murmuration.sims.population import population
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies.config import RunConfig

PEOPLE = (100, 500, 1000, 2500)
EPSILONS = (1.0, 3.0, 8.0)
ROUNDS = 200
_TEST = "murmuration.population:test"


def reproduced(quick: bool) -> Reproduction:
    """The rows of ``measured`` at full size; quick: one point of each kind, in few rounds."""
    rows = measured((100,), (3.0,), seeds=1, rounds=5) if quick else measured()
    return Reproduction(rows, remarks(rows), plot=plot(rows))


def measured(
    people: Sequence[int] = PEOPLE,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """A row for each number of users and ε; ε None: without privacy.

    Columns: ``users, epsilon, accuracy_mean, accuracy_sd, over_users, pooled_mean,
    length_baseline, seeds``. An accuracy is the mean over test users of the share of their
    judgements without ties, ``over_users`` half of its 95 % interval over these users, and
    ``pooled_mean`` the share of all judgements together.
    """
    by_user: dict[str, list[str]] = {}
    for judgement in population.train():
        by_user.setdefault(str(judgement["user_id"]), []).append(json.dumps(judgement))
    baseline = longer_wins(Judgements.from_rows(population.test())).by_user
    cells = [(users, epsilon) for users in people for epsilon in (*epsilons, None)]
    rows = []
    for users, epsilon in tracked(cells, "training", len(cells)):
        results = [
            _result(_drawn(by_user, users, seed), users, epsilon, seed, rounds)
            for seed in range(seeds)
        ]
        rows.append(
            {
                "users": users,
                "epsilon": epsilon,
                **mean_sd("accuracy", [one["heldout_accuracy_by_user"] for one in results]),
                "over_users": 1.96 * float(np.mean([one["heldout_error"] for one in results])),
                "pooled_mean": float(np.mean([one["heldout_accuracy"] for one in results])),
                "length_baseline": baseline,
                "seeds": seeds,
            }
        )
    return rows


def _drawn(by_user: dict[str, list[str]], users: int, seed: int) -> list[str]:
    """The judgements of ``users`` users, drawn with a seed, as lines of JSON."""
    names = np.random.default_rng([13, seed]).permutation(sorted(by_user))[:users]
    return [judgement for name in names for judgement in by_user[name]]


def _result(
    judgements: Sequence[str], users: int, epsilon: float | None, seed: int, rounds: int
) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        data = Path(folder, "judgements.jsonl")
        data.write_text("\n".join(judgements), encoding="utf-8")
        config = RunConfig(
            data=str(data),
            test=_TEST,
            strategy="uls" if epsilon else "nonprivate",
            epsilon=epsilon or RunConfig().epsilon,
            users=users,
            rounds=rounds,
            seed=seed,
            out=str(Path(folder, "run")),
        )
        return execute(config, quiet=True)


def remarks(rows: Rows) -> list[str]:
    """Sentences: where privacy costs at most a point, and where a model is below the baseline."""
    result = []
    for epsilon in distinct(rows, "epsilon"):
        below = [
            row["users"]
            for row in where(rows, epsilon=epsilon)
            if row["accuracy_mean"] <= row["length_baseline"]
        ]
        near = [
            row["users"]
            for row in where(rows, epsilon=epsilon)
            for free in where(rows, epsilon=None, users=row["users"])
            if free["accuracy_mean"] - row["accuracy_mean"] <= 0.01
        ]
        result.append(
            f"ε = {epsilon:g}: no better than the length baseline with "
            f"{', '.join(map(str, below)) or 'no number of'} users; within a point of no privacy "
            f"with {', '.join(map(str, near)) or 'no number of'} users."
        )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of accuracy against the number of users, a line for each ε."""
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for epsilon in distinct(rows, "epsilon"):
        same = where(rows, epsilon=epsilon)
        line(axes, same, "users", "accuracy_mean", "o-", ms=4, label=f"ε = {epsilon:g}")
    line(axes, where(rows, epsilon=None), "users", "accuracy_mean", "k--", label="no privacy")
    axes.axhline(rows[0]["length_baseline"], color="0.6", lw=1, ls=":", label="length baseline")
    axes.set(xscale="log", xlabel="users", ylabel="accuracy on other users")
    axes.legend(frameon=False)
    open_corner(axes)
    return figure
