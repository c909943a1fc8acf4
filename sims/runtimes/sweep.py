"""Many runs: one after the other here, or side by side on a Ray cluster.

Each run has a folder of its own, so a sweep that was interrupted continues where it stopped: runs
that are complete are read, others are resumed. On a cluster the folders must lie on a file system
that all its machines share; that is tried before the first run starts. A run of a sweep whose
machine is lost is started again by Ray on another, and resumes there from its last checkpoint.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from murmuration.preference.data.errors import InputError, first_line
from murmuration.privacy.accounting.ledger import LedgerInUse
from murmuration.server.record.run_lock import RunInUse
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.ray_cluster import cluster, machines, worker_failed
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted


@dataclass(frozen=True)
class Failed:
    """A run that was begun and came to nothing: nodes or its worker failed, or were not there."""

    why: str


#: What a run gave: its result, why it was refused, or that it failed.
Outcome = dict[str, Any] | str | Failed
#: Hears the name of each run's folder when it has ended.
OnRun = Callable[[str], None]
_PATIENCE = 120.0  # seconds for a lost run's last process to let go of its ledger


def one_by_one(configs: Sequence[RunConfig], on_run: OnRun) -> list[Outcome]:
    """The outcomes of runs, each with its ``out``, in this process."""
    outcomes = []
    for config in configs:
        outcomes.append(_outcome(config))
        on_run(Path(config.out).name)
    return outcomes


def on_cluster(configs: Sequence[RunConfig], on_run: OnRun, cpus: int = 1) -> list[Outcome]:
    """The outcomes of runs, as many at a time as the cluster has ``cpus`` processors for.

    Raises:
        InputError: no cluster, or one whose machines do not share the folders of the runs or have
            too few processors.
    """
    outcomes: dict[int, Outcome] = {}
    for place, outcome in side_by_side(_outcome, configs, cpus, at_once=len(configs), retries=-1):
        outcomes[place] = outcome
        on_run(Path(configs[place].out).name)
    return [outcomes[place] for place in range(len(configs))]


def side_by_side(
    run: Callable[[RunConfig], Outcome],
    configs: Iterable[RunConfig],
    cpus: int = 1,
    at_once: int = 0,
    *,
    retries: int,
) -> Generator[tuple[int, Outcome], None, None]:
    """The places and outcomes of runs, as they end, each by a task of ``cpus`` processors.

    Ray is given ``at_once`` runs at a time, by default as many as the cluster has room for; the
    next config is asked for when one has ended. Whoever stops asking stops those that go on.
    Where its worker is lost, a run is begun again ``retries`` times (-1: as often as it takes),
    then it has failed.

    Raises:
        InputError: no cluster, or one whose machines do not share the folders of the runs or have
            too few processors.
        WorkerFailed: a run raised what no run should.
    """
    left = enumerate(configs)
    if (first := next(left, None)) is None:
        return
    with cluster() as ray:
        there = [int(machine.get("CPU", 0)) for machine in machines(ray)]
        if not 1 <= cpus <= max(there):
            raise InputError(
                f"--cpus-per-run {cpus}: no machine of the cluster has as many CPUs; the most is "
                f"{max(there)}"
            )
        at_once = at_once or sum(count // cpus for count in there)
        _check_shared(ray, Path(first[1].out).parent)
        remote = ray.remote(num_cpus=cpus, max_retries=retries)
        task = remote(_with_processors).options(scheduling_strategy="SPREAD")
        left, waiting = chain([first], left), {}
        try:
            while True:
                for place, config in islice(left, at_once - len(waiting)):
                    waiting[task.remote(run, config, cpus)] = place
                if not waiting:
                    return
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(done), _ended(ray, done)
        finally:
            for each in waiting:
                ray.cancel(each, force=True)


def _ended(ray: Any, task: Any) -> Outcome:
    """The outcome of a task that has ended.

    Raises:
        WorkerFailed: the run raised what no run should.
    """
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise worker_failed(error) from error
    except ray.exceptions.RayError as error:  # died, out of memory, its machine is gone, …
        return Failed(f"its worker was lost ({type(error).__name__}: {first_line(error)})")


def _with_processors(run: Callable[[RunConfig], Outcome], config: RunConfig, cpus: int) -> Outcome:
    """A task of a cluster: nothing but its own processors."""
    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(cpus)
    return run(config)


def _outcome(config: RunConfig) -> Outcome:
    """A run's result, from its folder if it is complete, resumed or started if not."""
    begun = (Path(config.out) / "config.json").exists()
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return execute(replace(config, resume=begun), quiet=True)
        except RunAborted as aborted:
            return Failed(str(aborted))
        except InputError as error:
            in_use = isinstance(error.__cause__, LedgerInUse | RunInUse)
            if not in_use or time.monotonic() > deadline:
                return str(error)
            time.sleep(1.0)  # the process that was lost may not know it yet
            begun = True


def _check_shared(ray: Any, folder: Path) -> None:
    """Every machine of the cluster must see what is written here.

    Raises:
        InputError: one does not.
        WorkerFailed: one cannot begin.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".probe-{uuid4().hex}"
    probe.write_text("", encoding="utf-8")
    try:
        seen = {}
        for node in (node for node in ray.nodes() if node["Alive"]):
            task = ray.remote(num_cpus=0)(Path.exists)
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=True
            )
            seen[node["NodeManagerAddress"]] = task.options(scheduling_strategy=here).remote(probe)
        for address, result in seen.items():
            try:
                there = ray.get(result)
            except ray.exceptions.RayError as error:
                raise worker_failed(error) from error
            if not there:
                raise InputError(
                    f"{folder} is not there on the cluster's machine {address}: --out must lie on "
                    "a file system that all machines share"
                )
    finally:
        probe.unlink()
