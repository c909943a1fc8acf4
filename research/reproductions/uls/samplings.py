"""The accuracy of samplings and kinds of noise, at the same guarantee.

``poisson`` is Poisson sampling, with independent noise. ``banded`` is sampling with noise that is
correlated over the recommended number of rounds; ``blt`` is fixed turns, without sampling, with
noise that is correlated over all rounds. ``all`` is all users in each round, with independent
noise.

Runs of the same seed have the same test users, and as far as may be the same draws. What is
compared is the difference from ``poisson``, seed by seed, with its 95 % interval (Student's t).

A hundred thousand users, a hundredth of them in each of 1,000 rounds, are made up: each has three
judgements by a Bradley-Terry-Luce model of `research.reproductions.btl`. Their truth is known, so
the *error* is, too: the angle between a model and it, which decides accuracy.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from murmuration.preference.accuracy import right_by_user
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.alignment.claims import half_width
from murmuration.research.reproductions.btl import Population, Training
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.sampling import cohort_of_turns, usual_cohort

#: Coins, coins and turns with correlated noise, and everybody.
WAYS = ("poisson", "banded", "blt", "all")
EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-5
#: Made-up users to train on and to test on, judgements of each, dimensions.
LARGE = (100_000, 10_000, 3, 64)
#: Standard deviation of the log-odds of the judgements of made-up users.
_LOG_ODDS = 1.5
_POPULATION = "murmuration.population"


@dataclass(frozen=True, eq=False)
class People:
    """Judgements of people to train on, and of others to test on; and whom they judge by, if that
    is known."""

    name: str
    train: PairExamples
    test: PairExamples
    cohort: int
    truth_D: np.ndarray | None = None

    def reached(self, config: RunConfig) -> dict[str, float]:
        """The accuracy of a run's model on the test's judgements, and its error in degrees."""
        strategy, _ = self._training(config.seed).run(config)
        theta_D = strategy.optimizer.result_D
        test, logits_R = self.test, self.test.logits_R(torch.from_numpy(theta_D))
        right_U, judged_U = right_by_user(logits_R, test.y_R, test.start_U, test.kind, test.width)
        reached = {"accuracy": float(right_U.sum() / judged_U.sum())}
        if self.truth_D is not None:
            lengths = np.linalg.norm(theta_D) * np.linalg.norm(self.truth_D)
            cosine = float(np.clip(theta_D @ self.truth_D / lengths, -1.0, 1.0))
            reached["error"] = float(np.degrees(np.arccos(cosine)))
        return reached

    @lru_cache(maxsize=1)  # noqa: B019  people are few, and there for the whole process
    def _training(self, seed: int) -> Training:
        """Naming a hundred thousand users takes a second: runs of a seed have it in common."""
        return Training(self.train, Randomness(seed))

    @cached_property
    def digest(self) -> str:
        """A digest of the judgements."""
        digest = hashlib.sha256()
        for examples in (self.train, self.test):
            for part in (examples.x_RD, examples.y_R, examples.start_U):
                digest.update(part.numpy().data)
        return digest.hexdigest()


@cache
def read(name: str, train: str, test: str) -> People:
    """People from two sources of judgements, as ``--data`` and ``--test`` name them, with hashed
    words.
    """
    features = feature_map(parse_features("hashing"))
    learned, tested = (
        pair_examples(read_judgements(at, "btl", "", {}), features) for at in (train, test)
    )
    users = len(learned.counts_U)
    return People(name, learned, tested, cohort_of_turns(users, usual_cohort(users)))


@cache
def made_up(users: int, others: int, each: int, dimension: int) -> People:
    """Users who judge by a known model, a hundredth of them in each round."""
    norm = _LOG_ODDS * (dimension / 2.0) ** 0.5
    drawn = Population.draw(40, users=users + others, each=each, dimension=dimension, norm=norm)
    train, test = np.split(np.arange(users + others), [users])
    both = drawn.examples.select(train), drawn.examples.select(test)
    return People(f"{users:,} made up", *both, users // 100, drawn.truth_D)


def samplings(quick: bool) -> Reproduction:
    """Accuracies on the embedded population and on many made-up users; quick: a point of each."""
    embedded = partial(
        read, "embedded population", *(f"{_POPULATION}:{s}" for s in ("train", "test"))
    )
    if quick:
        rows = accuracies(embedded, (3,), (3.0,), seeds=2)
        few = partial(made_up, 2_000, 500, 3, 16)
        rows += accuracies(few, (20,), (3.0,), seeds=2, ways=WAYS[:-1])
        return _together(rows)
    # A round of everybody would take a hundred times as long.
    many = accuracies(partial(made_up, *LARGE), (1_000,), ways=WAYS[:-1])
    return _together([*accuracies(embedded), *many])


def of_people(data: Path, out: Path) -> Reproduction:
    """Accuracies on people's judgements, from a folder with train.jsonl and test.jsonl."""
    del out
    files = (str(data / f"{split}.jsonl") for split in ("train", "test"))
    return _together(accuracies(partial(read, data.name, *files)))


#: How to come by the people, what names them, and the settings.
Task = tuple[Callable[[], People], str, RunConfig]


def one_run(task: Task) -> dict[str, float]:
    """The result of one run."""
    make, _, config = task
    return make().reached(config)


def accuracies(
    make: Callable[[], People],
    rounds: Sequence[int] = (20, 200),
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
    ways: Sequence[str] = WAYS,
) -> list[dict[str, Any]]:
    """A row for each number of rounds, ε and way: accuracy on the test, its gain over Poisson
    sampling in points, with half the width of the gain's interval; for made-up users also the
    error, and its reduction in per cent.
    """
    people = make()
    # Seeds first: what is interrupted has something of all.
    cells = list(itertools.product(range(seeds), rounds, epsilons, ways))
    tasks = [(make, people.digest, config_of(people, t, e, way, seed)) for seed, t, e, way in cells]
    results = tracked(in_processes(one_run, tasks), "runs", len(tasks))
    reached = dict(zip(cells, results, strict=True))
    rows = []
    for times, epsilon, way in itertools.product(rounds, epsilons, ways):
        mine, coins = (
            [reached[seed, times, epsilon, each] for seed in range(seeds)]
            for each in (way, "poisson")
        )
        row = {"data": people.name, "rounds": times, "epsilon": epsilon, "sampling": way}
        row |= mean_sd("accuracy", [run["accuracy"] for run in mine])
        points = [100.0 * (a["accuracy"] - b["accuracy"]) for a, b in zip(mine, coins, strict=True)]
        row |= _interval("gain", points)
        if people.truth_D is not None:
            row |= mean_sd("error", [run["error"] for run in mine])
            less = [
                100.0 * (1.0 - a["error"] / b["error"]) for a, b in zip(mine, coins, strict=True)
            ]
            row |= _interval("less_error", less)
        rows.append({**row, "seeds": seeds})
    return rows


def _interval(name: str, values: Sequence[float]) -> dict[str, float]:
    """Columns for the mean, and half of the width of its interval."""
    return {name: fmean(values), f"{name}_half_width": half_width(values)}


def config_of(people: People, rounds: int, epsilon: float, way: str, seed: int) -> RunConfig:
    """The settings of one run, with a cohort that makes whole groups."""
    config = RunConfig(
        test="other users",
        adjacency=Adjacency.ZERO_OUT.value,
        users=len(people.train.counts_U),
        cohort=people.cohort,
        rounds=rounds,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
    )
    if way == "all":
        return config.changed(sampling=way, cohort=config.users)
    return config.changed(sampling=way)


def _together(rows: Rows) -> Reproduction:
    return Reproduction(rows, remarks(rows))


def remarks(rows: Rows) -> list[str]:
    """Sentences on which differences in accuracy are significant."""
    result = []
    for sampling in WAYS[1:]:
        same = where(rows, sampling=sampling)
        for row in same:
            at = f"{row.get('data')}, {row['rounds']} rounds, ε = {row['epsilon']:g}"
            for name, unit in (("gain", "points"), ("less_error", "% less error")):
                if name not in row:
                    continue
                half = row[f"{name}_half_width"]
                seen = "" if abs(row[name]) > half else ", no difference that can be seen"
                result.append(
                    f"{sampling} on {at}: {row[name]:+.2f} ± {half:.2f} {unit} in {row['seeds']} "
                    f"seeds{seen}."
                )
    return result
