"""The cost of a deployed round for a client, in bytes and seconds, beside Flower's own minimum.

python -m murmuration.research.bench.deployment FOLDER [ROUNDS] [DIMENSION …]

Two clients of two users each, a SuperLink with TLS and node authentication. Between each
SuperNode and the SuperLink sits a relay that counts bytes (TLS, HTTP and polling included). The
floor is what a round costs with two features. Only the rounds after the first are counted: in the
first the app itself is fetched.
"""

import contextlib
import itertools
import json
import socket
import statistics
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from murmuration.deploy.init import Deployment
from murmuration.deploy.processes import ended_by_signals, wait_for
from murmuration.deploy.run import run_deployed
from murmuration.research.stress.chaos import POLICY
from murmuration.research.stress.site import Site, hand_out
from murmuration.sims.population.population import Population
from murmuration.strategies.config import RunConfig

CLIENTS = ("a", "b")
FLOOR = 2


class Relay:
    """Passes TCP connections on to a port and counts what goes up and down."""

    def __init__(self, port: int) -> None:
        self.up = self.down = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            for source, target, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass, args=(source, target, up), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if up:
                    self.up += len(data)
                else:
                    self.down += len(data)
                target.sendall(data)
        except OSError:
            pass
        finally:
            for side in (source, target):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()


def main(folder: Path, rounds: int, dimensions: list[int]) -> list[dict[str, float]]:
    """Measure each dimension; a line of the table each."""
    folder = folder.absolute()
    deployment = Deployment(("127.0.0.1",), 18_533, CLIENTS, dict.fromkeys(CLIENTS, 2))
    people = Population(users=4, test_users=1, unseen_users=1)
    policy = POLICY.replace("9.0", "1e6") + "max_dimension = 2_000_000\n"
    hand_out(folder, deployment, people, CLIENTS, policy)
    relays = {name: Relay(deployment.port) for name in CLIENTS}
    result = []
    with Site(folder / "deployment", deployment, folder / "logs") as site:
        site.start_superlink()
        site.start_superexec()
        site.register()
        for name in CLIENTS:
            site.start_agent(name, folder / f"{name}.jsonl", wait=False)
        for number, name in enumerate(CLIENTS):
            wait_for(site.socket(name).is_socket, 300, "an agent")
            through = replace(deployment, port=relays[name].port)
            Site.start_node(_at(site, through), name, site.socket(name), 19_400 + number)
        for dimension in [FLOOR, *dimensions]:
            result.append(_measure(folder, site, deployment, relays, rounds, dimension))
            print(json.dumps(result[-1]), flush=True)
    for relay in relays.values():
        relay.close()
    (folder / "bench.json").write_text(json.dumps(result, indent=1))
    return result


def _at(site: Site, deployment: Deployment) -> Site:
    other = Site(site.folder, deployment, site.logs)
    other.programs = site.programs
    return other


def _measure(
    folder: Path,
    site: Site,
    deployment: Deployment,
    relays: dict[str, Relay],
    rounds: int,
    dimension: int,
) -> dict[str, float]:
    out = folder / f"run-{dimension}"
    config = RunConfig(
        data="",
        test=str(folder / "population" / "test.jsonl.gz"),
        features=f"hashing:{dimension}",
        adjacency="zero-out",
        rounds=rounds,
        cohort=4,
        users=4,
        epsilon=8.0,
        delta=1e-3,
        group_size=16,
        clip_norm=0.1,
        out=str(out),
        timeout=300.0,
        min_nodes=len(CLIENTS),
    )
    marks: list[tuple[float, int, int]] = []
    stop = threading.Event()

    def watch() -> None:
        path = out / "metrics.jsonl"
        while not stop.wait(0.02):
            done = path.read_text().count("\n") if path.exists() else 0
            if done > len(marks):
                up = sum(relay.up for relay in relays.values())
                marks.append((time.monotonic(), up, sum(r.down for r in relays.values())))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        run_deployed(site.server, deployment.address, config, attempts=1)
    finally:
        stop.set()
        thread.join()
    steps = list(itertools.pairwise(marks))
    return {
        "dimension": dimension,
        "seconds": round(statistics.median(b[0] - a[0] for a, b in steps), 2),
        "up": round(statistics.median((b[1] - a[1]) / len(relays) for a, b in steps)),
        "down": round(statistics.median((b[2] - a[2]) / len(relays) for a, b in steps)),
    }


if __name__ == "__main__":
    with ended_by_signals():
        sizes = [int(text) for text in sys.argv[3:]] or [1_000, 100_000, 1_000_000]
        main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5, sizes)
