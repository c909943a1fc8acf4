"""One reward, rewards of one's own, groups: what people gain who let others predict them.

Users are drawn into three groups, once for a file of judgements: *training*, *tuning* and *test*.
Every learner takes the best of as many settings on the tuning users, at no charge; the others'
guarantee is that of their run alone. At most ``MOST`` judgements of a user count, and those who
tune and test have at least ``LEAST``. They are divided in two halves that share no response, as
`preference.linear.tastes.halves` does it: what a learner knows of a user is one half, and the other
is predicted; then the other way round. Judgements in neither half are left out, for all alike.

- *one reward*: of uls, for everybody.
- *local steps*: the same, tuned further on a user's half (`preference.linear.fine_tuning`).
- *groups*: K rewards, and each user has the one that does best on their half: the iterative
  federated clustering of Ghosh et al. 2020 with a clipped sum, so at the ε of a run with as many
  tastes. Training starts where tastes do, at public signs.
- *tastes*: ``--tastes K``.

Accuracy is the mean over test users of the share of their judgements that is right, and intervals
are by user and by seed (`clustered`). The rule, fixed before the full runs: *gains* or *loses*
against one reward of the same ε where the interval of the difference leaves out zero, else *level*.

Legend: U users, J judgements of one, S seeds, D dimensions, K rewards, N sampled judgements.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.basis_start import start_KD
from murmuration.preference.linear.examples import PairExamples, pairs_with_texts
from murmuration.preference.linear.fine_tuning import fine_tuned
from murmuration.preference.linear.gradients import chunk_cuts
from murmuration.preference.linear.half_predictions import Own, right_by_halves
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.linear.tastes import (
    NEITHER,
    TasteExamples,
    halves,
    own_weights,
)
from murmuration.preference.models import PreferenceModel
from murmuration.privacy.mechanisms.numba_jit import kernel
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Training
from murmuration.research.reproductions.entry import Reproduction, Rows, in_processes, tracked
from murmuration.research.reproductions.rivals.clustered import Interval, clustered
from murmuration.strategies.config import RunConfig
from murmuration.strategies.optimizers import ServerOptimizer
from murmuration.strategies.settings.sampling import usual_cohort

#: Of a file's users, by group; the rest are trained on.
TUNING, TEST = 0.15, 0.25
LEAST, MOST = 10, 20
DELTA = 1e-5
ONE, LOCAL, GROUPS, TASTES = "one reward", "local steps", "groups", "tastes"
#: Multiples of the default step size of training; step sizes of a user's own; rewards.
RATES, STEPS, MANY = (1.0, 3.0, 9.0), (0.03, 0.1, 0.3, 1.0, 3.0), (2, 4)


@dataclass(frozen=True)
class Plan:
    """Sizes of a comparison; ε None: without privacy."""

    features: Sequence[str] = ("minilm", "hashing", "smollm2")
    epsilons: Sequence[float | None] = (3.0, None)
    seeds: int = 5
    rounds: int = 200
    rates: Sequence[float] = RATES


@dataclass(frozen=True, eq=False)
class People:
    """Users with halves of their judgements."""

    pairs: PairExamples
    half_J: np.ndarray

    def select(self, users_S: np.ndarray) -> "People":
        """Return some of them."""
        examples = TasteExamples(self.pairs, 2, self.half_J).select(users_S)
        return People(examples.pairs, examples.half_J)

    def right_U(self, own: Own) -> np.ndarray:
        """Return of which share of what is predicted a learner is right; NaN of nothing."""
        return right_by_halves(self.pairs, self.half_J, own)


def people_of(judgements: Judgements, features: str) -> tuple[People, np.ndarray]:
    """Return users with at most ``MOST`` judgements each, drawn, and who has at least ``LEAST``."""
    judgements = judgements.keep(judgements.y_R != 0.5)
    generator = np.random.default_rng([39, len(judgements)])
    kept_R = np.zeros(len(judgements), dtype=bool)
    for first, end in itertools.pairwise(judgements.start_U.tolist()):
        kept_R[first + generator.permutation(end - first)[:MOST]] = True
    judgements = judgements.keep(kept_R)
    pairs, text_JK = pairs_with_texts(judgements, feature_map(parse_features(features)))
    people = People(pairs, halves(text_JK, pairs.start_U.numpy()))
    return people, judgements.counts_U >= LEAST


def groups_of(judgements: Judgements, features: str) -> dict[str, People]:
    """Return the users of each group."""
    people, ample_U = people_of(judgements, features)
    return {group: people.select(users) for group, users in in_groups(ample_U).items()}


def in_groups(ample_U: np.ndarray) -> dict[str, np.ndarray]:
    """Return places of users by group; those who tune and test are drawn of the ``ample_U``."""
    drawn = np.random.default_rng([39, len(ample_U)]).permutation(np.flatnonzero(ample_U))
    tuning, test = (round(share * len(drawn)) for share in (TUNING, TEST))
    chosen = {"tuning": np.sort(drawn[:tuning]), "test": np.sort(drawn[tuning : tuning + test])}
    rest = np.setdiff1d(np.arange(len(ample_U)), np.concatenate([*chosen.values()]))
    return {"training": rest, **chosen}


@dataclass(frozen=True, eq=False)
class GroupExamples(TasteExamples):
    """Pairs by which K rewards are learned, of which each user has one."""

    @cached_property
    def _start_KD(self) -> np.ndarray:
        return start_KD(self.tastes + 1, self.pairs.dimension)[1:]

    def _work(
        self,
        theta_E: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        local: LocalSteps,
    ) -> tuple[Callable[[int], torch.Tensor], int]:
        del model, local
        basis_KD, ends_S = self.basis_KD(theta_E), np.cumsum(taken_S.numpy())
        cuts = chunk_cuts(taken_S.numpy(), 4 * self.dimension)
        x_RD, y_R = self.pairs.x_RD.numpy(), self.pairs.y_R.numpy()

        def update(chunk: int) -> torch.Tensor:
            users = slice(cuts[chunk], cuts[chunk + 1])
            first = int(ends_S[users.start - 1]) if users.start else 0
            out_BKD = np.zeros((users.stop - users.start, *basis_KD.shape), np.float32)
            _of_groups(x_RD, y_R, taken_N.numpy()[first:], ends_S[users] - first, basis_KD, out_BKD)
            return torch.from_numpy(out_BKD.reshape(len(out_BKD), -1))

        return update, len(cuts) - 1


@kernel()
def _of_groups(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    taken_N: np.ndarray,
    ends_B: np.ndarray,
    basis_KD: np.ndarray,
    out_BKD: np.ndarray,
) -> None:
    """Each user's gradient of the reward that `nearest` names, the others' being zero."""
    rewards, dimension = basis_KD.shape
    for b in range(len(ends_B)):
        rows = taken_N[(ends_B[b - 1] if b else 0) : ends_B[b]]
        logits, best, mine = np.empty((rewards, len(rows))), np.inf, 0
        for k in range(rewards):
            loss = 0.0
            for m in range(len(rows)):
                dot = 0.0
                for d in range(dimension):
                    dot += x_RD[rows[m], d] * basis_KD[k, d]
                logits[k, m] = dot
                loss += max(dot, 0.0) + np.log1p(np.exp(-abs(dot))) - y_R[rows[m]] * dot
            if loss < best:
                best, mine = loss, k
        for m in range(len(rows)):
            p = 1.0 / (1.0 + np.exp(-logits[mine, m]))
            weight = (p - y_R[rows[m]]) / len(rows)
            for d in range(dimension):
                out_BKD[b, mine, d] += weight * x_RD[rows[m], d]


def nearest(basis_KD: np.ndarray, x_MD: np.ndarray, y_M: np.ndarray) -> int:
    """Return which of K rewards has the least log loss on some judgements."""
    logits_MK = x_MD @ basis_KD.T
    losses_MK = np.logaddexp(0.0, logits_MK) - y_M[:, None] * logits_MK
    return int(losses_MK.sum(0).argmin())


def settings_of(name: str, rates: Sequence[float]) -> list[tuple[int, float, float]]:
    """Return what a learner may choose among: K, a multiple of the step size, and a step of one's
    own."""
    many = MANY if name in (GROUPS, TASTES) else (1,)
    own = STEPS if name == LOCAL else (0.0,)
    return list(itertools.product(many, rates, own))


def learned(
    name: str, people: People, k: int, rate: float, epsilon: float | None, rounds: int, seed: int
) -> np.ndarray:
    """Return the rewards of one run, (K, D)."""
    examples: Any = people.pairs
    if name in (GROUPS, TASTES):
        kind = GroupExamples if name == GROUPS else TasteExamples
        examples = kind(people.pairs, k, people.half_J)
    training = Training(examples, Randomness(seed))
    config = RunConfig.from_run_config(
        {
            "strategy": "uls" if epsilon else "nonprivate",
            "epsilon": epsilon or 1.0,
            "delta": DELTA,
            "adjacency": "add-remove",
            "test": "other users",
            "rounds": rounds,
            "cohort": usual_cohort(len(people.pairs.counts_U)),
            "seed": seed,
        }
    )
    with training.begun(config) as (strategy, _):
        usual = cast(ServerOptimizer, strategy.optimizer).rate()
    strategy, _ = training.run(config.changed(learning_rate=rate * usual))
    theta_E = strategy.optimizer.result_D
    return theta_E[None] if examples is people.pairs else examples.basis_KD(theta_E)


def own_reward(name: str, basis_KD: np.ndarray, step: float) -> Own:
    """Return how a learner makes a user's own reward of what it learned."""

    def own(x_MD: np.ndarray, y_M: np.ndarray) -> np.ndarray:
        if name == LOCAL:
            return fine_tuned(basis_KD[0], x_MD, y_M, step)
        if name == GROUPS:
            return basis_KD[nearest(basis_KD, x_MD, y_M)]
        if name == TASTES:
            return basis_KD[0] + own_weights(x_MD, y_M, basis_KD) @ basis_KD[1:]
        return basis_KD[0]

    return own


#: The people, the plan, what learns, and its ε.
Task = tuple[Mapping[str, People], Plan, str, float | None]


def one_learner(task: Task) -> tuple[tuple[int, float, float], np.ndarray]:
    """Return the setting that is best on the tuning users, and what share of each test user's
    judgements each seed is right about, (S, U)."""
    groups, plan, name, epsilon = task

    def rewards(k: int, rate: float, seed: int) -> np.ndarray:
        return learned(name, groups["training"], k, rate, epsilon, plan.rounds, seed)

    budget = settings_of(name, plan.rates)
    tuned = {pair: rewards(*pair, seed=10_000) for pair in {each[:2] for each in budget}}
    reached = [
        np.nanmean(groups["tuning"].right_U(own_reward(name, tuned[k, rate], step)))
        for k, rate, step in budget
    ]
    k, rate, step = best = budget[int(np.argmax(reached))]
    right = [
        groups["test"].right_U(own_reward(name, rewards(k, rate, seed), step))
        for seed in range(plan.seeds)
    ]
    return best, np.stack(right)


def compared(judgements: Judgements, plan: Plan, workers: int | None = None) -> Reproduction:
    """Return rows ``features, epsilon, learner, K, rate, step, accuracy`` and its interval, the
    gain over one reward with its interval, the share of test users who are worse off by it, the
    mean gain of the tenth that loses most, and the verdict."""
    names = (ONE, LOCAL, GROUPS, TASTES)
    groups = {features: groups_of(judgements, features) for features in plan.features}
    cases = [*itertools.product(plan.features, plan.epsilons, names)]
    tasks = [(groups[features], plan, name, epsilon) for features, epsilon, name in cases]
    trained = tracked(in_processes(one_learner, tasks, workers), "training", len(tasks))
    results = dict(zip(cases, trained, strict=True))
    rows = []
    for features, epsilon, name in cases:
        (k, rate, step), right_SU = results[features, epsilon, name]
        _, crowd_SU = results[features, epsilon, ONE]
        gain = _by_user(right_SU - crowd_SU)
        gain_U = np.sort((right_SU - crowd_SU).mean(0)[~np.isnan(right_SU[0])])
        case = {"features": features, "epsilon": epsilon, "learner": name}
        rows.append(
            {
                **case,
                "K": k,
                "rate": rate,
                "step": step,
                **_columns("accuracy", _by_user(right_SU)),
                **_columns("gain", gain),
                "worse_off": float((gain_U < 0.0).mean()),
                "worst_tenth": float(gain_U[: max(1, len(gain_U) // 10)].mean()),
                "verdict": _verdict(gain) if name != ONE else "",
            }
        )
    extra = {"seeds": plan.seeds, "rounds": plan.rounds, **_sizes(groups[plan.features[0]])}
    return Reproduction(rows, remarks(rows), extra=extra)


def _by_user(share_SU: np.ndarray) -> Interval:
    there_U = ~np.isnan(share_SU[0])
    return clustered(share_SU[:, there_U], np.ones(int(there_U.sum())))


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _verdict(gain: Interval) -> str:
    if gain.low > 0.0:
        return "gains"
    return "loses" if gain.high < 0.0 else "level"


def _sizes(groups: Mapping[str, People]) -> dict[str, Any]:
    test = groups["test"]
    return {
        "users": {name: len(people.pairs.counts_U) for name, people in groups.items()},
        "test_judgements": len(test.half_J),
        "in_halves": float((test.half_J != NEITHER).mean()),
        "predicted_users": int((~np.isnan(test.right_U(lambda x_MD, y_M: x_MD[0]))).sum()),
    }


def remarks(rows: Rows) -> list[str]:
    """Return what each learner gains over one reward, by features and ε."""
    result = []
    for row in rows:
        if row["learner"] == ONE:
            continue
        at = f"ε = {row['epsilon']:g}" if row["epsilon"] else "no privacy"
        result.append(
            f"{row['features']}, {at}, {row['learner']}: {row['verdict']}, "
            f"{100 * row['gain']:+.1f} points [{100 * row['gain_low']:+.1f}, "
            f"{100 * row['gain_high']:+.1f}]; {row['worse_off']:.0%} of users are worse off."
        )
    return result


def of_people(data: Path, out: Path) -> Reproduction:
    """Return the comparison on a file of judgements of pairs."""
    del out
    return compared(read_judgements(str(data), "btl", "", {}), Plan())
