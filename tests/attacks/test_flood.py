"""A SuperLink under floods: its memory stays, everybody is refused, and honest rounds go on.

``python -m pytest -m deploy tests/attacks/test_flood.py -s`` prints the figures of the pages.
"""

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from deployment import POLICY, World

from murmuration.deploy.certificates import client_key
from murmuration.deploy.processes import wait_for

pytestmark = pytest.mark.deploy

FLOOD = Path(__file__).with_name("flood.py")
ROUNDS, QUIET = 25, 4
MIB = 2**20


class Watched:
    """The SuperLink's memory and the times of a run's rounds, by phase."""

    def __init__(self, process, metrics):
        self._process, self._metrics = process, metrics
        self.phase, self.memory, self.times = "quiet", {}, {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        rounds = 0
        while not self._ended.wait(0.05):
            phase, now = self.phase, time.monotonic()
            used = self._process.memory_info().rss / MIB
            self.memory[phase] = max(used, self.memory.get(phase, 0.0))
            done = self._metrics.read_text().count("\n") if self._metrics.exists() else 0
            if done > rounds:
                rounds = done
                self.times.setdefault(phase, []).append(now)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def seconds(self, phase):
        """The median time of a round."""
        steps = [b - a for a, b in itertools.pairwise(self.times.get(phase, []))]
        return round(statistics.median(steps), 2) if steps else None


def flood(*arguments):
    command = [sys.executable, str(FLOOD), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(1800)
def test_floods_are_refused_and_take_no_memory(tmp_path):
    policy = POLICY.replace("max_rounds = 20", f"max_rounds = {ROUNDS}")
    world = World(tmp_path, ("a", "b"), users=8, policy=policy)
    private, public = client_key()
    key = tmp_path / "x.key"
    key.write_bytes(private)
    (world.client("x")).mkdir()  # registered, and hosts nobody
    (world.client("x") / "node.pub").write_bytes(public)
    found = {}
    with world.running() as site:
        target = world.deployment.address, site.server / "ca.crt"
        metrics = tmp_path / "run" / "metrics.jsonl"
        superlink = site.programs["superlink"]._main()
        with Watched(psutil.Process(superlink.pid), metrics) as watched:

            def floods():
                quiet = f"{QUIET} rounds"
                wait_for(lambda: len(watched.times.get("quiet", ())) >= QUIET, 600, quiet)
                watched.phase = "strangers"
                found["strangers"] = flood("strangers", *target)
                watched.phase = "node"
                found["node"] = flood("node", *target, key)
                watched.phase = "afterwards"

            flooding = threading.Thread(target=floods)
            flooding.start()
            result = world.run(site, world.config("run", rounds=ROUNDS, cohort=6, users=8))
            flooding.join()
            time.sleep(1.0)
    memory = {phase: round(mib) for phase, mib in watched.memory.items()}
    times = {phase: watched.seconds(phase) for phase in memory}
    print(json.dumps({"memory, MiB": memory, "seconds a round": times, **found}, indent=1))
    assert result["rounds"] == ROUNDS
    log = (tmp_path / "run" / "private" / "log.jsonl").read_text()
    assert "left out" not in log
    for kind, count in (("large", 1_500), ("small", 10_000)):
        answered = found["strangers"][kind]["answered"]
        assert set(answered) <= {"401", "0"}
        assert sum(answered.values()) == count
    # Chunks for the number of another node are refused by Flower, and by us after 1 GiB.
    assert set(found["node"]["too long"]["answered"]) <= {"413", "0"}
    assert "200" not in found["node"]["too much"]["answered"]
    assert found["node"]["too much"]["answered"]["503"] > 0
    assert set(found["node"]["too many"]["answered"]) == {"503"}
    # What the connections that it holds at a time may take; one body grew it by 1,500.
    assert max(memory.values()) < memory["quiet"] + 300
