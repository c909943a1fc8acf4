"""How many users a second a node computes, and what a round costs beyond that.

In every round of a real run three clocks are read, one after the other, so that whatever else the
machine does meets all of them alike:

- the limit: the same arithmetic (logits, residuals, batched weighted sums, norms, clipping, sum) as
  plain tensor code, for equally many users whose rows lie in place already, with torch's threads
  and with one (on a busy machine that is faster by far): the better median is the limit;
- the node: ``strategies.uls.contribute`` for a cohort, from windows to the bounded sum;
- the round: everything the ``local`` runtime does for that cohort, from one push of messages to the
  next: messages, node, ledger with fsync, noise, optimizer, metrics, and now and then a checkpoint.

The overhead is the round less the node. Medians of all rounds are reported.

Legend: B users of the limit, M judgements each, D dimensions.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from statistics import median
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict

from client.app import app as client_app
from client.store import UserStore, source_for, store_for
from preference.examples import PairExamples
from preference.features import HashingFeatures
from server.config import RunConfig
from server.training import train
from sims.local import LocalGrid, Scalar
from strategies import messages, uls

_WARMUP_ROUNDS = 3
_PAUSE = 0.02  # torch's threads keep a core busy for a while after their last work
_TEXTS = 500


@dataclass(frozen=True)
class Setting:
    """One row of figures, on the judgements of ``source``."""

    dimension: int
    cohort: int
    source: str = "sims.bench:judgements"


SETTINGS = (Setting(384, 250), Setting(384, 2500), Setting(10_000, 250))


def judgements() -> Iterator[dict[str, str]]:
    """2,500 users with ten judgements each, about nothing."""
    return _rows(2500, 10)


def few_judgements() -> Iterator[dict[str, str]]:
    """40 users with four judgements each."""
    return _rows(40, 4)


def _rows(users: int, each: int) -> Iterator[dict[str, str]]:
    generator = np.random.default_rng(0)
    texts = [
        " ".join(f"w{word}" for word in generator.integers(0, 5000, 40)) for _ in range(_TEXTS)
    ]
    for user in range(users):
        for chosen, rejected in generator.integers(0, _TEXTS, (each, 2)):
            row = {"user_id": f"u{user}", "prompt": "-", "chosen": texts[chosen]}
            yield {**row, "rejected": texts[rejected] + " ."}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ("torch", "numpy", "flwr")
    return {
        "cpu": models[0] if models else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "versions": {"python": python_version(), **{name: version(name) for name in packages}},
    }


def measure(setting: Setting, rounds: int) -> dict[str, object]:
    """One row of figures, medians over ``rounds`` rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as folder:
        config = RunConfig(
            data=setting.source,
            test="sims.bench:few_judgements",  # so that nobody is held out
            cohort=setting.cohort,
            rounds=rounds + _WARMUP_ROUNDS + 2,
            seed=0,
            out=str(Path(folder) / "run"),
        )
        grid = _TimedGrid(setting, config.to_run_config())
        result = train(config, grid, HashingFeatures(dimension=setting.dimension))
        clocks = grid.clocks[_WARMUP_ROUNDS:]
    node = median(clock.node_users / clock.node for clock in clocks)
    limits = {
        threads: median(setting.cohort / clock.limits[threads] for clock in clocks)
        for threads in clocks[0].limits
    }
    threads, most = max(limits.items(), key=lambda item: item[1])
    return {
        "d": setting.dimension,
        "cohort": setting.cohort,
        "users": result["users"],
        "judgements": len(grid.store.judgements),
        "runtime": "local",
        "repetitions": len(clocks),
        "users_per_second": median(clock.users / clock.round for clock in clocks),
        "node_users_per_second": node,
        "limit_users_per_second": most,
        "limit_threads": threads,
        "node_share_of_limit": node / most,
        "overhead_ms": 1000 * median(clock.round - clock.node for clock in clocks),
    }


def limit(examples: PairExamples, users: int, clip: float) -> Callable[[], torch.Tensor]:
    """A clipped sum over the first ``users`` users, who must have equally many judgements."""
    rows = int(examples.start_U[users])
    x_BMD = examples.x_RD[:rows].view(users, -1, examples.dimension).clone()
    y_BM = examples.y_R[:rows].view(users, -1).clone()
    theta_D = torch.full((examples.dimension,), 0.01)

    def run() -> torch.Tensor:
        slope_BM = torch.sigmoid(x_BMD @ theta_D) - y_BM
        grads_BD = torch.bmm(slope_BM[:, None], x_BMD)[:, 0] / x_BMD.shape[1]
        norms_B = torch.linalg.vector_norm(grads_BD, dim=1)
        return (clip / norms_B).clamp(max=1.0) @ grads_BD

    return run


@dataclass(frozen=True)
class _Clock:
    """Users of one round, and the seconds of the round, its node and, by threads, the limit."""

    users: int
    round: float
    node_users: int
    node: float
    limits: dict[int, float]


class _TimedGrid(LocalGrid):
    """Between two rounds, times the node's computation and the limit by themselves."""

    def __init__(self, setting: Setting, run_config: Mapping[str, Scalar]) -> None:
        super().__init__(client_app, 1, run_config)
        self._setting, self._context = setting, _context_of(run_config)
        self._limit: Callable[[], object] | None = None
        self._work: messages.Work | None = None
        self._former: messages.Work | None = None
        self._begun, self._threads = 0.0, torch.get_num_threads()
        self.clocks: list[_Clock] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As in ``LocalGrid``; training messages end one round and begin the next."""
        outgoing = list(messages)
        seconds = time.perf_counter() - self._begun
        if self._work is not None and self._former is not None:
            self._add(self._work, self._former, seconds)
        self._former = self._work
        self._work = next((_work(m) for m in outgoing if m.metadata.message_type == "train"), None)
        self._begun = time.perf_counter()
        return super().push_messages(outgoing)

    @cached_property
    def store(self) -> UserStore:
        """The node's, with the features that the rounds use."""
        return store_for(self._context)

    def _add(self, work: messages.Work, former: messages.Work, seconds: float) -> None:
        examples = self.store.examples(str(work.parameters["features"]))
        if self._limit is None:
            self._limit = limit(examples, self._setting.cohort, work.number("clip-norm"))
        # The cohort of the round before: rows that this round has just read would come from cache.
        keys_S = self.store.keys_U[former.users_S]

        def compute() -> object:
            return uls.contribute(examples, former, keys_S, source_for(self._context))

        node = _seconds(compute, self._threads)
        limits = {threads: _seconds(self._limit, threads) for threads in sorted({1, self._threads})}
        clock = _Clock(len(work.users_S), seconds, len(keys_S), node, limits)
        self.clocks.append(clock)
        time.sleep(_PAUSE)
        compute()  # after a rest the next round would begin on a cold processor


def _work(message: Message) -> messages.Work:
    return messages.read_work(message.content)


def _context_of(run_config: Mapping[str, Scalar]) -> Context:
    """That of the only node."""
    node_config: dict[str, Scalar] = {"partition-id": 0, "num-partitions": 1}
    return Context(1, 1, node_config, RecordDict(), dict(run_config))


def _seconds(call: Callable[[], object], threads: int) -> float:
    """How long a call takes with so many threads of torch."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun
    finally:
        torch.set_num_threads(before)
