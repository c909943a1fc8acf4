"""A strength for each argument beside words and an encoder, on judgements of real people.

`train` and `test` in a folder are judgements by different people, as examples/ukp_judgements.py
writes them. The public list is all responses of both: a published corpus. ``uls`` trains, all else
than its step a run's default; without privacy logistic regression on all judgements does. Of some
multiples of the default step (of some inverses of a ridge) the one with the highest accuracy by
user on a fifth of the training's users, when the others are trained on, is used with everybody. It
is chosen at each ε, by one seed, and is not charged.

Test users judge nearly the same pairs as those who are trained on. So four tests are made of their
judgements: all; those of a third of the pairs, which nobody is trained on; those of a third of the
debates, which nobody is trained on, with a list that names these arguments, too, whose strengths
are then noise alone; and the same with a list that does not, so that they have none.

Accuracies are means over test users, and beside them shares of judgements; 95 % intervals are over
users and seeds (`clustered`), of differences, too. Every run is written down when it is done.

Legend: J judgements, U test users, S seeds, D dimensions.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.features.strengths import (
    STRENGTHS,
    Strengths,
    item_digest,
    text_features,
)
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.research.reproductions.entry import Reproduction, Rows, where
from murmuration.research.reproductions.rivals.clustered import by_user, clustered
from murmuration.research.reproductions.rivals.contestants import RIVALS, Learners
from murmuration.research.reproductions.rivals.real_people import (
    Runs,
    debate_of,
    digest,
    judged,
    right_about,
)
from murmuration.sims.population.population import Population

RUNS = "strengths-runs.jsonl"
#: What the test's judgements are about that nobody is trained on.
PEOPLE, PAIRS, DEBATES = "other people", "other pairs", "other debates"
LISTED = "other debates, listed"
_LEFT_OUT = 3  # one of so many pairs, or debates
_VALIDATION = 5  # one of so many users of the training
_TUNING_SEED = 10_000
_ULS = RIVALS[0]


@dataclass(frozen=True)
class Plan:
    """Sizes of a comparison.

    Attributes:
        steps: multiples of the default, of which one is chosen.
        inverse_ridges: of which one is chosen without privacy.
        epsilons: None: without privacy, which has one seed.
        of_splits: the same, where pairs or debates are left out.
    """

    features: Sequence[str] = ("strengths", "strengths+minilm", "hashing", "minilm")
    epsilons: Sequence[float | None] = (1.0, 3.0, 8.0, None)
    of_splits: Sequence[float | None] = (3.0, None)
    steps: Sequence[float] = (1.0, 3.0, 9.0)
    inverse_ridges: Sequence[float] = (1.0, 9.0, 81.0)
    seeds: int = 5
    rounds: int = 200


def miniature(quick: bool = True) -> Reproduction:
    """Run it in small on the embedded population."""
    del quick  # the only form there is without people
    crowd = Judgements.from_rows(Population(users=200, median_judgements=4).rows("train"))
    train, test = crowd.select(range(160)), crowd.select(range(160, 200))
    plan = Plan(
        ("strengths", "strengths+hashing"), (8.0, None), (8.0,), (1.0,), (1.0,), seeds=2, rounds=10
    )
    with TemporaryDirectory() as folder:
        return compared(train, test, Path(folder, RUNS), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """The comparison on the files of a folder; runs are recorded in ``out``."""
    train, test = (read_part(data, part) for part in ("train", "test"))
    return compared(train, test, out / RUNS, Plan())


def read_part(folder: Path, part: str) -> Judgements:
    """The judgements of a file in a folder: PART.jsonl, or PART.jsonl.gz."""
    names = (f"{part}.jsonl", f"{part}.jsonl.gz")
    there = [str(folder / name) for name in names if (folder / name).exists()]
    return read_judgements((there or [str(folder / names[0])])[0], "btl", "", {})


def compared(train: Judgements, test: Judgements, path: Path, plan: Plan) -> Reproduction:
    """Rows of accuracies, remarks, and all differences among the further results."""
    assert not {*train.user_ids} & {*test.user_ids}
    runs = Runs(path, {"train": digest(train), "test": digest(test), "rounds": plan.rounds,
                       "steps": plan.steps})  # fmt: skip
    items = items_of(train, test)
    splits = {PEOPLE: (train, test, items)}
    for name in (PAIRS, LISTED):
        trained = train.keep(~left_out(train, name))
        splits[name] = trained, test.keep(left_out(test, name)), items
    trained, tested, _ = splits[LISTED]
    splits[DEBATES] = trained, tested, items_of(trained)
    right = dict(_right(splits, runs, plan))
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for name, epsilon in dict.fromkeys((name, epsilon) for name, _, epsilon in right):
        judged_U, case = judged(splits[name][1]), {"split": name, "epsilon": epsilon}
        for features in plan.features:
            step, right_SU = right[name, features, epsilon]
            row = {**case, "features": features, "step": step}
            rows.append({**row, **_accuracies(right_SU, judged_U)})
        for one, other in itertools.combinations(plan.features, 2):
            gap_SU = right[name, one, epsilon][1] - right[name, other, epsilon][1]
            pair = {**case, "first": one, "second": other}
            differences.append({**pair, **_accuracies(gap_SU, judged_U)})
    about = {
        name: {
            "trained": len(trained),
            "tested": int(judged(tested).sum()),
            "test_users": int((judged(tested) > 0).sum()),
            "longer_by_user": longer_wins(tested).by_user,
            "longer_pooled": longer_wins(tested).pooled,
            "items": len(listed),
        }
        for name, (trained, tested, listed) in splits.items()
    }
    extra = {"differences": differences, "splits": about}
    return Reproduction(rows, remarks(rows, differences, about), extra=extra)


def left_out(judgements: Judgements, split: str) -> np.ndarray:
    """Which judgements are of the third of pairs, or of debates, that nobody is trained on, by a
    hash, (J,) bool.
    """
    if split == PAIRS:
        names = ["\n".join(sorted(shown)) for shown in judgements.responses]
    else:
        names = [debate_of(prompt) for prompt in judgements.prompts]
    return np.array([int(item_digest(name), 16) % _LEFT_OUT == 0 for name in names], dtype=bool)


def items_of(*judgements: Judgements) -> tuple[str, ...]:
    """The public list of a corpus: all its responses, sorted by their digests."""
    texts = {text for each in judgements for shown in each.responses for text in shown}
    return tuple(sorted({item_digest(text) for text in texts}))


Case = tuple[str, str, float | None]
Splits = Mapping[str, tuple[Judgements, Judgements, tuple[str, ...]]]


def _right(
    splits: Splits, runs: Runs, plan: Plan
) -> Iterator[tuple[Case, tuple[float, np.ndarray]]]:
    """Yield for each case the chosen step, and on how many judgements of each test user the heads
    are right, (S, U)."""
    everybody, _, items = splits[PEOPLE]
    chosen = {
        features: _chosen(pair_examples(everybody, _map(features, items)), features, runs, plan)
        for features in plan.features
    }
    for name, features in itertools.product(splits, plan.features):
        train, test, items = splits[name]
        phi = _map(features, items)
        learners = Learners(pair_examples(train, phi), plan.rounds)
        tested = pair_examples(test, phi)
        for epsilon in plan.epsilons if name == PEOPLE else plan.of_splits:
            step = chosen[features][epsilon]
            case = f"{name}, {features}, {epsilon}, {step}"
            right = [
                runs.result(f"{case}, {s}", partial(_about, tested, learners, epsilon, step, s))
                for s in range(plan.seeds if epsilon else 1)
            ]
            yield (name, features, epsilon), (step, np.array(right))


def _map(features: str, items: tuple[str, ...]) -> Any:
    strengths, texts = text_features(features)
    if not strengths:
        return feature_map(parse_features(features))
    return Strengths(items, feature_map(parse_features(texts or "hashing:1")))


def _chosen(
    examples: PairExamples, features: str, runs: Runs, plan: Plan
) -> dict[float | None, float]:
    """The step at each ε that is best by user on a fifth of the users; the first of equal ones."""
    order_N = np.random.default_rng(65).permutation(len(examples.counts_U))
    validation, tuning = np.split(order_N, [len(order_N) // _VALIDATION])
    learners = Learners(examples.select(np.sort(tuning)), plan.rounds)
    tested = examples.select(np.sort(validation))
    result = {}
    for epsilon in plan.epsilons:
        tried = plan.steps if epsilon else plan.inverse_ridges
        accuracies = [
            runs.result(
                f"{features}, {epsilon}, tuning {step}",
                partial(_validated, tested, learners, epsilon, step),
            )
            for step in tried
        ]
        result[epsilon] = tried[int(np.argmax(accuracies))]
    return result


def _about(
    tested: PairExamples, learners: Learners, epsilon: float | None, step: float, seed: int
) -> list[float]:
    return right_about(tested, _head(learners, epsilon, step, seed)).tolist()


def _validated(
    tested: PairExamples, learners: Learners, epsilon: float | None, step: float
) -> float:
    return tested.accuracy(_head(learners, epsilon, step, _TUNING_SEED)).by_user


def _head(learners: Learners, epsilon: float | None, step: float, seed: int) -> np.ndarray:
    if epsilon is None:
        return likeliest(learners.examples, step)
    return learners.head(_ULS, (1.0, step), epsilon, seed)


def likeliest(examples: PairExamples, inverse_ridge: float) -> np.ndarray:
    """The head of logistic regression on all judgements without ties, (D,)."""
    from sklearn.linear_model import LogisticRegression

    decided = examples.y_R != 0.5
    x_JD = examples.x_RD[decided].numpy()
    turn_J = np.where(np.arange(len(x_JD)) % 2, 1.0, -1.0).astype(np.float32)
    fit = LogisticRegression(C=inverse_ridge, fit_intercept=False, max_iter=300)
    fit.fit(x_JD * turn_J[:, None], turn_J > 0)
    return fit.coef_[0].astype(np.float32)


def _accuracies(right_SU: np.ndarray, judged_U: np.ndarray) -> dict[str, float]:
    """Means and intervals by user, and pooled."""
    pooled = clustered(right_SU, judged_U)
    return by_user(right_SU, judged_U).columns("by_user") | pooled.columns("pooled")


def remarks(rows: Rows, differences: Rows, about: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Where strengths are above and below the others by user, and what length alone is right
    about."""
    result = []
    for name, split in about.items():
        result.append(
            f"{name}: the longer response is right in {100 * split['longer_by_user']:.1f} % by "
            f"user, {100 * split['longer_pooled']:.1f} pooled; {split['tested']:,} judgements of "
            f"{split['test_users']} users."
        )
        for row in where(differences, split=name):
            ends = [100 * row[end] for end in ("by_user", "by_user_low", "by_user_high")]
            if row["first"].startswith(STRENGTHS):
                result.append(
                    f"{name}, ε = {row['epsilon'] or '∞'}: {row['first']} less {row['second']} "
                    "{:+.1f} ({:+.1f} to {:+.1f}) points by user.".format(*ends)
                )
    return result
