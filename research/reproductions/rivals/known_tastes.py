"""Tastes that are known: how well a basis finds them, by users, by ε and by rows too many.

Camps of the embedded population (`sims.population`), in which users differ in nothing but signs of
their own on one known direction, or on two, and in the chances of their answers. Features are
hashed words, so the truth is no vector of weights: what is compared is what is said of pairs of
answers. Over the pairs that test users saw, the *cosine* is that between what a true direction says
and the nearest that the rows of the basis can say together, the least over directions within what
is true: it is one where the truth is found up to rotation, whatever the rows are called.

Accuracy is the mean over test users, of the crowd's reward and of each user's own, which one half
of their judgements gives and the other is predicted with; and of what an owner's agent tells of it
at some ε of its own (`client.agent.own_scores`). The step size is the best of three on
other users, without charge.

Legend: N pairs, V directions, K = V + 1 rows where as many are learned as there are, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.client.agent.own_scores import CLIP
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import pairs_with_texts
from murmuration.preference.linear.half_predictions import Own
from murmuration.preference.linear.tastes import halves, own_weights
from murmuration.privacy.mechanisms.discrete_laplace import LocalLaplace
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    in_processes,
    mean_sd,
    tracked,
)
from murmuration.research.reproductions.rivals.tastes import (
    MOST,
    ONE,
    RATES,
    TASTES,
    People,
    learned,
    own_reward,
)
from murmuration.sims.population.population import TASTES as DIRECTIONS
from murmuration.sims.population.population import Judgement, Population, attainable


@dataclass(frozen=True)
class Case:
    """One setting: known directions, users to train on, ε (None: no privacy), and rows."""

    directions: int = 1
    users: int = 2000
    epsilon: float | None = 3.0
    rows: int = 2


@dataclass(frozen=True)
class Sizes:
    """Settings, and how large a rerun is."""

    cases: Sequence[Case]
    test_users: int = 500
    seeds: int = 3
    rounds: int = 200
    rates: Sequence[float] = RATES
    dimension: int = 1024


USUAL = Case()
#: What an agent's answers may cost.
SCORE_EPSILONS = (1.0, 3.0, 8.0)
USERS, EPSILONS, MANY = (500, 2000, 8000), (1.0, 3.0, None), (1, 2, 4, 8)
FULL = Sizes(
    [
        *(replace(USUAL, users=users) for users in USERS),
        *(replace(USUAL, epsilon=epsilon) for epsilon in EPSILONS if epsilon != USUAL.epsilon),
        *(replace(USUAL, rows=rows) for rows in MANY if rows != USUAL.rows),
        *(Case(2, epsilon=epsilon, rows=3) for epsilon in (3.0, None)),
    ]
)
QUICK = Sizes([Case(users=150, epsilon=None)], 60, 2, 20, (9.0,), 256)


@dataclass(frozen=True, eq=False)
class Known:
    """Users with halves of their judgements, and what true directions say of these, (N, V)."""

    people: People
    truth_NV: np.ndarray
    ceiling: tuple[float, float]


def known(case: Case, split: str, first: int, users: int, dimension: int) -> Known:
    """Return so many users of a split's, from one on, with at most ``MOST`` judgements each."""
    population = Population(
        users=first + users,
        test_users=first + users,
        median_judgements=14,
        tastes=case.directions + 1,
        camps=True,
    )
    seen: list[Judgement] = []
    by_user = groupby(population.judgements(split), lambda one: one.user_id)
    for _, judged in islice(by_user, first, None):
        seen += islice((one for one in judged if not one.tie), MOST)
    judgements = Judgements.from_rows([one.row() for one in seen])
    pairs, text_JK = pairs_with_texts(judgements, HashingFeatures(dimension=dimension))
    differences = np.array([np.subtract(one.chosen.axes, one.rejected.axes) for one in seen])
    truth_NV = differences @ np.array(DIRECTIONS[: case.directions]).T
    reached = attainable(seen)
    people = People(pairs, halves(text_JK, pairs.start_U.numpy()))
    return Known(people, truth_NV, (reached.crowd, reached.personal))


def cosine(said_NR: np.ndarray, truth_NV: np.ndarray) -> float:
    """Return the least cosine of a combination of true directions with the nearest of what rows
    say; 0.0 where there is no row."""
    if said_NR.shape[1] < truth_NV.shape[1]:
        return 0.0
    one, other = (np.linalg.qr(each)[0] for each in (said_NR, truth_NV))
    return float(np.linalg.svd(one.T @ other)[1].min())


def one_case(task: tuple[Case, Sizes]) -> dict[str, Any]:
    """Return the row of a case."""
    case, sizes = task
    train = known(case, "train", 0, case.users, sizes.dimension).people
    tuning = known(case, "test", sizes.test_users, sizes.test_users // 2, sizes.dimension).people
    test = known(case, "test", 0, sizes.test_users, sizes.dimension)
    name = TASTES if case.rows > 1 else ONE

    def basis_at(rate: float, seed: int) -> np.ndarray:
        return learned(name, train, case.rows, rate, case.epsilon, sizes.rounds, seed)

    def accuracy(people: People, own: Own) -> float:
        return float(np.nanmean(people.right_U(own)))

    def reward(learner: str, basis_KD: np.ndarray) -> Own:
        return own_reward(learner, basis_KD, 0.0)

    reached = [accuracy(tuning, reward(name, basis_at(rate, 10_000))) for rate in sizes.rates]
    rate = sizes.rates[int(np.argmax(reached))]
    bases = [basis_at(rate, seed) for seed in range(sizes.seeds)]
    x_ND = test.people.pairs.x_RD.numpy()
    crowd, personal = ([accuracy(test.people, reward(n, b)) for b in bases] for n in (ONE, name))
    randomized = {
        epsilon: [
            accuracy(test.people, randomized_reward(basis, epsilon, seed))
            for seed, basis in enumerate(bases)
        ]
        for epsilon in SCORE_EPSILONS
    }
    return {
        **vars(case),
        "rate": rate,
        **mean_sd("cosine", [cosine(x_ND @ basis[1:].T, test.truth_NV) for basis in bases]),
        **mean_sd("crowd", crowd),
        **mean_sd("personal", personal),
        **{
            name: value
            for at in randomized
            for name, value in mean_sd(f"randomized_{at:g}", randomized[at]).items()
        },
        "crowd_ceiling": test.ceiling[0],
        "personal_ceiling": test.ceiling[1],
    }


def randomized_reward(basis_KD: np.ndarray, epsilon: float, seed: int) -> Own:
    """Return how an agent's answers at this ε come of a user's judgements."""
    mechanism = LocalLaplace(CLIP, epsilon)
    coins = Randomness(seed).stream("own weights")

    def own(x_MD: np.ndarray, y_M: np.ndarray) -> np.ndarray:
        randomized_V = mechanism.randomized(own_weights(x_MD, y_M, basis_KD), coins)
        return basis_KD[0] + mechanism.shrunk(randomized_V) @ basis_KD[1:]

    return own


def known_tastes(quick: bool) -> Reproduction:
    """Return a row for each case, and a plot by users, ε and rows."""
    sizes = QUICK if quick else FULL
    tasks = [(case, sizes) for case in sizes.cases]
    trained = in_processes(one_case, tasks, 1 if quick else None)
    rows = [*tracked(trained, "training", len(tasks))]
    extra = {"seeds": sizes.seeds, "rounds": sizes.rounds, "test_users": sizes.test_users}
    return Reproduction(rows, remarks(rows), extra=extra, plot=plot(rows))


def remarks(rows: Rows) -> list[str]:
    """Return what each case comes to."""
    result = []
    for row in rows:
        at = "no privacy" if row["epsilon"] is None else f"ε = {row['epsilon']:g}"
        result.append(
            f"{row['directions']} known, {row['users']} users, {at}, K = {row['rows']}: cosine "
            f"{row['cosine_mean']:.2f}; the crowd's reward {row['crowd_mean']:.1%} (of "
            f"{row['crowd_ceiling']:.1%}), users' own {row['personal_mean']:.1%} (of "
            f"{row['personal_ceiling']:.1%}); as an agent tells them at ε = "
            + ", ".join(f"{at:g} {row[f'randomized_{at:g}_mean']:.1%}" for at in SCORE_EPSILONS)
            + "."
        )
    return result


def plot(rows: Rows) -> Figure:
    """Draw cosine and accuracies of one direction by users, by ε and by rows."""
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots(2, 3, sharey="row", squeeze=False)
    usual = vars(USUAL)
    lines = {
        "cosine": "the true direction",
        "crowd": "the crowd's reward",
        "personal": "each user's own",
        "randomized_3": "as an agent tells it, ε = 3",
    }
    labels = {"users": "users", "epsilon": "ε (∞: no privacy)", "rows": "rows K"}
    for column, (by, label) in enumerate(labels.items()):
        alike = {name: value for name, value in usual.items() if name != by}
        chosen = [row for row in rows if all(row[n] == v for n, v in alike.items())] or [*rows]
        chosen.sort(key=lambda row: float("inf") if row[by] is None else row[by])
        names = ["∞" if row[by] is None else f"{row[by]:g}" for row in chosen]
        for line, names_of in enumerate(([*lines][:1], [*lines][1:])):
            axis = axes[line][column]
            for name in names_of:
                middle = [row[f"{name}_mean"] for row in chosen]
                spread = [row[f"{name}_sd"] or 0.0 for row in chosen]
                axis.errorbar(names, middle, spread, label=lines[name])
            axis.set_xlabel(label)
            axis.grid(alpha=0.3)
        ceiling = chosen[0]["personal_ceiling"]
        axes[1][column].axhline(ceiling, ls=":", color="grey", label="true own rewards")
    axes[0][0].set_ylabel("cosine with the truth")
    axes[1][0].set_ylabel("accuracy by user")
    figure.legend(*axes[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
