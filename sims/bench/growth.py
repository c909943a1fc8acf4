"""How long a round takes as users, cohort, dimensions and judgements grow.

One quantity grows at a time, from the middle of the others. A round is everything the ``local``
runtime does for a cohort; medians over the rounds of one run.
"""

import itertools
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import Message
from matplotlib.figure import Figure

from murmuration.client.app import app as client_app
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.server.config import RunConfig
from murmuration.server.training import train
from murmuration.sims.runtimes.local import LocalGrid

_WARMUP = 3  # rounds


@dataclass(frozen=True)
class Point:
    """A run: N users with m judgements each, D dimensions, M users in a round."""

    users: int = 2500
    cohort: int = 250
    dimension: int = 384
    each: int = 10

    @property
    def source(self) -> str:
        """Its judgements."""
        name = f"users_{self.users}" if self.each == 10 else f"each_{self.each}"
        return f"murmuration.sims.bench.synthetic_users:{name}"


#: What grows, and the points of it.
GROWTH: dict[str, tuple[Point, ...]] = {
    "users": tuple(Point(users=n) for n in (1000, 2500, 10_000, 40_000)),
    "cohort": tuple(Point(cohort=m) for m in (50, 250, 1000, 2500)),
    "dimension": tuple(Point(dimension=d) for d in (96, 384, 1536, 6144)),
    "each": tuple(Point(each=m) for m in (2, 10, 50)),
}


class _Paced(LocalGrid):
    """Notes when each round's messages go out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun: list[float] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As in ``LocalGrid``."""
        outgoing = list(messages)
        if outgoing and outgoing[0].metadata.message_type == "train":
            self.begun.append(time.perf_counter())
        return super().push_messages(outgoing)


def measure(point: Point, rounds: int) -> dict[str, Any]:
    """A row: the figures of one run of so many rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as folder:
        config = RunConfig(
            data=point.source,
            test="murmuration.sims.bench.synthetic_users:few",
            cohort=point.cohort,
            rounds=rounds + _WARMUP + 1,
            seed=0,
            # A group size of what users have: every judgement counts.
            group_size=point.each,
            out=str(Path(folder) / "run"),
        )
        grid = _Paced(client_app, 1, config.to_run_config())
        before = time.perf_counter()
        train(config, grid, HashingFeatures(dimension=point.dimension))
        seconds = time.perf_counter() - before
    ends = grid.begun[_WARMUP:]
    each = [later - earlier for earlier, later in itertools.pairwise(ends)]
    return {
        "users": point.users,
        "cohort": point.cohort,
        "d": point.dimension,
        "judgements_each": point.each,
        "rounds": rounds,
        "round_ms": 1000 * median(each),
        "seconds": seconds,
    }


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
    most = max(row["round_ms"] for found in rows.values() for row in found)
    for panel, (kind, found) in zip(axes, rows.items(), strict=True):
        column, label = names[kind]
        panel.semilogx([r[column] for r in found], [r["round_ms"] for r in found], marker="o")
        panel.set(xlabel=label, ylabel="ms a round", ylim=(0.0, 1.1 * most))
        panel.set_xticks([r[column] for r in found], [f"{r[column]:,}" for r in found])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    return figure
