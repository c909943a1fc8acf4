"""The accuracy of private rewards on other users, in AUP-RLHF's two settings, without generation.

What rewards come to in use (``frontier``, ``wins``) takes a reference and half an hour; how often
they prefer what people did who were not trained on takes minutes, and orders strategies nearly
alike. Settings and readings are those of ``alignment.rewards``.
"""

from typing import Any

from murmuration.research.reproductions.alignment.claims import mean_interval
from murmuration.research.reproductions.alignment.frontier import rewards_of_seeds
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    BASELINES,
    NONPRIVATE,
    PRIVATE,
    UNTESTED,
    Sizes,
)
from murmuration.research.reproductions.entry import Row, Rows, distinct, where

#: By the paper's task.
SETTINGS = {
    "film reviews": Sizes(users=2500, each=10),
    "TL;DR": Sizes(users=1800, each=50, cohort_as_run=100),
    "film reviews, MiniLM": Sizes(users=2500, each=10, features="minilm"),
}


def accuracies(quick: bool = False) -> list[dict[str, Any]]:
    """Rows ``task, strategy, epsilon, accuracy_mean, accuracy_interval, rounds``, the last from
    first to last seed. ``quick``: two seeds of few users of the first task."""
    settings, seeds = SETTINGS, 3
    if quick:
        settings, seeds = {"film reviews": Sizes(300, 10)}, 2
    rows = []
    for task, sizes in settings.items():
        learnt = rewards_of_seeds(sizes, seeds, (*PRIVATE, UNTESTED))
        for strategy, epsilon in learnt[0]:
            same = [rewards[strategy, epsilon] for rewards in learnt]
            rows.append(
                {
                    "task": task,
                    "strategy": strategy,
                    "epsilon": epsilon,
                    **mean_interval("accuracy", [one.accuracy for one in same]),
                    "rounds": "/".join(str(one.rounds) for one in same),
                }
            )
    return rows


def remarks(rows: Rows) -> list[str]:
    """Sentences for AUP as run: the baselines that it is above or below beyond both intervals, and
    its accuracy with its test off.
    """
    result = []
    for task in distinct(rows, "task"):
        for epsilon in distinct(where(rows, task=task), "epsilon"):
            same = where(rows, task=task, epsilon=epsilon)
            (aup,) = where(same, strategy=AS_RUN)
            baselines = where(same, strategy=BASELINES)
            above = [row["strategy"] for row in baselines if _low(aup) > _high(row)]
            below = [row["strategy"] for row in baselines if _high(aup) < _low(row)]
            near = [row["strategy"] for row in baselines if row["strategy"] not in above + below]
            untested = "".join(
                f" With its test off {row['accuracy_mean']:.3f}."
                for row in where(rows, task=task, epsilon=epsilon, strategy=UNTESTED)
            )
            result.append(
                f"{task}, ε = {epsilon:g}: {AS_RUN} {aup['accuracy_mean']:.3f}, "
                f"above {', '.join(above) or 'none'}; below {', '.join(below) or 'none'}; "
                f"not told from {', '.join(near) or 'none'}.{untested}"
            )
    clean = ", ".join(
        f"{row['task']} {row['accuracy_mean']:.3f}" for row in where(rows, strategy=NONPRIVATE)
    )
    return [*result, f"Without privacy: {clean}."]


def _high(row: Row) -> float:
    return row["accuracy_mean"] + (row["accuracy_interval"] or 0.0)


def _low(row: Row) -> float:
    return row["accuracy_mean"] - (row["accuracy_interval"] or 0.0)
