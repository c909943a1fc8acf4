"""A round's time as users, cohort, dimensions and judgements grow.

One quantity grows at a time, from the middle of the others. A round is everything the ``local``
runtime does for a cohort; medians over the rounds of one run.
"""

import itertools
import time
from statistics import median
from typing import Any

from flwr.app import Message
from matplotlib.figure import Figure

from murmuration.client.app import app as client_app
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.kinds.model import Model
from murmuration.research.bench.setting import Setting, told
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

_WARMUP = 3  # rounds


#: What grows, and the points of it.
GROWTH: dict[str, tuple[Setting, ...]] = {
    "users": tuple(Setting(users=n) for n in (1000, 2500, 10_000, 40_000)),
    "cohort": tuple(Setting(cohort=m) for m in (50, 250, 1000, 2500)),
    "dimension": tuple(Setting(dimension=d) for d in (96, 384, 1536, 6144)),
    "each": tuple(Setting(each=m) for m in (2, 10, 50)),
}


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    """A row: the figures of one run of ``rounds`` rounds."""
    with setting.config(rounds + _WARMUP + 1) as config:
        model = None if setting.base else LinearModel(setting.features)
        begun, seconds = begun_rounds(config, model)
    each = [later - earlier for earlier, later in itertools.pairwise(begun[_WARMUP:])]
    return {
        "users": setting.users,
        "cohort": setting.cohort,
        "d": setting.dimension,
        "judgements_each": setting.each,
        "rounds": rounds,
        "round_ms": 1000 * median(each),
        "before_seconds": begun[0],
        "seconds": seconds,
    }


def begun_rounds(config: RunConfig, model: Model | None) -> tuple[list[float], float]:
    """When each round of a run began, and when it ended, in seconds from its start."""
    begun: list[float] = []
    start = time.perf_counter()

    def of_round(outgoing: list[Message]) -> None:
        if outgoing and outgoing[0].metadata.message_type == "train":
            begun.append(time.perf_counter() - start)

    grid = told(LocalGrid, of_round)(client_app, 1, config.to_run_config())
    run_training(config, grid, model)
    return begun, time.perf_counter() - start


def plot(rows: dict[str, list[dict[str, Any]]]) -> Figure:
    """Milliseconds a round against each quantity that grows (logarithmic) in four panels."""
    names = {
        "users": ("users", "users in all"),
        "cohort": ("cohort", "users in a round"),
        "dimension": ("d", "dimensions"),
        "each": ("judgements_each", "judgements of a user"),
    }
    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True).ravel()
    most = max(row["round_ms"] for result in rows.values() for row in result)
    for panel, (kind, result) in zip(axes, rows.items(), strict=True):
        column, label = names[kind]
        panel.semilogx([r[column] for r in result], [r["round_ms"] for r in result], marker="o")
        panel.set(xlabel=label, ylabel="ms a round", ylim=(0.0, 1.1 * most))
        panel.set_xticks([r[column] for r in result], [f"{r[column]:,}" for r in result])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    return figure
