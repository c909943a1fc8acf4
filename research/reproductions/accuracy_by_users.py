"""Accuracy by number of users and ε: the curves that ``murmuration plan`` shows.

``uls`` as it comes, on the embedded population or on people's judgements: `train` and `test` in a
folder, as examples/ukp_judgements.py writes them. Each seed draws its users anew from those that
there are, and every run is measured on the same others. Beside it the same without privacy, and the
length baseline, which always chooses the longer response.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import read_judgements
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
#: Of people: with an encoder, too, and all who are there at last.
SIZES_OF_PEOPLE, FEATURES_OF_PEOPLE = (100, 500, 1000), ("hashing", "minilm")


@dataclass(frozen=True)
class Crowd:
    """Users to draw from, and others to test on.

    Attributes:
        lines: each user's judgements, as lines of JSON.
        test: the others, as ``--test`` names them.
        baseline: the accuracy by user of the longer response on these.
    """

    lines: Mapping[str, Sequence[str]]
    test: str
    baseline: float

    @classmethod
    def embedded(cls) -> "Crowd":
        """The embedded population."""
        baseline = longer_wins(Judgements.from_rows(population.test())).by_user
        return cls(_by_user(population.train()), "murmuration.population:test", baseline)

    @classmethod
    def of_folder(cls, folder: Path) -> "Crowd":
        """People's judgements of pairs."""
        train, test = folder / "train.jsonl", folder / "test.jsonl"
        baseline = longer_wins(read_judgements(str(test), "btl", "", {})).by_user
        with train.open(encoding="utf-8") as lines:
            return cls(_by_user(map(json.loads, lines)), str(test), baseline)


def _by_user(judgements: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    by_user: dict[str, list[str]] = {}
    for judgement in judgements:
        by_user.setdefault(str(judgement["user_id"]), []).append(json.dumps(judgement))
    return by_user


def reproduced(quick: bool) -> Reproduction:
    """The rows of ``measured`` at full size; quick: one point of each kind, in few rounds."""
    crowd = Crowd.embedded()
    if quick:
        return _shown(measured(crowd, (100,), epsilons=(3.0,), seeds=1, rounds=5))
    return _shown(measured(crowd))


def of_people(data: Path, out: Path) -> Reproduction:
    """The rows of people's judgements in a folder, with hashed words and with an encoder."""
    del out
    crowd = Crowd.of_folder(data)
    sizes = [*(size for size in SIZES_OF_PEOPLE if size < len(crowd.lines)), len(crowd.lines)]
    return _shown(measured(crowd, sizes, FEATURES_OF_PEOPLE))


def _shown(rows: Rows) -> Reproduction:
    return Reproduction(rows, remarks(rows), plot=plot(rows))


def measured(
    crowd: Crowd,
    people: Sequence[int] = PEOPLE,
    features: Sequence[str] = ("hashing",),
    *,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """A row for each kind of features, number of users and ε; ε None: without privacy.

    Columns: ``features, users, epsilon, accuracy_mean, accuracy_sd, over_users, pooled_mean,
    length_baseline, seeds``. An accuracy is the mean over test users of the share of their
    judgements without ties, ``over_users`` half of its 95 % interval over these users, and
    ``pooled_mean`` the share of all judgements together.
    """
    cells = list(itertools.product(features, people, (*epsilons, None)))
    rows = []
    for kind, users, epsilon in tracked(cells, "training", len(cells)):
        results = [
            _result(crowd, kind, users, epsilon=epsilon, seed=seed, rounds=rounds)
            for seed in range(seeds)
        ]
        rows.append(
            {
                "features": kind,
                "users": users,
                "epsilon": epsilon,
                **mean_sd("accuracy", [one["heldout_accuracy_by_user"] for one in results]),
                "over_users": 1.96 * float(np.mean([one["heldout_error"] for one in results])),
                "pooled_mean": float(np.mean([one["heldout_accuracy"] for one in results])),
                "length_baseline": crowd.baseline,
                "seeds": seeds,
            }
        )
    return rows


def _drawn(by_user: Mapping[str, Sequence[str]], users: int, seed: int) -> list[str]:
    """The judgements of ``users`` users, drawn with a seed, as lines of JSON."""
    names = np.random.default_rng([13, seed]).permutation(sorted(by_user))[:users]
    return [judgement for name in names for judgement in by_user[name]]


def _result(
    crowd: Crowd, features: str, users: int, *, epsilon: float | None, seed: int, rounds: int
) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        data = Path(folder, "judgements.jsonl")
        data.write_text("\n".join(_drawn(crowd.lines, users, seed)), encoding="utf-8")
        config = RunConfig(
            data=str(data),
            test=crowd.test,
            features=features,
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
    for features, epsilon in itertools.product(
        distinct(rows, "features"), distinct(rows, "epsilon")
    ):
        same = where(rows, features=features, epsilon=epsilon)
        below = [row["users"] for row in same if row["accuracy_mean"] <= row["length_baseline"]]
        near = [
            row["users"]
            for row in same
            for free in where(rows, features=features, epsilon=None, users=row["users"])
            if free["accuracy_mean"] - row["accuracy_mean"] <= 0.01
        ]
        result.append(
            f"{features}, ε = {epsilon:g}: no better than the length baseline with "
            f"{', '.join(map(str, below)) or 'no number of'} users; within a point of no privacy "
            f"with {', '.join(map(str, near)) or 'no number of'} users."
        )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of accuracy against the number of users, a line for each ε, a panel for each kind of
    features.
    """
    kinds = distinct(rows, "features")
    figure = Figure(figsize=(1.0 + 5.0 * len(kinds), 4.0), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        here = where(rows, features=kind)
        for epsilon in distinct(here, "epsilon"):
            same = where(here, epsilon=epsilon)
            line(axes, same, "users", "accuracy_mean", "o-", ms=4, label=f"ε = {epsilon:g}")
        free = where(here, epsilon=None)
        line(axes, free, "users", "accuracy_mean", "k--", label="no privacy")
        axes.axhline(rows[0]["length_baseline"], color="0.6", lw=1, ls=":", label="length baseline")
        axes.set(xscale="log", xlabel="users", title=kind)
        open_corner(axes)
    panels[0].set_ylabel("accuracy on other users")
    panels[0].legend(frameon=False)
    return figure
