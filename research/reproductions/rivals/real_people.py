"""Strategies ranked on real people: each tuned on some, trained on others, tried on the rest.

Users are drawn into four groups, once for a file of judgements: *tuning* and *validation*, on which
every strategy chooses one of its settings (`contestants`), *training* and *test*. What tuning costs
its users is not charged: the others' guarantee is that of their run alone. A setting is chosen at
one ε, by one seed, and used at all.

An accuracy is the mean over test users of the share of their judgements that a head is right about,
ties left out; the share of all judgements together (``pooled``) stands beside it. 95 % intervals
are over users and seeds (`clustered`). All pairs of strategies under the same
adjacency, ε and features are compared, and Holm's correction is over all of these comparisons on a
file together. The rule, fixed before the full runs: *above* and *below* where the corrected p-value
is below 0.05, otherwise *level*.

Every run is written down when it is done, and an interrupted command goes on with the others.

Legend: N users of a file, U test users, S seeds, D dimensions.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.accuracy import right_by_user
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.research.reproductions.entry import Reproduction, Row, Rows, distinct, where
from murmuration.research.reproductions.plots import legend_below, open_corner
from murmuration.research.reproductions.rivals.clustered import by_user, clustered, holm
from murmuration.research.reproductions.rivals.contestants import (
    BOUNDS,
    CAPS,
    CENTRED,
    LABELS,
    MOMENT,
    NONPRIVATE,
    RIVALS,
    STEPS,
    ULS,
    USERS,
    Learners,
    Rival,
    Setting,
)
from murmuration.sims.population.population import Population

#: Of a file's users, by group.
SHARES = {"tuning": 0.35, "validation": 0.1, "training": 0.35, "test": 0.2}
LEVEL = 0.05
RUNS = "rivals-runs.jsonl"
_TUNING_SEED = 10_000


@dataclass(frozen=True)
class Plan:
    """Sizes of a comparison.

    Attributes:
        tuned_at: the ε at which settings are chosen.
        settings: the number of each strategy's budget that are tried; 0: all.
    """

    features: Sequence[str] = ("minilm", "hashing", "smollm2")
    epsilons: Sequence[float] = (1.0, 3.0, 8.0)
    seeds: int = 10
    rounds: int = 100
    tuned_at: float = 3.0
    settings: int = 0


def in_groups(users: int) -> dict[str, np.ndarray]:
    """The indices of ``users`` users, ascending, by group."""
    order_N = np.random.default_rng([38, users]).permutation(users)
    ends = np.round(np.cumsum(list(SHARES.values()))[:-1] * users).astype(int)
    return dict(zip(SHARES, map(np.sort, np.split(order_N, ends)), strict=True))


class Runs:
    """Results of runs, in a file of JSON lines under a first line that says what they are of.

    Raises:
        InputError: the file has runs of other judgements or settings.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # a killed run breaks off in one
        if not whole:
            whole = [json.dumps(about) + "\n"]
        if json.loads(whole[0]) != json.loads(json.dumps(about)):
            raise InputError(
                f"{path} has runs of other judgements or settings: give another --out, or remove it"
            )
        path.write_text("".join(whole), encoding="utf-8")
        self._results = dict(map(json.loads, whole[1:]))

    def __contains__(self, key: str) -> bool:
        """True if the result of a run is there."""
        return key in self._results

    def result(self, key: str, run: Callable[[], Any]) -> Any:
        """The result of a run; one that is not there is made, and written down."""
        if key not in self:
            self._results[key] = run()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self._results[key]]) + "\n")
        return self._results[key]


class Contest:
    """The comparison of all strategies on one kind of features of a file's judgements."""

    def __init__(self, judgements: Judgements, features: str, plan: Plan, runs: Runs) -> None:
        self._judgements, self._features, self._plan, self._runs = judgements, features, plan, runs
        self._groups = in_groups(len(judgements.user_ids))

    @cached_property
    def _examples(self) -> dict[str, PairExamples]:
        everybody = pair_examples(self._judgements, feature_map(parse_features(self._features)))
        return {name: everybody.select(users) for name, users in self._groups.items()}

    def setting(self, rival: Rival) -> Setting:
        """The setting that is best on the validation users; the first of equal ones."""
        budget = rival.settings[: self._plan.settings or None]
        accuracies = [self._validated(rival, setting) for setting in budget]
        return budget[int(np.argmax(accuracies))]

    def _validated(self, rival: Rival, setting: Setting) -> float:
        def run() -> float:
            learners = Learners(self._examples["tuning"], self._plan.rounds)
            theta_D = learners.head(rival, setting, self._plan.tuned_at, _TUNING_SEED)
            return self._examples["validation"].accuracy(theta_D).by_user

        key = f"{self._features}, {rival.adjacency}, {rival.name}, tuning {setting}"
        return self._runs.result(key, run)

    def right(self, rival: Rival, epsilon: float) -> np.ndarray:
        """The numbers of test users' judgements on which the trained heads are right, (S, U)."""
        setting = self.setting(rival)
        name = f"{self._features}, {rival.adjacency}, {rival.name}, ε = {epsilon:g}, {setting}"
        return self._tried(name, lambda learners, s: learners.head(rival, setting, epsilon, s))

    def right_without_privacy(self) -> np.ndarray:
        """The same for the non-private twin of uls, (S, U)."""
        return self._tried(f"{self._features}, {NONPRIVATE}", Learners.without_privacy)

    def _tried(self, name: str, head: Callable[[Learners, int], np.ndarray]) -> np.ndarray:
        def run(seed: int) -> list[float]:
            learners = Learners(self._examples["training"], self._plan.rounds)
            return right_about(self._examples["test"], head(learners, seed)).tolist()

        seeds = range(self._plan.seeds)
        return np.array([self._runs.result(f"{name}, seed {s}", partial(run, s)) for s in seeds])


def debate_of(prompt: str) -> str:
    """The debate of a prompt: of UKP without its side."""
    return prompt.partition(" Argue:")[0]


def right_about(examples: PairExamples, theta_D: np.ndarray) -> np.ndarray:
    """The number of each user's judgements that a head is right about, (U,)."""
    logits_R = examples.logits_R(torch.from_numpy(theta_D))
    right_U, _ = right_by_user(
        logits_R, examples.y_R, examples.start_U, examples.kind, examples.width
    )
    return right_U.numpy()


def judged(judgements: Judgements) -> np.ndarray:
    """The number of judgements without ties of each user, (N,)."""
    ends_N = np.concatenate([[0], np.cumsum(judgements.y_R != 0.5)])
    return np.diff(ends_N[judgements.start_U]).astype(np.float64)


def miniature(quick: bool = True) -> Reproduction:
    """Run it in small on the embedded population."""
    del quick  # the only form there is without people
    rows = Population(users=300, median_judgements=6).rows("train")
    plan = Plan(("hashing",), (8.0,), seeds=2, rounds=10, tuned_at=8.0, settings=2)
    with TemporaryDirectory() as folder:
        return compared(Judgements.from_rows(rows), Path(folder, RUNS), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """The comparison on a file of judgements of pairs; runs are recorded in ``out``."""
    return compared(read_judgements(str(data), "btl", "", {}), out / RUNS, Plan())


def compared(judgements: Judgements, path: Path, plan: Plan) -> Reproduction:
    """Rows of accuracies, remarks, and all comparisons among the further results.

    Args:
        judgements: of pairs.
        path: the file that records runs.
        plan: of the comparison.
    """
    test_U = in_groups(len(judgements.user_ids))["test"]
    judged_U = judged(judgements)[test_U]
    runs = Runs(path, {"judgements": digest(judgements), **_about(plan)})
    rows: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    for features in plan.features:
        contest = Contest(judgements, features, plan, runs)
        case = {"features": features, "adjacency": None, "epsilon": None}
        free = contest.right_without_privacy()
        rows.append(_row(case, NONPRIVATE, None, free, judged_U))
        for epsilon, adjacency in itertools.product(plan.epsilons, (USERS, LABELS)):
            case = {"features": features, "adjacency": adjacency, "epsilon": epsilon}
            rivals = [rival for rival in RIVALS if rival.adjacency == adjacency]
            right = {rival.name: contest.right(rival, epsilon) for rival in rivals}
            rows += [
                _row(case, rival.name, contest.setting(rival), right[rival.name], judged_U)
                for rival in rivals
            ]
            pairs += list(_pairs(case, right, judged_U))
    corrected_P = holm(np.array([pair["p"] for pair in pairs]))
    for pair, p in zip(pairs, corrected_P.tolist(), strict=True):
        pair["p_holm"] = p
        above = "above" if pair["difference"] > 0.0 else "below"
        pair["verdict"] = above if p < LEVEL else "level"
    longer = longer_wins(judgements.select(test_U))
    extra = {
        "pairs": pairs,
        "length_baseline": longer.by_user,
        "length_baseline_pooled": longer.pooled,
        "users": {name: len(users) for name, users in in_groups(len(judgements.user_ids)).items()},
        "test_judgements": float(judged_U.sum()),
        "seeds": plan.seeds,
        "rounds": plan.rounds,
        "tuned_at": plan.tuned_at,
    }
    said = [*remarks(rows, pairs), f"Always choosing the longer response: {longer.by_user:.3f}."]
    return Reproduction(rows, said, extra=extra, plot=plot(rows))


def digest(judgements: Judgements) -> str:
    """A digest of the judgements and their users."""
    sums = hashlib.sha256()
    for part in (judgements.user_ids, judgements.prompts, judgements.responses):
        sums.update(json.dumps(list(part)).encode())
    sums.update(judgements.start_U.astype(np.int64).tobytes())
    sums.update(judgements.y_R.astype(np.float64).tobytes())
    return sums.hexdigest()


def _about(plan: Plan) -> dict[str, Any]:
    """The settings that all runs must share; seeds, ε and features may be added."""
    names = ("rounds", "tuned_at", "settings")
    budget = {"bounds": BOUNDS, "steps": STEPS, "caps": CAPS, "shares": SHARES}
    return {name: getattr(plan, name) for name in names} | budget | {"chosen": "by user"}


def _row(
    case: Mapping[str, Any],
    name: str,
    setting: Setting | None,
    right_SU: np.ndarray,
    judged_U: np.ndarray,
) -> dict[str, Any]:
    bound, step = setting or (None, None)
    return {
        **case,
        "strategy": name,
        "bound": bound,
        "step": step,
        **by_user(right_SU, judged_U).columns("accuracy", ""),
        "pooled": clustered(right_SU, judged_U).mean,
    }


def _pairs(
    case: Mapping[str, Any], right: Mapping[str, np.ndarray], judged_U: np.ndarray
) -> Iterator[dict[str, Any]]:
    for first, second in itertools.combinations(right, 2):
        interval = by_user(right[first] - right[second], judged_U)
        pair = {**case, "first": first, "second": second}
        yield {**pair, **interval.columns("difference", ""), "p": interval.p}


def remarks(rows: Rows, pairs: Rows) -> list[str]:
    """Sentences on the best strategies of each case, and how often ours and uls are above or below
    others.
    """
    result = []
    for row in _cases(rows):
        case = {name: row[name] for name in ("features", "adjacency", "epsilon")}
        names = sorted(where(rows, **case), key=lambda one: -one["accuracy"])
        same = where(pairs, **case)
        first = [one for one in names if not _lost_to(same, one["strategy"])]
        rest = [one for one in names if one not in first]
        result.append(
            f"{row['features']}, {row['adjacency']}, ε = {row['epsilon']:g}: nobody is above "
            f"{_listed(first)}; below at least one: {_listed(rest) or 'none'}."
        )
    for name, adjacency in ((CENTRED, USERS), (CENTRED, LABELS), (MOMENT, LABELS), (ULS, USERS)):
        mine = [pair for pair in where(pairs, adjacency=adjacency) if name in _both(pair)]
        lost = [pair for pair in mine if _loser(pair) == name]
        level = where(mine, verdict="level")
        result.append(
            f"{name}, {adjacency}: above a rival in {len(mine) - len(lost) - len(level)} of "
            f"{len(mine)} comparisons, level in {len(level)}, below in {len(lost)}"
            + "".join(
                f"; below {_winner(p)} on {p['features']}, ε = {p['epsilon']:g}" for p in lost
            )
            + "."
        )
    return result


def _cases(rows: Iterable[Row]) -> list[Row]:
    private = [row for row in rows if row["epsilon"] is not None]
    return list({(r["features"], r["adjacency"], r["epsilon"]): r for r in private}.values())


def _both(pair: Row) -> tuple[str, str]:
    return pair["first"], pair["second"]


def _loser(pair: Row) -> str | None:
    return {"above": pair["second"], "below": pair["first"]}.get(pair["verdict"])


def _winner(pair: Row) -> str | None:
    return {"above": pair["first"], "below": pair["second"]}.get(pair["verdict"])


def _lost_to(pairs: Rows, name: str) -> list[str | None]:
    return [_winner(pair) for pair in pairs if _loser(pair) == name]


def _listed(rows: Rows) -> str:
    return ", ".join(f"{row['strategy']} ({row['accuracy']:.3f})" for row in rows)


def plot(rows: Rows) -> Figure:
    """A plot of accuracy against ε with intervals: a row for each features, a column for each
    adjacency.
    """
    private = [row for row in rows if row["epsilon"] is not None]
    features, adjacencies = distinct(private, "features"), distinct(private, "adjacency")
    names = distinct(private, "strategy")
    figure = Figure(figsize=(4.4 * len(adjacencies), 3.0 * len(features) + 0.9))
    figure.set_layout_engine("constrained")
    panels = figure.subplots(len(features), len(adjacencies), squeeze=False, sharey=True)
    for (i, one), (j, adjacency) in itertools.product(enumerate(features), enumerate(adjacencies)):
        axes = panels[i, j]
        for place, name in enumerate(names):
            same = where(private, features=one, adjacency=adjacency, strategy=name)
            at = [k + 0.06 * (place - len(names) / 2) for k in range(len(same))]
            middle = [row["accuracy"] for row in same]
            ends = [[abs(row[end] - row["accuracy"]) for row in same] for end in ("low", "high")]
            style = {"fmt": "o-", "ms": 3, "lw": 0.8, "color": f"C{place}", "label": name}
            axes.errorbar(at, middle, yerr=ends if same else None, **style)
        free = where(rows, features=one, strategy=NONPRIVATE)[0]["accuracy"]
        axes.axhline(free, color="0.5", lw=0.8, ls=":")
        epsilons = distinct(private, "epsilon")
        axes.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_title(f"{one}, {adjacency}", fontsize=10)
        axes.set(xlabel="ε")
        open_corner(axes)
        if j == 0:
            axes.set_ylabel("accuracy on others")
    legend_below(figure, 3)
    return figure
