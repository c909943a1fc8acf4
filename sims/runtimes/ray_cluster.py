"""A Ray cluster: finding one, or beginning one here, and what there is room for.

Ray is imported when a run needs it.
"""

import os
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.preference.data.judgements import InputError
from murmuration.sims.runtimes.app_bundle import write_bundle

_PATIENCE = 10.0  # seconds for a cluster to answer, or for its last process to end
_SOCKETS = 107 - len("/r/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")


@dataclass(frozen=True)
class Workers:
    """What a run asks of a cluster.

    0 workers: as many as there is room for. GPUs None: one each where a language model is learnt on
    and some machine has any; see ``with_gpus``.
    """

    number: int = 0
    cpus: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.number < 0:
            raise InputError(f"--workers must be at least 1; got {self.number}")
        if self.cpus < 1:
            raise InputError(f"--cpus-per-worker must be at least 1; got {self.cpus}")
        # What Ray can give: it counts in ten-thousandths, and a worker has parts of one GPU only.
        gpus = self.gpus or 0.0
        if not (gpus == 0.0 or 1e-4 <= gpus <= 1.0 or 1.0 < gpus // 1 == gpus):
            raise InputError(
                "--gpus-per-worker must be a share between 0.0001 and 1, or a whole number; "
                f"got {gpus:g}"
            )


def with_gpus(ray: Any, workers: Workers, language_model: bool) -> Workers:
    """Return what is asked for, where nobody said how many GPUs."""
    if workers.gpus is not None:
        return workers
    there = any(machine.get("GPU", 0) >= 1 for machine in machines(ray))
    return replace(workers, gpus=1.0 if language_model and there else 0.0)


@contextmanager
def cluster() -> Iterator[Any]:
    """Ray, connected: to RAY_ADDRESS, to the job we are part of, or to a cluster of our own.

    Raises:
        InputError: there is no cluster at that address.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():  # whoever connected also disconnects
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    address, in_job = os.environ.get("RAY_ADDRESS"), "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    with _own_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if in_job:  # the job's working directory holds the code
                ray.init(**quiet)
            elif address is None:
                # Logs tell of every task; below /tmp/ray anybody could read them, for ever. Ray
                # opens the folder that it is given to all: it lies in one that nobody else enters.
                inner = str(folder / "r")
                ray.init(address="local", include_dashboard=False, _temp_dir=inner, **quiet)
            else:
                _check_answers(address)
                bundle = write_bundle(folder / "app", {})
                try:
                    ray.init(address=address, runtime_env={"working_dir": str(bundle)}, **quiet)
                except ConnectionError as error:
                    raise InputError(f"RAY_ADDRESS={address}: no cluster there ({error})") from None
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def _own_folder() -> Iterator[Path]:
    """A folder that nobody else can enter, its path short enough for Ray's sockets; removed after
    use."""
    folder = Path(tempfile.mkdtemp(prefix="murmuration-"))
    if len(os.fsencode(folder)) > _SOCKETS:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="murmuration-", dir="/tmp"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + _PATIENCE
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)  # Ray's last processes may still write
            if folder.exists():
                time.sleep(0.1)


def _check_answers(address: str) -> None:
    """InputError unless somebody listens there: Ray would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()) or "/" in host:
        return  # a word that Ray knows, such as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"RAY_ADDRESS={address}: no cluster there ({error})") from None


def workers_of(ray: Any, workers: Workers) -> int:
    """Return how many workers there are: as many as are asked for, or as the cluster has room for.

    Raises:
        InputError: there is not room for one, or for as many as were asked for.
    """
    there = machines(ray)
    room = sum(_room(machine, workers) for machine in there)
    if room < max(1, workers.number):
        cpus, gpus = (
            ", ".join(f"{machine.get(kind, 0):g}" for machine in there) for kind in ("CPU", "GPU")
        )
        raise InputError(
            f"the cluster's machines have {cpus} CPUs and {gpus} GPUs: room for {room} workers of "
            f"{workers.cpus} CPUs and {workers.gpus or 0.0:g} GPUs; ask for less (--workers, "
            "--cpus-per-worker, --gpus-per-worker)"
        )
    return workers.number or room


def machines(ray: Any) -> list[dict[str, float]]:
    """Return what each machine of the cluster has, by names such as CPU and GPU."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room(machine: Mapping[str, float], workers: Workers) -> int:
    """Return how many workers one machine has room for: none is spread over two, nor a share of a
    GPU."""
    room = int(machine.get("CPU", 0)) // workers.cpus
    gpus = int(machine.get("GPU", 0))
    if not workers.gpus:
        return room
    share = workers.gpus
    return min(room, gpus * int(1.0 / share + 1e-9) if share <= 1.0 else gpus // int(share))
