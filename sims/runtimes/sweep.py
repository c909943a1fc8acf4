"""Many runs: one after the other here, or side by side on a Ray cluster.

Each run has a folder of its own, so a sweep that was interrupted continues where it stopped: runs
that are complete are read, others are resumed. On a cluster the folders must lie on a file system
that all its machines share; that is tried before the first run starts. A run whose machine is lost
is started again by Ray on another, and resumes there from its last checkpoint.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.ledger import LedgerInUse
from murmuration.server.run_lock import RunInUse
from murmuration.sims.runtimes.execute import execute
from murmuration.sims.runtimes.ray_cluster import cluster, machines
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted


@dataclass(frozen=True)
class Failed:
    """A run that was begun and came to nothing: nodes failed, or were not there."""

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
    if not configs:
        return []
    with cluster() as ray:
        there = [int(machine.get("CPU", 0)) for machine in machines(ray)]
        if max(there) < cpus:
            raise InputError(
                f"--cpus-per-run {cpus}: no machine of the cluster has as many CPUs; the most is "
                f"{max(there)}"
            )
        remote = ray.remote(num_cpus=cpus, max_retries=-1)
        _check_shared(ray, Path(configs[0].out).parent)
        task = remote(_outcome_with).options(scheduling_strategy="SPREAD")
        waiting = {task.remote(config, cpus): place for place, config in enumerate(configs)}
        outcomes: dict[int, Outcome] = {}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            place = waiting.pop(done)
            outcomes[place] = ray.get(done)
            on_run(Path(configs[place].out).name)
    return [outcomes[place] for place in range(len(configs))]


def _outcome_with(config: RunConfig, cpus: int) -> Outcome:
    """A task of a cluster: nothing but its own processors."""
    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(cpus)
    return _outcome(config)


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
    """Every machine of the cluster must see what is written here."""
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
            if not ray.get(result):
                raise InputError(
                    f"{folder} is not there on the cluster's machine {address}: --out must lie on "
                    "a file system that all machines share"
                )
    finally:
        probe.unlink()
