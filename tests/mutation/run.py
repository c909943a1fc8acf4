"""Put each fault of ``faults.toml`` into a copy of the checkout, and see whether its tests fail.

Writes a JSON line for each fault, and prints the summary; ends with 1 if a fault was not caught.
"""

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from faults import ROOT, Fault, load

SECONDS = 900.0  # that the tests of one fault may take
CAUGHT, SURVIVED, TIMED_OUT, BROKEN = "caught", "SURVIVED", "TIMED OUT", "DID NOT RUN"


@dataclass(frozen=True)
class Outcome:
    """What came of a fault, and the test that failed first."""

    name: str
    outcome: str
    seconds: float
    test: str


def copy_checkout(place: Path) -> Path:
    """Copy the files that git knows; links stay links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        copied = place / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copied, follow_symlinks=False)
    return place


def tried(fault: Fault, checkout: Path) -> Outcome:
    """Put a fault into the copy, run its tests, and take it out again."""
    file = checkout / fault.file
    code = file.read_text(encoding="utf-8")
    file.write_text(fault.applied(code), encoding="utf-8")
    started = time.monotonic()
    try:
        outcome, test = run_tests(fault, checkout)
    finally:
        file.write_text(code, encoding="utf-8")
    return Outcome(fault.name, outcome, round(time.monotonic() - started, 1), test)


def run_tests(fault: Fault, checkout: Path) -> tuple[str, str]:
    """Return what the tests of a fault make of it, and the first one that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(
            [*command, *fault.covering],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return (CAUGHT if fault.hangs else TIMED_OUT), ""
    lines = ended.stdout.splitlines()
    failed = next((line.split()[1] for line in lines if line.startswith("FAILED ")), "")
    if ended.returncode == 0:
        return SURVIVED, ""
    if ended.returncode == 1 and failed:
        return CAUGHT, failed
    return BROKEN, "\n".join([*lines, ended.stderr])[-2000:]


def try_all(faults: list[Fault], jobs: int, out: Path) -> Counter[str]:
    """Try faults, in so many copies at a time; return how often each outcome was."""
    counts: Counter[str] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="mutation-") as folder,
        out.open("w", encoding="utf-8") as lines,
        ThreadPoolExecutor(jobs) as pool,
    ):
        free: queue.Queue[Path] = queue.Queue()
        for job in range(jobs):
            free.put(copy_checkout(Path(folder) / str(job)))

        def in_a_copy(fault: Fault) -> Outcome:
            checkout = free.get()
            try:
                return tried(fault, checkout)
            finally:
                free.put(checkout)

        for future in as_completed([pool.submit(in_a_copy, fault) for fault in faults]):
            result = future.result()
            counts[result.outcome] += 1
            lines.write(json.dumps(asdict(result)) + "\n")
            lines.flush()
            print(f"{result.outcome:11} {result.seconds:6.1f} s  {result.name}", flush=True)
    return counts


def main() -> int:
    """Try the faults that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    faults = [fault for fault in load() if not arguments.only or fault.name in arguments.only]
    for fault in faults:
        fault.applied((ROOT / fault.file).read_text(encoding="utf-8"))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    counts = try_all(faults, arguments.jobs, arguments.out)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return int(counts[CAUGHT] < len(faults) or not faults)


if __name__ == "__main__":
    sys.exit(main())
