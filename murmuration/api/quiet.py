"""Libraries that are good neighbours, need no network, and say errors only."""

import logging
import os

from murmuration.client.isolated import LOOPBACK

#: Torch's OpenMP, and OpenBLAS of NumPy and SciPy (2⁴ cycles, the least; by default it is 2²⁶).
SLEEPING = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
#: How often a thread of GNU's OpenMP, torch's on Linux, looks for work before it sleeps: for some
#: tenth of a millisecond.
LOOKING = {"GOMP_SPINCOUNT": "10000"}


def quiet_libraries(*, threads_sleep: bool = True) -> None:
    """Set what libraries read when they are imported, unless the user has said otherwise.

    With ``threads_sleep``, idle threads do not spin: that takes the cores from those that work,
    where others use the machine too.
    """
    for name, value in {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_usage_stats_enabled": "0",
        "TOKENIZERS_PARALLELISM": "false",
        **(SLEEPING if threads_sleep else {}),
    }.items():
        os.environ.setdefault(name, value)
    for name in (
        "no_proxy",
        "NO_PROXY",
    ):  # our own servers of this machine are never asked by proxy
        others = os.environ.get(name, "")
        missing = [host for host in LOOPBACK if host not in others.split(",")]
        if others != "*":
            os.environ[name] = ",".join([others, *missing] if others else missing)
    # Flower sets the level of its log when it is imported, which may be later; a filter stays.
    logging.getLogger("flwr").addFilter(_is_error)


def look_for_work_where_idle() -> None:
    """Let idle threads spin for a moment before they sleep, if no other process uses the cores.

    Generation needs hundreds of small matrix products per token: a quarter of the time is spent
    waking threads. If other processes use the cores, spinning would cost more than it gains; this
    is checked once, in the tenth of a second of this call. The user's own settings stay.
    """
    if os.environ.keys() & {"OMP_WAIT_POLICY", *LOOKING}:
        return
    import psutil

    try:
        busy = psutil.cpu_percent(0.1) / 100 * (psutil.cpu_count() or 1)
    except OSError:  # a sandbox without /proc
        return
    if busy < 0.5:
        os.environ.update(LOOKING)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
