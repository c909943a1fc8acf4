"""Kills a run again and again with SIGKILL, resumes it, and checks what it left behind.

    python -m murmuration.research.stress.crash --kills 20              a seeded simulation
    python -m murmuration.research.stress.crash --kills 20 --unseeded   fresh sampling and noise

One run of ``murmuration run`` in a process of its own is killed at random moments until it has been
killed often enough, and then left to finish. At every kill, and at the end:

- every round of which a metric or a checkpoint exists has its line in the ledger;
- what the ledger says was spent is within the budget;
- a kill has cost one round that is charged again, at most;
- a seeded run that no kill cost a round has the final weights of one that was never interrupted.

Processes are forked from a server that has the libraries loaded, so that most of the time is spent
in rounds, where the kills are to fall. Prints a table; the exit code is 1 if anything is amiss.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
from rich.table import Table
from safetensors.numpy import load_file

from murmuration.cli import main as command_line
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import events
from murmuration.privacy.accounting.accountant import epsilon
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.population.population import Population, write
from murmuration.terminal.terminal import Terminal

_EPSILON, _DELTA, COHORT, _USERS = 0.5, 1e-3, 20, 60
_PATIENCE = 300.0  # seconds for a process to reach its next round


@dataclass(frozen=True)
class Left:
    """The files of a run on disk when it was killed, or at its end."""

    charges: int
    charged: int  # distinct rounds
    metrics: int  # last round with metrics
    checkpoint: int
    epsilon: float
    faults: tuple[str, ...]


def inspect(run: Path, *, kills: int) -> Left:
    """The content of a run directory after so many kills, and what is wrong with it."""
    rounds, spent = _ledger(run / "ledger.jsonl")
    metrics = [line["round"] for line in _complete_lines(run / "metrics.jsonl")]
    state = run / "checkpoint" / "state.safetensors"
    checkpoint = int(load_file(state)["round"][0]) if state.exists() else 0
    released = set(metrics) | set(range(1, checkpoint + 1))
    cost = epsilon(spent.items(), adjacency=Adjacency.ADD_REMOVE, delta=_DELTA)
    faults = []
    if missing := sorted(released - set(rounds)):
        faults.append(f"released but not charged: rounds {missing}")
    if cost > _EPSILON:
        faults.append(f"spent {cost:.4f}, more than the budget")
    if (again := sum(rounds.values()) - len(rounds)) > kills:
        faults.append(f"{again} rounds charged again after {kills} kills")
    if metrics != sorted(set(metrics)):
        faults.append("metrics are out of order")
    return Left(
        charges=sum(rounds.values()),
        charged=len(rounds),
        metrics=max(metrics, default=0),
        checkpoint=checkpoint,
        epsilon=cost,
        faults=tuple(faults),
    )


def check(
    folder: Path, *, kills: int, rounds: int, seeded: bool, randomness: random.Random
) -> list[Left]:
    """Kill a run ``kills`` times in ``folder``, let it finish; what it had left each time.

    The last entry is that of the end. Raises RuntimeError if a process fails of itself.
    """
    write(folder / "data", Population(users=_USERS, test_users=2, unseen_users=2))
    data = next((folder / "data").glob("train*"))
    options = [
        *("--data", str(data), "--rounds", str(rounds), "--cohort", str(COHORT)),
        *("--epsilon", str(_EPSILON), "--delta", str(_DELTA), "--users-per-node", "7"),
        *(("--seed", "5") if seeded else ()),
    ]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "murmuration.cli.main",
            "murmuration.cli.run_settings",
            "murmuration.sims.runtimes.execute",
        ]
    )

    def start(run: Path) -> BaseProcess:
        resume = ("--resume",) if (run / "config.json").exists() else ()
        arguments = ["run", *options, "--out", str(run), *resume]
        process = context.Process(target=_murmuration, args=(arguments, str(folder / "log")))
        process.start()
        return process

    found = []
    run = folder / "killed"
    for kill in range(kills):
        process = start(run)
        done = found[-1].charged if found else 0
        if kill % 5 == 4:  # while it starts
            time.sleep(randomness.uniform(0.0, 2.0))
        else:  # in a round, spread over what is left of them
            target = done + randomness.randint(0, max(1, 2 * (rounds - done) // (kills - kill + 1)))
            _wait_for(process, run / "ledger.jsonl", target, folder / "log")
            time.sleep(randomness.uniform(0.0, 0.02))
        process.kill()
        process.join()
        found.append(inspect(run, kills=kill + 1))
    _finish(start(run), folder / "log")
    end = inspect(run, kills=kills)
    faults = list(end.faults)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    if not math.isclose(result["epsilon"], end.epsilon, rel_tol=1e-9):
        faults.append(f"the result says epsilon = {result['epsilon']}")
    lost = end.charges - end.charged
    if result["rounds"] < rounds - lost:
        faults.append(f"ended at round {result['rounds']}")
    if seeded and not lost:
        _finish(start(folder / "whole"), folder / "log")
        same = _weights(run).tobytes() == _weights(folder / "whole").tobytes()
        faults += [] if same else ["other weights than without interruption"]
    found.append(Left(**{**end.__dict__, "faults": tuple(faults)}))
    return found


def _murmuration(arguments: list[str], log: str) -> None:
    """The command line in a process that was forked for it."""
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["murmuration", *arguments]
    command_line.main()


def _wait_for(process: BaseProcess, ledger: Path, charges: int, log: Path) -> None:
    """Wait until the ledger has this number of charges, or the process has ended well."""
    deadline = time.monotonic() + _PATIENCE
    while process.is_alive() and time.monotonic() < deadline:
        if ledger.exists() and ledger.read_bytes().count(b"\n") > charges:
            return
        time.sleep(0.001)
    _finish(process, log)


def _finish(process: BaseProcess, log: Path) -> None:
    process.join(_PATIENCE)
    if process.exitcode != 0:
        process.kill()
        text = log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"a run failed by itself (exit {process.exitcode}):\n{text[-2000:]}")


def _ledger(path: Path) -> tuple[Counter[int], Counter[events.Event]]:
    """The number of charges of each round and each event; a torn last line was never released."""
    lines = _complete_lines(path)[1:]
    rounds = Counter(line["round"] for line in lines)
    return rounds, Counter(events.from_json(line["event"]) for line in lines)


def _complete_lines(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _weights(run: Path) -> np.ndarray:
    return load_file(run / "model" / "model.safetensors")["theta_D"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--unseeded", action="store_true")
    parser.add_argument("--seed", type=int, help="of the moments to kill at")
    options = parser.parse_args()
    if options.kills < 1 or options.rounds < 1:
        parser.error("--kills and --rounds must be at least 1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before the server of processes starts
    with tempfile.TemporaryDirectory() as folder:
        result = check(
            Path(folder),
            kills=options.kills,
            rounds=options.rounds,
            seeded=not options.unseeded,
            randomness=random.Random(options.seed),
        )
    table = Table("kill", "charges", "rounds charged", "metrics", "checkpoint", "ε", "verdict")
    for number, left in enumerate(result, start=1):
        table.add_row(
            "end" if number == len(result) else str(number),
            *(str(n) for n in (left.charges, left.charged, left.metrics, left.checkpoint)),
            f"{left.epsilon:.4f}",
            "; ".join(left.faults) or "good",
        )
    Terminal().print(table)
    faults = sum(len(left.faults) for left in result)
    print(f"{options.kills} kills, {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
