"""A Ray cluster: finding one, or beginning one here, and what there is room for.

Ray is imported when a run needs it.
"""

import os
import re
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
from urllib.parse import urlsplit

from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes.app_bundle import write_package

_PATIENCE = 10.0  # seconds for a cluster to answer, or for its last process to end
_SOCKETS = 107 - len("/r/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store")


class WorkerFailed(RuntimeError):
    """A worker that raised, or died; one line that names it."""


def worker_failed(ray_error: Exception) -> WorkerFailed:
    """Return in one line what ``ray.get`` raised for a worker: Ray's text has both tracebacks."""
    text = str(ray_error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    why = lines[-1] if lines else type(ray_error).__name__
    places = (re.search(rf"\b{name}[=:] ?([\w.:]+)", text) for name in ("pid", "ip"))
    process, machine = (place[1] if place else "?" for place in places)
    return WorkerFailed(f"a worker failed (process {process} on {machine}): {why}")


@dataclass(frozen=True)
class Workers:
    """The resources that a run asks of a cluster.

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
    """Add the default number of GPUs, if none is given."""
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

    if ray.is_initialized():  # the caller that connected also disconnects
        yield ray
        return
    quiet = {"log_to_driver": False, "logging_level": "error"}
    address, in_job = os.environ.get("RAY_ADDRESS", ""), "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
    address = "" if address == "local" else address
    if address and not in_job:
        _check_address(address)
    with _own_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if in_job:  # the job's working directory holds the code
                ray.init(**quiet)
            elif not address:
                # Logs tell of every task; below /tmp/ray anybody could read them, for ever. Ray
                # opens the folder that it is given to all: it lies in one that nobody else enters.
                inner = str(folder / "r")
                ray.init(address="local", include_dashboard=False, _temp_dir=inner, **quiet)
            else:
                package = write_package(folder / "package")
                _connect(ray, address, runtime_env={"working_dir": str(package)}, **quiet)
            yield ray
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str, **settings: Any) -> None:
    """Connect Ray to a cluster.

    Raises:
        InputError: there is none, or one that refuses us: another version, or another token.
    """
    try:
        ray.init(address=address, **settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"RAY_ADDRESS={address}: no cluster there to work on; if it has a token, set "
            f"RAY_AUTH_MODE=token ({why})"
        ) from None


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


def _check_address(address: str) -> None:
    """Refuse an address where no cluster answers: Ray would try for many minutes.

    Raises:
        InputError: it says no port, or the job server or nobody listens there.
    """
    if address == "auto" or address.startswith("ray://"):
        return  # Ray looks itself
    wrong = f"RAY_ADDRESS={address}:"
    url = urlsplit(address if "//" in address else f"//{address}")
    name = url.hostname or "HOST"
    meant = f"{f'[{name}]' if ':' in name else name}:6379, as `ray start --head` prints it"
    if url.scheme in ("http", "https"):
        raise InputError(f"{wrong} that is the job server's address; the cluster's is {meant}")
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal()) or url.scheme:
        raise InputError(f"{wrong} must be HOST:PORT, such as {meant}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as server:
            server.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = server.recv(5)
    except ConnectionResetError:
        return  # so may a cluster answer what is not its protocol
    except (OSError, OverflowError) as error:
        raise InputError(f"{wrong} no cluster there ({error})") from None
    if answer == b"HTTP/":
        raise InputError(f"{wrong} a web server answers, such as Ray's job server; give {meant}")


def workers_of(ray: Any, workers: Workers) -> int:
    """The number of workers: as requested, or as many as the cluster has room for.

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
    """The resources of each machine of the cluster, by names such as CPU and GPU."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room(machine: Mapping[str, float], workers: Workers) -> int:
    """The number of workers that fit on one machine: none is spread over two, nor a share of a
    GPU."""
    room = int(machine.get("CPU", 0)) // workers.cpus
    gpus = int(machine.get("GPU", 0))
    if not workers.gpus:
        return room
    share = workers.gpus
    return min(room, gpus * int(1.0 / share + 1e-9) if share <= 1.0 else gpus // int(share))
