"""A deployment under attack and accident, on this machine, and whether its promises hold.

    python -m murmuration.research.stress.chaos FOLDER [ROUNDS]

Four honest clients of 60 users each and one that means harm (``research.stress.rogue_node``), a
SuperLink with TLS and node authentication. At set rounds something is killed, restarted or dropped
for good. At the end: the run has ended, the ledger has at least what was released and at most the
budget, and the accuracy is that of quiet simulations of the same plan. Everything measured is
written to ``chaos.json``, and a table of faults to ``chaos.md``.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from murmuration.client.app import app as client_app
from murmuration.client.isolated import python
from murmuration.deploy import outsider
from murmuration.deploy.init import Deployment
from murmuration.deploy.processes import Program, ended_by_signals, wait_for
from murmuration.deploy.run import run_deployed
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.stress.site import Site, hand_out
from murmuration.server.run import run_training
from murmuration.sims.population.population import Population
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig


def outcome(
    chaos: "Chaos", result: dict[str, object], quiet: list[float], started: float
) -> dict[str, object]:
    """All measurements: ``quiet`` are accuracies of simulations, ``started`` the time when rounds
    began.

    Raises LedgerError if the ledger does not match the run's settings.
    """
    charges = read_charges(chaos.out / "ledger.jsonl")
    rounds = {charge.round for charge in charges}
    config = chaos.config
    with Ledger(
        chaos.out / "ledger.jsonl",
        adjacency=Adjacency(config.adjacency),
        delta=config.delta,
        budget=config.epsilon,
    ) as ledger:
        epsilon = ledger.epsilon()
    log = (chaos.out / "private" / "log.jsonl").read_text().splitlines()
    left_out = [line for line in map(json.loads, log) if "left out" in line]
    harms = chaos.folder / "harms.jsonl"
    ends = sorted(chaos.times.items())
    starts = [started, *(at for _, at in ends)]
    seconds = {
        round_: round(at - before, 1) for (round_, at), before in zip(ends, starts, strict=False)
    }
    return {
        "rounds": result.get("rounds"),
        "stopped": result.get("stopped"),
        "released": chaos.rounds_done(),
        "charges": len(charges),
        "charged every round": set(range(1, chaos.rounds_done() + 1)) <= rounds,
        "epsilon": epsilon,
        "budget": config.epsilon,
        "accuracy": result.get("heldout_accuracy"),
        "quiet": quiet,
        "spread": statistics.pstdev(quiet),
        "seconds": seconds,
        "faults": chaos.done,
        "left out": left_out,
        "harms": [json.loads(line) for line in harms.read_text().splitlines()],
    }


def table(found: dict[str, object]) -> str:
    """Each fault, when, and what the rounds after it took."""
    lines = ["| after round | fault | seconds of the next three rounds |", "|---|---|---|"]
    seconds: dict[int, float] = found["seconds"]  # type: ignore[assignment]
    for fault in found["faults"]:  # type: ignore[union-attr]
        after = int(fault["after"])
        took = [str(seconds.get(after + more, "–")) for more in (1, 2, 3)]
        lines.append(f"| {after} | {fault['fault']} | {', '.join(took)} |")
    return "\n".join(lines) + "\n"


HONEST, ROGUE = ("a", "b", "c", "d"), "x"
NODE_PARTS = ("node", "executor")
USERS, BUDGET, DELTA = 240, 8.0, 1e-5
POLICY = """\
strategies = ["uls"]
adjacency = "zero-out"
max_epsilon = 9.0
delta = 1e-5
max_clip = 0.1
max_group_size = 16
max_rounds = 1000
max_repeats = 5
"""


@dataclass(frozen=True)
class Fault:
    """A fault of the deployment, injected after a number of rounds."""

    after: int
    what: str
    do: Callable[["Chaos"], None]


class Chaos:
    """The deployment and what happens to it."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.out = folder, folder / "run"
        self.deployment = Deployment(
            ("127.0.0.1",), 18_477, (*HONEST, ROGUE), dict.fromkeys(HONEST, 60) | {ROGUE: 8}
        )
        self.config = RunConfig(
            data="",
            test=str(folder / "population" / "test.jsonl.gz"),
            adjacency="zero-out",
            rounds=rounds,
            cohort=USERS // 2,
            users=USERS,
            epsilon=BUDGET,
            delta=DELTA,
            clip_norm=0.1,
            group_size=16,
            out=str(self.out),
            timeout=20.0,
            min_nodes=3,
        )
        self.times: dict[int, float] = {}
        self.done: list[dict[str, object]] = []
        self.dropped: set[str] = set()
        self.stop = threading.Event()

    def prepare(self) -> None:
        """Judgements, keys and policies."""
        people = Population(users=USERS, test_users=60, unseen_users=10)
        hand_out(self.folder, self.deployment, people, HONEST, POLICY)

    def data(self, name: str) -> Path:
        """A client's judgements."""
        return self.folder / f"{name}.jsonl"

    def start(self, site: Site) -> None:
        """Start all processes."""
        self.site = site
        site.start_superlink()
        site.start_superexec()
        site.register()
        for name in HONEST:
            site.start_agent(name, self.data(name), wait=False)
        self.rogue = self.folder / "x.sock"
        command = python("-m", "murmuration.research.stress.rogue_node", str(self.rogue))
        site.start("x-rogue", [*command, str(self.folder / "harms.jsonl"), "45"])
        for name in HONEST:
            wait_for(self.socket(name).is_socket, 300, f"agent of {name}")
        wait_for(self.rogue.is_socket, 300, "the rogue")
        for name in (*HONEST, ROGUE):
            self.start_node(name)

    def socket(self, name: str) -> Path:
        """The socket of a client's agent."""
        return self.rogue if name == ROGUE else self.site.socket(name)

    def start_node(self, name: str) -> Program:
        """A client's SuperNode."""
        port = 19_300 + (*HONEST, ROGUE).index(name)
        return self.site.start_node(name, self.socket(name), port)

    def look_after(self) -> None:
        """As ``deploy client`` does, restart programs that ended, except those dropped for good."""
        while not self.stop.wait(5.0):
            for name in (*HONEST, ROGUE):
                parts = [self.site.programs.get(f"{name}-{part}") for part in NODE_PARTS]
                if None in parts or name in self.dropped:
                    continue
                if not all(program.alive for program in parts if program):
                    self.start_node(name)

    def rounds_done(self) -> int:
        """The number of rounds with metrics on disk."""
        path = self.out / "metrics.jsonl"
        if not path.exists():
            return 0
        lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
        return int(json.loads(lines[-1])["round"]) if lines else 0

    def watch(self, faults: Sequence[Fault]) -> None:
        """Note when rounds end, and do the faults when their time has come."""
        waiting = sorted(faults, key=lambda fault: fault.after)
        while not self.stop.wait(0.2):
            done = self.rounds_done()
            for round_ in range(1, done + 1):
                self.times.setdefault(round_, time.time())
            if waiting and done >= waiting[0].after:
                threading.Thread(target=self._do, args=(waiting.pop(0), done), daemon=True).start()

    def _do(self, fault: Fault, done: int) -> None:
        """Do a fault, beside the watching."""
        self.stop.wait(2.0)  # into the middle of the next round
        try:
            fault.do(self)
            failed = ""
        except (InputError, psutil.Error, OSError) as error:
            failed = str(error)
        self.done.append({"after": done, "fault": fault.what, "failed": failed})
        print(f"round {done}: {fault.what} {failed}", file=sys.stderr, flush=True)


def kill_node(chaos: Chaos) -> None:
    """A SuperNode vanishes; its service manager starts it again."""
    chaos.site.programs["a-node"].kill()


def kill_app(chaos: Chaos) -> None:
    """Kill a SuperNode's child processes: its executor and, if there is one, its app."""
    chaos.site.programs["b-executor"].kill()


def kill_agent(chaos: Chaos) -> None:
    """An agent vanishes and is back 15 s later."""
    chaos.site.programs["c-agent"].kill()
    time.sleep(15)
    chaos.site.start_agent("c", chaos.data("c"))


def roll_back(chaos: Chaos) -> None:
    """An agent's own ledger loses its last line: it does not start until that is back."""
    chaos.site.programs["c-agent"].kill()
    path = chaos.site.state("c") / "own-ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole[:-1].rfind(b"\n") + 1])
    chaos.site.start_agent("c", chaos.data("c"), wait=False)
    program = chaos.site.programs["c-agent"]
    try:
        wait_for(lambda: not program.alive, 120, "the agent to refuse")
    finally:
        path.write_bytes(whole)
    chaos.site.start_agent("c", chaos.data("c"))
    if "cut or rolled back" not in program.text():
        raise InputError("an agent that lost a line of its ledger ended for another reason")


def knock(chaos: Chaos) -> None:
    """Another account of this machine, without a key, asks the SuperLink for everything."""
    if os.geteuid() != 0:
        raise InputError("not tried: to be another account needs root")
    certificate = (chaos.folder / "deployment" / "server" / "ca.crt").read_bytes()
    result = outsider.tried_as("nobody", chaos.deployment.address, certificate)
    if got := [what for what, outcome in result.items() if outcome != outsider.REFUSED]:
        raise InputError(f"a stranger got an answer, or could not ask: {', '.join(got)}")


def drop(chaos: Chaos) -> None:
    """A client leaves for good."""
    chaos.dropped.add("d")
    for part in (*NODE_PARTS, "agent"):
        chaos.site.programs[f"d-{part}"].kill()


def kill_superlink(chaos: Chaos) -> None:
    """The SuperLink vanishes and is back 5 s later."""
    chaos.site.programs["superlink"].kill()
    time.sleep(5)
    chaos.site.start_superlink()


def kill_serverapp(chaos: Chaos) -> None:
    """The ServerApp vanishes; the run is submitted again."""
    for process in chaos.site.programs["superexec"].started():
        process.kill()


FAULTS = (
    Fault(1, "a stranger of this machine asks for nodes, runs and tasks", knock),
    Fault(2, "SuperNode of a: kill -9, restarted by its service manager", kill_node),
    Fault(5, "executor and app of b: kill -9 in mid-round", kill_app),
    Fault(7, "agent of c: kill -9, back after 15 s", kill_agent),
    Fault(9, "own ledger of c: cut by a line; it does not start until that is back", roll_back),
    Fault(11, "SuperLink: kill -9, back after 5 s", kill_superlink),
    Fault(13, "d: dropped for good", drop),
    Fault(16, "ServerApp: kill -9", kill_serverapp),
    Fault(19, "SuperLink: kill -9 again, back after 5 s", kill_superlink),
)


def main(folder: Path, rounds: int) -> dict[str, object]:
    """Run it all; what was measured."""
    folder = folder.absolute()
    folder.mkdir(parents=True)
    chaos = Chaos(folder, rounds)
    chaos.prepare()
    quiet = [_quiet(chaos, seed) for seed in range(3)]
    faults = [fault for fault in FAULTS if fault.after < rounds]
    with Site(folder / "deployment", chaos.deployment, folder / "logs") as site:
        chaos.start(site)
        threads = [
            threading.Thread(target=chaos.watch, args=(faults,), daemon=True),
            threading.Thread(target=chaos.look_after, daemon=True),
        ]
        started = time.time()
        try:
            for thread in threads:
                thread.start()
            result = run_deployed(
                site.server,
                chaos.deployment.address,
                chaos.config,
                attempts=10,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
        finally:
            chaos.stop.set()
            for thread in threads:
                thread.join(60)
    found = outcome(chaos, result, quiet, started)
    (folder / "chaos.json").write_text(json.dumps(found, indent=1, default=str))
    (folder / "chaos.md").write_text(table(found))
    return found


def _quiet(chaos: Chaos, seed: int) -> float:
    """The accuracy of the same plan in a simulation where nothing happens."""
    data = str(chaos.folder / "population" / "train.jsonl.gz")
    out = str(chaos.folder / f"quiet-{seed}")
    config = replace(chaos.config, data=data, seed=seed, out=out, timeout=600.0, min_nodes=0.0)
    result = run_training(config, LocalGrid(client_app, 1, config.to_run_config()))
    return float(result["heldout_accuracy"])  # type: ignore[arg-type]


if __name__ == "__main__":
    with ended_by_signals():
        print(
            json.dumps(
                main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 24),
                indent=1,
                default=str,
            )
        )
