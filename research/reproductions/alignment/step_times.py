"""Table 6 of AUP-RLHF: how long a training step of each strategy takes, as ratios.

The paper measures seconds a step of its reward model at 500 judgements, mean of 100 steps on one
GPU: randomized response 2.78, group privacy 4.29, user-wise DP-SGD 4.32, AUP 4.54. Here whole
rounds of strategies that users get, in one process: messages, the users' gradients, sum, noise,
ledger, optimizer. All users take part in each, 50 users with 10 judgements, so that each has the
paper's 500. (One phase of published AUP to the letter is on half of the users, so it has about 100,
of whom the half is 50; as run it has the 50.) To draw a cohort is not in it. A step with randomized
labels is one without clipping and noise (``nonprivate``: all after the randomization is
post-processing). Steps are taken in turn, so that whatever else the machine does meets all alike,
and medians compared.

The paper's steps run their texts through a frozen encoder each time; here features are computed
once. So there are two columns: the step alone, and with hashing of its 1,000 answers in it, which
is as long for all.

The claims, fixed before the run, each with its rule:

1. AUP costs little over user-wise DP-SGD (paper: 1.05 times): agrees up to 1.25;
2. randomized response is the cheapest: agrees if no other's median is below it;
3. clipping single judgements costs about what clipping users does (paper: 0.99): agrees from 0.8 to
   1.25.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    CENTRED,
    DELTA,
    GROUP,
    PUBLISHED,
    RESPONSE,
    USERWISE,
    features,
    judged,
)
from murmuration.research.reproductions.btl import Training
from murmuration.research.reproductions.entry import Reproduction, Row, Rows, tracked
from murmuration.research.reproductions.plots import open_corner
from murmuration.sims.population.population import Population
from murmuration.strategies.aup.schedule import phase_of
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.config import RunConfig

#: Seconds a step; as printed.
TABLE_6 = {RESPONSE: 2.78, GROUP: 4.29, USERWISE: 4.32, PUBLISHED: 4.54, AS_RUN: 4.54}
USERS, EACH = 50, 10
FEATURES = "features"
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    RESPONSE: {"strategy": "nonprivate", "optimizer": "sgd", "learning_rate": 1.0},
    GROUP: {"strategy": "group", "sampling_probability": 1.0},
    USERWISE: {"strategy": "uls"},
    # Within which all pairs are: a step after the test said no would cost next to nothing.
    PUBLISHED: {"strategy": "aup", "variant": "published", "clip_norm": 10.0},
    AS_RUN: {"strategy": "aup", "variant": "published-as-run", "clip_norm": 10.0},
    CENTRED: {"strategy": "aup"},
}
_LITTLE = 1.25

#: Seconds of each step, by strategy; of ``FEATURES``, those of computing features.
Seconds = Mapping[str, Sequence[float]]


def step_times(quick: bool = False) -> Reproduction:
    """Rows ``strategy, milliseconds, ratio, with_features, paper``; see ``rows_of``."""
    return told(timed(20 if quick else 100))


def timed(steps: int, clock: Callable[[], float] = time.perf_counter) -> Seconds:
    """The durations of ``steps`` steps of each, after two that are not counted."""
    trainings = {users: _training(users) for users in (USERS, halved())}
    texts = [text for row in Population().texts("train", USERS * EACH) for text in row[1:]]
    result: dict[str, list[float]] = {name: [] for name in (*_SETTINGS, FEATURES)}
    with ExitStack() as stack:
        calls: dict[str, Callable[[], Any]] = {FEATURES: lambda: features()([], texts)}
        for name, given in _SETTINGS.items():
            users = halved() if name == PUBLISHED else USERS
            config = _config(given, steps + 2, users // (2 if name == PUBLISHED else 1))
            strategy, _ = stack.enter_context(trainings[users].begun(config))
            calls[name] = partial(_step, strategy, trainings[users])
        order = list(calls)
        for step in tracked(range(steps + 2), "steps", steps + 2):
            # Another is first each time, so that nobody always follows the same.
            for name in order[step % len(order) :] + order[: step % len(order)]:
                begun = clock()
                calls[name]()
                if step >= 2:
                    result[name].append(clock() - begun)
    return result


def halved() -> int:
    """The number of users of which one phase of published AUP has ``USERS``."""
    keys_N = np.array([user_key(f"user {user}") for user in range(4 * USERS)], dtype=np.uint64)
    return int(np.flatnonzero((phase_of(keys_N, 1) == 1).cumsum() == USERS)[0]) + 1


def _training(users: int) -> Training:
    return Training(judged(users, EACH, seed=0), Randomness(0))


def _step(strategy: CohortStrategy, training: Training) -> None:
    wanted = strategy.rounds_done + 1
    strategy.start(training.grid, num_rounds=wanted)
    if strategy.rounds_done != wanted:  # what follows would cost next to nothing
        raise RuntimeError(f"{strategy.name} halted at step {wanted}, so its time says nothing")


def _config(given: Mapping[str, Any], rounds: int, cohort: int) -> RunConfig:
    config = RunConfig(
        epsilon=20.0,  # so that a test hardly ever says no; time does not depend on it
        delta=DELTA,
        adjacency="replace-labels",
        rounds=rounds,
        cohort=cohort,
        group_size=EACH,
        test="time alone",
        seed=0,
    )
    return config.changed(**given)


def told(seconds: Seconds) -> Reproduction:
    """Rows, remarks and plot of measured times."""
    rows = rows_of(seconds)
    return Reproduction(rows, remarks(rows), plot=plot(rows))


def rows_of(seconds: Seconds) -> list[Row]:
    """Medians, and their ratios to that of randomized response.

    ``ratio``: of steps by themselves; ``with_features``: where each computes its features first;
    ``paper``: Table 6's.
    """
    medians = {name: median(values) for name, values in seconds.items()}
    more, first = medians.pop(FEATURES), medians[RESPONSE]
    return [
        {
            "strategy": name,
            "milliseconds": 1000 * value,
            "ratio": value / first,
            "with_features": (value + more) / (first + more),
            "paper": TABLE_6[name] / TABLE_6[RESPONSE] if name in TABLE_6 else None,
            "steps": len(seconds[name]),
        }
        for name, value in medians.items()
    ]


def remarks(rows: Rows) -> list[str]:
    """Sentences on whether each claim agrees, by both ratios."""
    return [
        f"{said}: {'agrees' if agrees else 'DOES NOT AGREE'} ({how})."
        for column, how in (("ratio", "steps alone"), ("with_features", "with features"))
        for said, agrees in _claims({row["strategy"]: row[column] for row in rows})
    ]


def _claims(ratios: Mapping[str, float]) -> Iterator[tuple[str, bool]]:
    for name in (PUBLISHED, AS_RUN, CENTRED):
        over = ratios[name] / ratios[USERWISE]
        yield f"{name} takes {over:.2f} times user-wise DP-SGD, paper 1.05", over <= _LITTLE
    least = min(ratios, key=lambda name: ratios[name])
    yield f"{least} is the cheapest, paper {RESPONSE}", least == RESPONSE
    single = ratios[GROUP] / ratios[USERWISE]
    said = f"group privacy takes {single:.2f} times user-wise DP-SGD, paper 0.99"
    yield said, 1 / _LITTLE <= single <= _LITTLE


def plot(rows: Rows) -> Figure:
    """The three ratios of each strategy as bars."""
    figure = Figure(figsize=(7.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for place, (column, label) in enumerate(
        (("paper", "Table 6"), ("with_features", "with features"), ("ratio", "step alone"))
    ):
        axes.bar(
            [at + (place - 1) * 0.27 for at in range(len(rows))],
            [row[column] or 0.0 for row in rows],
            0.25,
            color=("0.6", "C0", "C1")[place],
            label=label,
        )
    axes.set_xticks(range(len(rows)), [row["strategy"] for row in rows], fontsize=8)
    axes.set_ylabel("time of a step over randomized response's")
    axes.legend(frameon=False, fontsize=8)
    open_corner(axes)
    return figure
