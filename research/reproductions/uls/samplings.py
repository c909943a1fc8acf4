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
from typing import Any

import torch
from scipy import stats

from murmuration.preference.accuracy import right_by_user
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Training
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    mean_sd,
    tracked,
    where,
)
from murmuration.strategies.config import RunConfig
from murmuration.strategies.planning import PlanQuery, sampled_users
from murmuration.strategies.settings.sampling import usual_cohort, whole_blocks

SAMPLINGS = ("poisson", "allocation", "truncated-poisson")
EPSILONS = (1.0, 3.0, 8.0)
#: Users for one in a round, and rounds.
SIZES = ((5, 20), (5, 200), (10, 200), (100, 1000))
DELTA = 1e-5
_POPULATION = "murmuration.population"


@dataclass(frozen=True, eq=False)
class People:
    """Judgements of people to train on, and of others to test on, by hashed words."""

    name: str
    train: PairExamples
    test: PairExamples

    @classmethod
    def of(cls, name: str, train: str, test: str) -> "People":
        """Return those of two sources of judgements, as ``--data`` and ``--test`` name them."""
        features = feature_map(parse_features("hashing"))
        both = [pair_examples(read_judgements(at, "btl", "", {}), features) for at in (train, test)]
        return cls(name, *both)

    def accuracy(self, config: RunConfig) -> float:
        """Return the share of the test's judgements that a run's model is right about."""
        strategy, _ = Training(self.train, Randomness(config.seed)).run(config)
        theta_D = torch.from_numpy(strategy.optimizer.result_D)
        right_U, judged_U = right_by_user(self.test.logits_R(theta_D), self.test)
        return float(right_U.sum() / judged_U.sum())


def samplings(quick: bool) -> Reproduction:
    """Return noise, and accuracies on the embedded population; quick: a point of each."""
    people = People.of("embedded population", *(f"{_POPULATION}:{s}" for s in ("train", "test")))
    if quick:
        rows = accuracies(people, (3,), (3.0,), seeds=2)
        return _together([*noises(SIZES[:1], (3.0,)), *rows])
    return _together([*noises(), *accuracies(people)])


def of_people(data: Path, out: Path) -> Reproduction:
    """Return accuracies on people's judgements, of a folder with train.jsonl and test.jsonl."""
    del out  # runs are short: none is kept
    files = (str(data / f"{split}.jsonl") for split in ("train", "test"))
    return _together(accuracies(People.of(data.name, *files)))


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
    people: People,
    rounds: Sequence[int] = (20, 200),
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
) -> list[dict[str, Any]]:
    """Return a row for each number of rounds, ε and sampling: accuracy on the test, and by how many
    points it is above that by coins, with half of the interval of that."""
    cells = list(itertools.product(rounds, epsilons))
    rows = []
    for times, epsilon in tracked(cells, "runs", len(cells)):
        each = {
            sampling: [
                people.accuracy(config_of(people, times, epsilon, sampling, seed))
                for seed in range(seeds)
            ]
            for sampling in SAMPLINGS
        }
        for sampling, accuracy in each.items():
            gained = [100.0 * (a - b) for a, b in zip(accuracy, each["poisson"], strict=True)]
            half = float(stats.t.ppf(0.975, seeds - 1)) * stdev(gained) / seeds**0.5
            row = {"data": people.name, "rounds": times, "epsilon": epsilon, "sampling": sampling}
            gain = {"gain": fmean(gained), "gain_half_width": half, "seeds": seeds}
            rows.append({**row, **mean_sd("accuracy", accuracy), **gain})
    return rows


def config_of(people: People, rounds: int, epsilon: float, sampling: str, seed: int) -> RunConfig:
    """Return the settings of one run, with a cohort that makes whole blocks."""
    users = len(people.train.counts_U)
    cohort = whole_blocks(users, usual_cohort(users))
    capped = {"max_cohort": cohort} if sampling == "truncated-poisson" else {}
    config = RunConfig(
        test="other users",
        adjacency=Adjacency.ZERO_OUT.value,
        users=users,
        cohort=cohort,
        rounds=rounds,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
    )
    return config.changed(sampling=sampling, **capped)


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
