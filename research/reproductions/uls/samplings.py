"""Which sampling: the noise that each needs for the same promise, and what that does to accuracy.

Coins (``poisson``), one random round of each block (``allocation``), and coins with a cap
(``truncated-poisson``), under ``zero-out``, which all three have a guarantee for. The cap of the
runs is the cohort itself: half of all cohorts are tossed again. With the cap that is usual hardly a
cohort ever is, so that a run of the same seed is the run by coins to the last bit.

Runs of the same seed have the same test users, and as far as may be the same draws. What is
compared is the difference from ``poisson``, seed by seed, with its 95 % interval (Student's t).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from scipy import stats

from murmuration.preference.data.loading import read_judgements
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.sims.runtimes.execute import execute
from murmuration.strategies.config import RunConfig
from murmuration.strategies.planning import PlanQuery, sampled_users
from murmuration.strategies.settings.sampling import usual_cohort, whole_blocks

SAMPLINGS = ("poisson", "allocation", "truncated-poisson")
EPSILONS = (1.0, 3.0, 8.0)
#: Users for one in a round, and rounds.
SIZES = ((5, 20), (5, 200), (10, 200), (100, 1000))
DELTA = 1e-5
_POPULATION = "murmuration.population"


@dataclass(frozen=True)
class Run:
    """One run; ``users`` to train on, of a cohort that makes whole blocks."""

    train: str
    test: str
    users: int
    rounds: int
    epsilon: float
    sampling: str
    seed: int

    @property
    def cohort(self) -> int:
        """Expected users in a round."""
        return whole_blocks(self.users, usual_cohort(self.users))


def samplings(quick: bool) -> Reproduction:
    """Return noise, and accuracies on the embedded population; quick: a point of each."""
    if quick:
        rows = accuracies("embedded population", *_named(), 2_500, (3,), (3.0,), seeds=2)
        return _together([*noises(SIZES[:1], (3.0,)), *rows])
    rows = accuracies("embedded population", *_named(), 2_500)
    return _together([*noises(), *rows])


def of_people(data: Path, out: Path) -> Reproduction:
    """Return accuracies on people's judgements, of a folder with train.jsonl and test.jsonl."""
    del out  # runs are short
    train, test = (str(data / f"{split}.jsonl") for split in ("train", "test"))
    users = len(read_judgements(train, "btl", "", {}).user_ids)
    return _together(accuracies(data.name, train, test, users))


def _named() -> tuple[str, str]:
    return f"{_POPULATION}:train", f"{_POPULATION}:test"


def noises(
    sizes: Sequence[tuple[int, int]] = SIZES, epsilons: Sequence[float] = EPSILONS
) -> list[dict[str, Any]]:
    """Return a row for each size, ε and sampling: its noise multiplier, and how much less it is
    than by coins, in %."""
    rows = []
    for (share, rounds), epsilon in itertools.product(sizes, epsilons):
        noise = {}
        for sampling in SAMPLINGS:
            query = PlanQuery(
                "uls",
                users=1_000 * share,
                cohort=1_000,
                rounds=rounds,
                delta=DELTA,
                epsilon=epsilon,
                allocated=sampling == "allocation",
                truncated=sampling == "truncated-poisson",
            )
            noise[sampling] = sampled_users(query, Adjacency.ZERO_OUT)["noise_multiplier"]
            rows.append(
                {
                    "share": f"1/{share}",
                    "rounds": rounds,
                    "epsilon": epsilon,
                    "sampling": sampling,
                    "noise_multiplier": noise[sampling],
                    "less_noise": 100.0 * (1.0 - noise[sampling] / noise["poisson"]),
                }
            )
    return rows


def accuracies(
    name: str,
    train: str,
    test: str,
    users: int,
    rounds: Sequence[int] = (20, 200),
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
) -> list[dict[str, Any]]:
    """Return a row for each number of rounds, ε and sampling: accuracy on the test's users, and by
    how many points it is above that by coins, with half of the interval of that."""
    cells = list(itertools.product(rounds, epsilons, SAMPLINGS))
    runs = [Run(train, test, users, *cell, seed) for cell in cells for seed in range(seeds)]
    by_run = dict(zip(runs, tracked(in_processes(accuracy, runs), "runs", len(runs)), strict=True))
    rows = []
    for cell in cells:
        each = [by_run[Run(train, test, users, *cell, seed)] for seed in range(seeds)]
        coins = [by_run[Run(train, test, users, *cell[:2], "poisson", s)] for s in range(seeds)]
        gained = [100.0 * (one - other) for one, other in zip(each, coins, strict=True)]
        half = float(stats.t.ppf(0.975, seeds - 1)) * stdev(gained) / seeds**0.5
        rows.append(
            {
                "data": name,
                **dict(zip(("rounds", "epsilon", "sampling"), cell, strict=True)),
                **mean_sd("accuracy", each),
                "gain": fmean(gained),
                "gain_half_width": half,
                "seeds": seeds,
            }
        )
    return rows


def accuracy(run: Run) -> float:
    """Return the accuracy of a run on the test's users."""
    with TemporaryDirectory() as folder:
        config = RunConfig(
            data=run.train,
            test=run.test,
            adjacency=Adjacency.ZERO_OUT.value,
            users=run.users,
            cohort=run.cohort,
            rounds=run.rounds,
            epsilon=run.epsilon,
            delta=DELTA,
            seed=run.seed,
            out=str(Path(folder, "run")),
        ).changed(sampling=run.sampling)
        if run.sampling == "truncated-poisson":
            config = config.changed(max_cohort=run.cohort)
        return float(execute(config, quiet=True)["heldout_accuracy"])


def _together(rows: Rows) -> Reproduction:
    return Reproduction(rows, remarks(rows))


def remarks(rows: Rows) -> list[str]:
    """Return what each sampling saves in noise, and which differences in accuracy can be seen."""
    result = []
    for sampling in SAMPLINGS[1:]:
        same = where(rows, sampling=sampling)
        if less := [row["less_noise"] for row in same if "less_noise" in row]:
            result.append(
                f"{sampling}: {min(less):.1f} to {max(less):.1f} % less noise than by coins."
            )
        for row in same:
            if "gain" not in row:
                continue
            seen = abs(row["gain"]) > row["gain_half_width"]
            result.append(
                f"{sampling} on {row['data']}, {row['rounds']} rounds, ε = {row['epsilon']:g}: "
                f"{row['gain']:+.2f} ± {row['gain_half_width']:.2f} points in {row['seeds']} seeds"
                f"{'' if seen else ', no difference that can be seen'}."
            )
    return result
