"""Rewards on debates, and on pairs, that nobody was trained on.

Each debate in turn is left out of what rewards learn from, and other people's judgements of it are
the test: sixteen times, if the folder has ``unseen``, whose debates nobody is trained on anyway.
Likewise each of three parts of the pairs, by a hash. Nothing is chosen: all settings are those of
the other rewards.

Of debates the figure is a mean over debates of means over users, and its 95 % interval is over
debates (Student's t of their means over users and seeds): it speaks of other debates of this kind.
Of pairs the interval is over users and seeds (`clustered`). Differences are taken debate by debate,
and user by user; those from length alone, too.

Legend: J judgements, U test users, S seeds, D dimensions.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean

import numpy as np

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.features.strengths import item_digest
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.research.reproductions.alignment.claims import half_width
from murmuration.research.reproductions.entry import Row, tracked
from murmuration.research.reproductions.rivals.clustered import by_user, clustered
from murmuration.research.reproductions.rivals.real_people import (
    Runs,
    debate_of,
    judged,
    right_about,
)

RUNS = "left-out-runs.jsonl"
DEBATES, PAIRS = "each debate", "each third of pairs"
LENGTH = "length alone"
_LENGTH_FEATURES = "hashing:1"
_THIRDS = 3

#: Trains on examples at an ε (None: without privacy) by a seed, and gives the head, (D,).
Trained = Callable[[PairExamples, float | None, int], np.ndarray]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a comparison.

    Attributes:
        epsilons: None: without privacy.
        debates: that are left out in turn; those that the test judges most.
    """

    features: Sequence[str] = ("hashing", "minilm", "smollm2")
    epsilons: Sequence[float | None] = (3.0, None)
    seeds: int = 5
    debates: int = 16


@dataclass(frozen=True, eq=False)
class Fold:
    """Judgements to train on, and other people's judgements of what is left out of it."""

    name: str
    train: Judgements
    test: Judgements


#: Of each fold, on how many judgements of each test user heads are right, (S, U).
_Right = Sequence[np.ndarray]


def by_debate(people: Mapping[str, Judgements], most: int) -> list[Fold]:
    """A fold for each debate of ``test``, and for those of ``unseen`` that ``test`` has not; those
    with most judgements first."""
    folds: dict[str, Fold] = {}
    learned = np.array([debate_of(prompt) for prompt in people["train"].prompts])
    for group in ("test", "unseen"):
        tested = np.array([debate_of(prompt) for prompt in people[group].prompts])
        for debate in dict.fromkeys(tested.tolist()):
            test = people[group].keep(tested == debate)
            if judged(test).any() and debate not in folds:
                folds[debate] = Fold(debate, people["train"].keep(learned != debate), test)
    return sorted(folds.values(), key=lambda fold: -len(fold.test))[:most]


def by_pair(people: Mapping[str, Judgements]) -> list[Fold]:
    """A fold for each third of the pairs of responses, whichever is shown first."""
    third_of = {group: _third(people[group]) for group in ("train", "test")}
    return [
        Fold(
            f"pairs {part}",
            people["train"].keep(third_of["train"] != part),
            people["test"].keep(third_of["test"] == part),
        )
        for part in range(_THIRDS)
    ]


def _third(judgements: Judgements) -> np.ndarray:
    """The third that each judgement's pair is in, (J,)."""
    names = ["\n".join(sorted(shown)) for shown in judgements.responses]
    return np.array([int(item_digest(name), 16) % _THIRDS for name in names])


def compared(
    people: Mapping[str, Judgements], sizes: Sizes, trained: Trained, runs: Runs
) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows of accuracies, of all differences, and of each debate by itself.

    Args:
        people: judgements by other people in ``train`` than in ``test`` and ``unseen``.
        sizes: of the comparison.
        trained: trains.
        runs: where each run is written down.
    """
    rows: list[Row] = []
    differences: list[Row] = []
    debates: list[Row] = []
    for what, folds in ((DEBATES, by_debate(people, sizes.debates)), (PAIRS, by_pair(people))):
        judged_F = [judged(fold.test) for fold in folds]
        right = _right(folds, sizes, trained, runs, what)
        for epsilon in sizes.epsilons:
            case = {"left_out": what, "epsilon": epsilon}
            right_of = {LENGTH: right[LENGTH, None]}
            right_of |= {name: right[name, epsilon] for name in sizes.features}
            for name, right_F in right_of.items():
                rows.append({**case, "features": name, **_estimate(what, right_F, judged_F)})
            for one, other in itertools.combinations(reversed(right_of), 2):
                gap_F = [
                    first - second
                    for first, second in zip(right_of[one], right_of[other], strict=True)
                ]
                pair = {**case, "first": one, "second": other}
                differences.append({**pair, **_estimate(what, gap_F, judged_F)})
            if what == DEBATES:
                debates += [
                    {"debate": fold.name, "epsilon": epsilon, "users": int((judged_U > 0).sum()),
                     "trained": len(fold.train)}
                    | {name: _share(right_F[at], judged_U) for name, right_F in right_of.items()}
                    for at, (fold, judged_U) in enumerate(zip(folds, judged_F, strict=True))
                ]  # fmt: skip
    return rows, differences, debates


def _right(
    folds: Sequence[Fold], sizes: Sizes, trained: Trained, runs: Runs, what: str
) -> Mapping[tuple[str, float | None], _Right]:
    """For each kind of features and ε: `_Right`."""
    longer_D = np.ones(1, dtype=np.float32)
    right: dict[tuple[str, float | None], list[np.ndarray]] = {
        (LENGTH, None): [
            right_about(_tested(fold, _LENGTH_FEATURES), longer_D)[None] for fold in folds
        ]
    }
    steps = list(itertools.product(sizes.features, folds))
    for features, fold in tracked(steps, what, len(steps)):
        tried = _Tried(fold, features, trained)
        for epsilon in sizes.epsilons:
            name = f"{what}, {fold.name}, {features}, {epsilon}"
            of_seeds = [
                runs.result(f"{name}, {seed}", partial(tried.right, epsilon, seed))
                for seed in range(sizes.seeds)
            ]
            right.setdefault((features, epsilon), []).append(np.array(of_seeds))
    return right


@dataclass(frozen=True, eq=False)
class _Tried:
    """A fold whose features are computed when the first head is trained."""

    fold: Fold
    features: str
    trained: Trained

    @cached_property
    def _learned(self) -> PairExamples:
        return pair_examples(self.fold.train, feature_map(parse_features(self.features)))

    @cached_property
    def _tested(self) -> PairExamples:
        return _tested(self.fold, self.features)

    def right(self, epsilon: float | None, seed: int) -> list[float]:
        return right_about(self._tested, self.trained(self._learned, epsilon, seed)).tolist()


def _tested(fold: Fold, features: str) -> PairExamples:
    return pair_examples(fold.test, feature_map(parse_features(features)))


def _share(right_SU: np.ndarray, judged_U: np.ndarray) -> float:
    """The mean over users and seeds of each user's share."""
    there_U = judged_U > 0
    return float((right_SU[:, there_U] / judged_U[there_U]).mean())


def _estimate(what: str, right_F: _Right, judged_F: Sequence[np.ndarray]) -> Row:
    """Accuracy by user (or a difference of two) with its interval, and pooled."""
    if what == PAIRS:  # the same users in each fold
        right_SU, judged_U = np.sum(right_F, axis=0), np.sum(judged_F, axis=0)
        ends = by_user(right_SU, judged_U).columns("accuracy")
        return ends | {"pooled": clustered(right_SU, judged_U).mean, "folds": len(right_F)}
    shares = list(map(_share, right_F, judged_F))
    wide = half_width(shares)
    mean = fmean(shares)
    ends = {"accuracy": mean, "accuracy_low": mean - wide, "accuracy_high": mean + wide}
    pooled = fmean(
        float(right_SU.sum() / judged_U.sum() / len(right_SU))
        for right_SU, judged_U in zip(right_F, judged_F, strict=True)
    )
    return ends | {"pooled": pooled, "folds": len(right_F)}
