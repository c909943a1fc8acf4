"""The users per second that a node computes, and the further cost of a round.

Three clocks are read in turn during a real run, so that whatever else the machine does meets all of
them alike:

- the round: everything the runtime does for a cohort, from one push of messages to the
  next: messages, node, ledger with fsync, noise, optimizer, metrics, and now and then a checkpoint;
- after every eighth round the node: ``strategies.uls.client_update`` for a cohort, from windows to
  the bounded sum;
- and the limit: the same arithmetic (logits, residuals, batched weighted sums, norms, clipping and
  sum) as plain tensor code, for as many users whose rows lie in place already, with torch's threads
  and with one (on a busy machine that is faster by far): the better median is the limit.

Then follows a pause, because torch's threads keep a core busy for a while after their last work,
and rounds that are not counted, because after a pause everything is slow. The overhead is the
median round less the median node. On Ray the node's work is done by the workers, and what counts as
overhead is what the round takes beyond this work done in one process.

Legend: B users of the limit, M judgements each, D dimensions.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from murmuration.client.app import app as client_app
from murmuration.client.store import UserStore, load, source_for, store_for
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.linear.examples import PairExamples
from murmuration.research.bench.setting import Setting, timed, told
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid, Scalar
from murmuration.sims.runtimes.ray_cluster import Workers, cluster, workers_of
from murmuration.sims.runtimes.ray_grid import RayGrid
from murmuration.strategies import uls
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages

_WARMUP = 2  # readings
_PAUSE = 0.02  # seconds
_STRIDE = 8  # rounds from one reading of node and limit to the next
_SETTLING = 3  # of these, the first that are not counted


SETTINGS = tuple(
    Setting(dimension=dimension, cohort=cohort, runtime=runtime)
    for dimension, cohort in ((384, 250), (384, 2500), (10_000, 250))
    for runtime in ("local", "ray")
)


def measure(setting: Setting, repetitions: int) -> dict[str, Any]:
    """One row of figures, medians over ``repetitions`` readings."""
    with setting.config(_STRIDE * (repetitions + _WARMUP) + 1) as config:
        clocks = _Clocks(setting, config.to_run_config())
        with _grid(setting, config, clocks) as grid:
            result = run_training(config, grid, LinearModel(setting.features))
    nodes, limits = clocks.node_rates[_WARMUP:], clocks.limit_rates[_WARMUP:]
    rounds = clocks.rounds[_WARMUP * (_STRIDE - _SETTLING) :]
    threads, most = max(
        ((threads, median(rates[threads] for rates in limits)) for threads in limits[0]),
        key=lambda item: item[1],
    )
    node = median(nodes)
    seconds = median(rounds) - setting.cohort / node
    return {
        "d": setting.dimension,
        "cohort": setting.cohort,
        "users": result["users"],
        "judgements": len(clocks.store.judgements),
        "runtime": setting.runtime,
        "repetitions": len(nodes),
        "users_per_second": setting.cohort / median(rounds),
        "node_users_per_second": node,
        "limit_users_per_second": most,
        "limit_threads": threads,
        "node_share_of_limit": node / most,
        "overhead_ms": 1000 * seconds,
        "rival": None,
        "rival_users_per_second": None,
    }


@contextmanager
def _grid(setting: Setting, config: RunConfig, clocks: "_Clocks") -> Iterator[Grid]:
    run_config = config.to_run_config()
    if setting.runtime == "local":
        yield told(LocalGrid, clocks.messages_are_out)(client_app, 1, run_config)
        return
    judgements = load(config.data, config.columns, "refuse")
    with cluster() as ray:
        workers = Workers()
        nodes = workers_of(ray, workers)
        grid = told(RayGrid, clocks.messages_are_out)
        yield grid(ray, client_app, judgements, nodes, run_config, workers=workers)


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


class _Clocks:
    """Between two rounds, times the node's computation and the limit by themselves."""

    def __init__(self, setting: Setting, run_config: Mapping[str, Scalar]) -> None:
        self._setting, self._context = setting, _context_of(run_config)
        self._limit: Callable[[], object] | None = None
        self._asked: list[RecordDict] = []
        self._former: list[RecordDict] = []
        self._begun, self._threads = 0.0, torch.get_num_threads()
        self._count = 0
        self.rounds: list[float] = []  # seconds
        self.node_rates: list[float] = []  # users a second
        self.limit_rates: list[dict[int, float]] = []  # by threads

    def messages_are_out(self, outgoing: list[Message]) -> None:
        """End one round, and begin the next."""
        if self._asked:
            if not 1 <= self._count % _STRIDE <= _SETTLING:
                self.rounds.append(time.perf_counter() - self._begun)
            if self._count % _STRIDE == 0 and self._former:
                self._read(self._work(self._former))
        asked = [m.content for m in outgoing if m.metadata.message_type == "train"]
        self._former, self._asked = self._asked, asked
        self._count += 1
        self._begun = time.perf_counter()

    @cached_property
    def store(self) -> UserStore:
        """The store of a node with all users, with the features of the rounds."""
        return store_for(self._context)

    def _work(self, asked: list[RecordDict]) -> messages.TrainRequest:
        """The request of a round's messages, with all nodes taken as one."""
        places = [self.store.where(messages.UserSelection.of(content)) for content in asked]
        return messages.read_work(asked[0], np.unique(np.concatenate(places)))

    def _read(self, work: messages.TrainRequest) -> None:
        """Node and limit, for a cohort other than the last, whose rows might still be in cache."""
        examples = self.store.examples(str(work.parameters["features"]))
        assert isinstance(examples, PairExamples)
        keys_S, source = self.store.keys_U[work.users_S], source_for(self._context)
        if self._limit is None:
            self._limit = limit(examples, self._setting.cohort, work.number("clip-norm"))
        node = _seconds(lambda: uls.client_update(examples, work, keys_S, source), self._threads)
        self.node_rates.append(len(keys_S) / node)
        cohort, run = self._setting.cohort, self._limit
        self.limit_rates.append({t: cohort / _seconds(run, t) for t in sorted({1, self._threads})})
        time.sleep(_PAUSE)


def _context_of(run_config: Mapping[str, Scalar]) -> Context:
    node_config: dict[str, Scalar] = {"partition-id": 0, "num-partitions": 1}
    return Context(1, 1, node_config, RecordDict(), dict(run_config))


def _seconds(call: Callable[[], object], threads: int) -> float:
    """The duration of a call with this number of torch threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return timed(call)[1]
    finally:
        torch.set_num_threads(before)
