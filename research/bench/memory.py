"""The memory of a whole run as the number of users grows.

Each run has a process of its own. Two figures: the most that was in memory of what the process
uses, and the most of it that is the process's own. The difference is mostly mapped files, feature
rows above all (``preference.features.mapped_rows``): they stay in memory as long as there is room,
and only as long.
"""

import json
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from murmuration.research.bench.growth import measure
from murmuration.research.bench.setting import Setting

POINTS = (
    *(Setting(users=n, cohort=1000) for n in (2500, 10_000, 40_000, 100_000)),
    Setting(users=1_000_000, cohort=1000, each=3),
)

_BETWEEN = 0.02  # seconds from one look to the next
_STATUS = Path("/proc/self/status")


def measure_memory(setting: Setting, rounds: int) -> dict[str, Any]:
    """The row of a run in a process of its own, with the most memory that process had."""
    numbers = (setting.users, setting.cohort, setting.dimension, setting.each, rounds)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "murmuration.research.bench.memory", *map(str, numbers)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{setting} failed: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


class OwnMemory:
    """Records this process's own memory, at intervals and at the end (Linux)."""

    def __init__(self) -> None:
        self.most_mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "OwnMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._note()

    def _look(self) -> None:
        while not self._ended.wait(_BETWEEN):
            self._note()

    def _note(self) -> None:
        if _STATUS.exists():
            lines = _STATUS.read_text(encoding="utf-8").splitlines()
            (kib,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
            self.most_mib = max(self.most_mib, kib / 1024)


def main(users: int, cohort: int, dimension: int, each: int, rounds: int) -> None:
    """Make one run here; print its row as a JSON line."""
    with OwnMemory() as own:
        row = measure(Setting(users, cohort, dimension, each), rounds)
    row["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row["own_mib"] = own.most_mib or None
    print(json.dumps(row))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:6]))
