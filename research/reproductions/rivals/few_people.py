"""Few people: what a public start is worth, and was a few public directions, by people and ε.

`train` and `test` in a folder are judgements by different people; `public` are judgements about
something else, which count as public. A public reward is fitted to them, logistic regression with
the ridge that does best on public topics that are left out; directions are principal ones of
differences between public responses. Then ``uls`` learns from a few people of `train`, from zero or
from a start, along some of the directions or all of them; all else is a run's default. A run has
no setting of directions: this is the record of what they were worth.

The step, a multiple of the default, is chosen for each row alike: on other draws of as few people,
by a fifth of the people who are never trained on. That is not charged.

Accuracies are by user: means over test users of the share of their judgements, with 95 % intervals
over users and draws of people (`clustered`), of differences, too. Every run is written down when it
is done.

Legend: J judgements, U test users, S seeds, D dimensions, K directions, N differences, F axes.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.features.strengths import item_digest
from murmuration.preference.kinds.starting import LENGTH_WEIGHT
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.research.reproductions.entry import Reproduction, Rows, distinct, where
from murmuration.research.reproductions.plots import legend_below, line, open_corner
from murmuration.research.reproductions.rivals.clustered import by_user
from murmuration.research.reproductions.rivals.contestants import RIVALS, Learners
from murmuration.research.reproductions.rivals.real_people import (
    Runs,
    debate_of,
    digest,
    judged,
    right_about,
)
from murmuration.research.reproductions.rivals.strengths import likeliest, read_part
from murmuration.sims.population.population import Population

RUNS = "few-people-runs.jsonl"
ZERO, LENGTH, PUBLIC = "zero", "length", "public reward"
_VALIDATION = 5  # one of so many people of the training
_TUNING_SEEDS = (10_000, 10_001)
_TOPICS = 4  # parts of the public topics, of which one is left out at a time


@dataclass(frozen=True)
class Plan:
    """Sizes of a comparison.

    Attributes:
        ways: starts, with numbers of directions; 0: all.
        steps: multiples of the default, of which one is chosen.
        inverse_ridges: of the public reward, of which one is chosen.
    """

    features: Sequence[str] = ("minilm", "hashing")
    people: Sequence[int] = (50, 100, 250, 1000)
    epsilons: Sequence[float] = (1.0, 3.0, 8.0)
    ways: Sequence[tuple[str, int]] = (
        *((ZERO, count) for count in (0, 16, 64)),
        *((PUBLIC, count) for count in (0, 16, 64)),
        (LENGTH, 0),
    )
    steps: Sequence[float] = (0.1, 0.3, 1.0, 3.0)
    inverse_ridges: Sequence[float] = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 1.0)
    seeds: int = 5
    rounds: int = 100


def miniature(quick: bool = True) -> Reproduction:
    """Run it in small on the embedded population."""
    del quick  # the only form there is without people
    crowd = Judgements.from_rows(Population(users=200, median_judgements=4).rows("train"))
    ends = ((0, 80), (80, 120), (120, 200))
    train, test, public = (crowd.select(range(*each)) for each in ends)
    ways = ((ZERO, 0), (PUBLIC, 0), (PUBLIC, 16))
    plan = Plan(("hashing",), (40,), (8.0,), ways, (1.0,), (0.1,), seeds=2, rounds=10)
    with TemporaryDirectory() as folder:
        return compared(train, test, public, Path(folder, RUNS), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """The comparison on the files of a folder; runs are recorded in ``out``."""
    train, test, public = (read_part(data, part) for part in ("train", "test", "public"))
    return compared(train, test, public, out / RUNS, Plan())


def compared(
    train: Judgements, test: Judgements, public: Judgements, path: Path, plan: Plan
) -> Reproduction:
    """Rows of accuracies, remarks, and differences to start, length and zero among the further
    results."""
    parts = {"train": train, "test": test, "public": public}
    about = {name: digest(judgements) for name, judgements in parts.items()}
    runs = Runs(path, {**about, "rounds": plan.rounds, "steps": plan.steps})
    judged_U, longer = judged(test), longer_wins(test)
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for features in plan.features:
        cell = _Features(features, train, test, public, plan, runs)
        alone = {PUBLIC: cell.right_at(cell.public_D), LENGTH: cell.right_at(cell.length_D)}
        for name, right_SU in alone.items():
            case = {"features": features, "people": 0, "epsilon": None, "directions": 0}
            rows.append({**case, "start": name, **_ends(right_SU, judged_U)})
        for people, epsilon in itertools.product(plan.people, plan.epsilons):
            case = {"features": features, "people": people, "epsilon": epsilon}
            right = {way: cell.right(way, people, epsilon) for way in plan.ways}
            for (start, count), (step, right_SU) in right.items():
                way = {"start": start, "directions": count, "step": step}
                rows.append({**case, **way, **_ends(right_SU, judged_U)})
                others = {f"{name} alone": other for name, other in alone.items()}
                others[ZERO] = right[ZERO, 0][1]
                differences += [
                    {**case, **way, "less": less, **_ends(right_SU - other_SU, judged_U)}
                    for less, other_SU in others.items()
                    if right_SU is not other_SU
                ]
    extra = {
        "differences": differences,
        "longer_by_user": longer.by_user,
        "longer_pooled": longer.pooled,
        "test_users": int((judged_U > 0).sum()),
    }
    return Reproduction(rows, remarks(differences), extra=extra, plot=plot(rows))


class _Features:
    """The runs on one kind of features."""

    def __init__(
        self,
        features: str,
        train: Judgements,
        test: Judgements,
        public: Judgements,
        plan: Plan,
        runs: Runs,
    ) -> None:
        self._name, self._plan, self._runs = features, plan, runs
        self._phi = feature_map(parse_features(features))
        self._test, self._public = (pair_examples(part, self._phi) for part in (test, public))
        people = pair_examples(train, self._phi)
        order_N = np.random.default_rng(66).permutation(len(people.counts_U))
        validation_N, pool_N = np.split(order_N, [len(order_N) // _VALIDATION])
        self._validation = people.select(np.sort(validation_N))
        self._pool = people.select(np.sort(pool_N))
        self.public_D = self._public_reward(public)
        self.length_D = np.zeros(self._phi.dimension, dtype=np.float32)
        self.length_D[-1] = LENGTH_WEIGHT
        self._bases = {way: self._basis_of(way) for way in plan.ways if way[1]}

    def _public_reward(self, public: Judgements) -> np.ndarray:
        """The reward fitted to public judgements; its ridge is best on topics left out."""
        tried = self._plan.inverse_ridges
        part_J = np.array(
            [int(item_digest(t), 16) % _TOPICS for t in map(debate_of, public.prompts)]
        )
        accuracies = np.zeros(len(tried))
        for part in np.unique(part_J) if len(tried) > 1 else ():
            fitted = pair_examples(public.keep(part_J != part), self._phi)
            left_out = pair_examples(public.keep(part_J == part), self._phi)
            for place, inverse_ridge in enumerate(tried):
                accuracies[place] += left_out.accuracy(likeliest(fitted, inverse_ridge)).by_user
        return likeliest(self._public, tried[int(np.argmax(accuracies))])

    def _basis_of(self, way: tuple[str, int]) -> np.ndarray:
        axes = [self.public_D, self.length_D] if way[0] == PUBLIC else [self.length_D]
        return principal_directions(np.array(axes), self._public.x_RD.numpy(), way[1])

    def right_at(self, theta_D: np.ndarray) -> np.ndarray:
        """On how many judgements of each test user a reward is right, (1, U)."""
        return right_about(self._test, theta_D)[None]

    def right(self, way: tuple[str, int], people: int, epsilon: float) -> tuple[float, np.ndarray]:
        """The chosen step, and the same for the rewards that people were trained on, (S, U)."""
        step = self._step(way, people, epsilon)

        def run(seed: int) -> list[float]:
            theta_D = self._trained(way, people, epsilon, step, seed)
            return right_about(self._test, theta_D).tolist()

        name = f"{self._name}, {way}, {people}, {epsilon}, {step}"
        seeds = range(self._plan.seeds)
        right = [self._runs.result(f"{name}, {seed}", partial(run, seed)) for seed in seeds]
        return step, np.array(right)

    def _step(self, way: tuple[str, int], people: int, epsilon: float) -> float:
        tried = self._plan.steps
        if len(tried) == 1:
            return tried[0]

        def run(step: float) -> float:
            trained = (self._trained(way, people, epsilon, step, seed) for seed in _TUNING_SEEDS)
            return float(np.mean([self._validation.accuracy(head).by_user for head in trained]))

        name = f"{self._name}, {way}, {people}, {epsilon}, tuning"
        accuracies = [self._runs.result(f"{name} {step}", partial(run, step)) for step in tried]
        return tried[int(np.argmax(accuracies))]

    def _trained(
        self, way: tuple[str, int], people: int, epsilon: float, step: float, seed: int
    ) -> np.ndarray:
        """The reward over the plain features that some people were trained on, (D,)."""
        users = len(self._pool.counts_U)
        if people > users:
            raise InputError(f"few-people: {users} people to train on are fewer than {people}")
        drawn_N = np.random.default_rng([66, seed]).permutation(users)[:people]
        examples = self._pool.select(np.sort(drawn_N))
        starts = {ZERO: np.zeros_like(self.length_D), LENGTH: self.length_D, PUBLIC: self.public_D}
        start_D, basis_DK = starts[way[0]], self._bases.get(way)
        if basis_DK is not None:
            x_RK = examples.x_RD.numpy() @ basis_DK
            examples = PairExamples(torch.from_numpy(x_RK), examples.y_R, examples.start_U)
            start_D = start_D @ basis_DK
        learners = Learners(examples, self._plan.rounds, start_D)
        theta_D = learners.head(RIVALS[0], (1.0, step), epsilon, seed)
        return theta_D if basis_DK is None else basis_DK @ theta_D


def principal_directions(axes_FD: np.ndarray, rows_ND: np.ndarray, count: int) -> np.ndarray:
    """An orthonormal basis, (D, K): the axes, then the principal directions of rows beside them."""
    fixed_DF, _ = np.linalg.qr(axes_FD.T.astype(np.float64))
    beside_ND = rows_ND - rows_ND @ fixed_DF @ fixed_DF.T
    _, vectors_DD = np.linalg.eigh(beside_ND.T @ beside_ND)  # the largest last
    basis_DK = np.hstack([fixed_DF, vectors_DD[:, ::-1]])[:, :count]
    return np.linalg.qr(basis_DK)[0].astype(np.float32)


def _ends(right_SU: np.ndarray, judged_U: np.ndarray) -> dict[str, float]:
    """Means and intervals by user, and the share of all judgements together."""
    pooled = float(right_SU.mean(0).sum() / judged_U.sum())
    return by_user(right_SU, judged_U).columns("by_user", "") | {"pooled": pooled}


def remarks(differences: Rows) -> list[str]:
    """Sentences: each start's worth, along all directions, beside zero and the start alone."""
    result = []
    for row in where(differences, directions=0):
        if row["start"] != ZERO and row["less"] in (ZERO, f"{row['start']} alone"):
            ends = [100 * row[end] for end in ("by_user", "low", "high")]
            result.append(
                f"{row['features']}, {row['people']} people, ε = {row['epsilon']:g}: from "
                f"{row['start']}, less {row['less']}: "
                "{:+.1f} ({:+.1f} to {:+.1f}) points by user.".format(*ends)
            )
    return result


def plot(rows: Rows) -> Figure:
    """A panel for each kind of features and ε: accuracy against the number of people."""
    trained = [row for row in rows if row["people"]]
    kinds, epsilons = distinct(trained, "features"), distinct(trained, "epsilon")
    figure = Figure(figsize=(3.2 * len(epsilons), 2.8 * len(kinds)), layout="constrained")
    panels = figure.subplots(len(kinds), len(epsilons), sharey=True, squeeze=False)
    for (features, epsilon), axes in zip(
        itertools.product(kinds, epsilons), panels.flat, strict=True
    ):
        for start, color in ((ZERO, "C0"), (LENGTH, "0.6"), (PUBLIC, "C1")):
            case = {"features": features, "start": start, "directions": 0}
            if some := where(trained, epsilon=epsilon, **case):
                line(
                    axes, some, "people", "by_user", "o-", ms=3, color=color, label=f"from {start}"
                )
            for row in where(rows, people=0, **case):
                axes.axhline(row["by_user"], color=color, lw=1, ls=":", label=f"{start} alone")
        axes.set(xscale="log", xlabel="people", title=f"{features}, ε = {epsilon:g}")
        open_corner(axes)
    panels[0, 0].set_ylabel("accuracy by user")
    legend_below(figure, 3)
    return figure
