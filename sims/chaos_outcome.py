"""What came of a deployment under attack: what was released and charged, who was left out."""

import json
import statistics
from pathlib import Path
from typing import Protocol

from privacy.adjacency import Adjacency
from privacy.ledger import Ledger, read_charges
from server.config import RunConfig


class Chaotic(Protocol):
    """What is looked at: see ``sims.chaos.Chaos``."""

    folder: Path
    out: Path
    config: RunConfig
    times: dict[int, float]
    done: list[dict[str, object]]

    def rounds_done(self) -> int:
        """How many rounds have their metrics on disk."""
        ...


def outcome(
    chaos: Chaotic, result: dict[str, object], quiet: list[float], started: float
) -> dict[str, object]:
    """Everything measured: ``quiet`` are accuracies of simulations, ``started`` when rounds began.

    Raises LedgerError if the ledger is not what the run's settings promise.
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
