"""The parts of a round's time: each part of a run through ``local``, by itself.

Functions are timed from outside while a run goes on; what one part spends inside another is counted
there, so the parts add up to the round. Medians over rounds: the first rounds load and compile.
"""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any
from unittest.mock import patch

from murmuration.client.app import app as client_app
from murmuration.preference.kinds.linear import LinearModel
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms import noisy_sum
from murmuration.research.bench.setting import Setting
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol import messages
from murmuration.strategies.steps.optimizers import ServerOptimizer

_WARMUP = 5  # rounds
_REST = "the rest: Flower's message loop, checks, bookkeeping"
_MESSAGES = "messages: arrays written and read"
#: What is timed: of which object, which function, as which part.
_PARTS = (
    (CohortStrategy, "sample_cohort", "cohort: who is in"),
    (messages, "work_request", _MESSAGES),
    (messages, "read_work", _MESSAGES),
    (messages, "sums_reply", _MESSAGES),
    (messages, "read_sums", _MESSAGES),
    (messages, "model_record", _MESSAGES),
    (Ledger, "charge", "ledger: one line, on disk"),
    (noisy_sum, "_release", "noise, and the hash of what it goes on"),
    (ServerOptimizer, "step", "optimizer"),
)
_NODE = "users' gradients, clipped and added up"
_AFTER = "metrics, checkpoint, progress"


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    """A row: milliseconds per round of each part, medians over ``rounds`` rounds."""
    clock = _Clock()
    with contextlib.ExitStack() as stack, setting.config(rounds + _WARMUP) as config:
        for owner, name, part in _PARTS:
            timed = clock.timed(part, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, timed))
        real = registry.node_halves()
        timed = replace(real["uls"], client_update=clock.timed(_NODE, real["uls"].client_update))
        halves = {**real, "uls": timed}
        stack.enter_context(patch.object(registry, "node_halves", lambda: halves))
        stack.enter_context(patch.object(CohortStrategy, "start", clock.of_rounds()))
        grid = LocalGrid(client_app, 1, config.to_run_config())
        run_training(config, grid, LinearModel(setting.features))
    return {"d": setting.dimension, "cohort": setting.cohort, "parts_ms": clock.parts()}


class _Clock:
    """Exclusive times of nested parts, round after round."""

    def __init__(self) -> None:
        self._open: list[float] = []  # time spent in parts inside each that is open
        self._now: dict[str, float] = defaultdict(float)
        self._rounds: list[dict[str, float]] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, on the clock."""

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self._of(part):
                return function(*arguments, **named)

        return wrapped

    def of_rounds(self) -> Callable[..., Any]:
        """``CohortStrategy.start``, which says when a round ends."""
        original = CohortStrategy.start

        def start(strategy: CohortStrategy, *arguments: Any, **named: Any) -> Any:
            after = self.timed(_AFTER, named["on_round"])
            begun = time.perf_counter()

            def on_round(round_: int) -> None:
                nonlocal begun
                after(round_)
                now = time.perf_counter()
                parts, self._now = self._now, defaultdict(float)
                parts[_REST] = now - begun - sum(parts.values())
                self._rounds.append(dict(parts))
                begun = now

            return original(strategy, *arguments, **{**named, "on_round": on_round})

        return start

    @contextlib.contextmanager
    def _of(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        self._open.append(0.0)
        try:
            yield
        finally:
            seconds = time.perf_counter() - begun
            self._now[part] += seconds - self._open.pop()
            if self._open:
                self._open[-1] += seconds

    def parts(self) -> dict[str, float]:
        """Medians in milliseconds, the longest first."""
        rounds = self._rounds[_WARMUP:]
        names = {name for parts in rounds for name in parts}
        result = {name: 1000 * median(parts.get(name, 0.0) for parts in rounds) for name in names}
        return dict(sorted(result.items(), key=lambda item: -item[1]))
