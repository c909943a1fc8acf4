"""How a run on a deployment goes on, for the terminal of whoever started it.

Rounds and ε are those of the run directory, who is online is the SuperLink's. Which owners would
refuse stands in the private log; whoever may read that is told here.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.proto.control_pb2 import ListNodesRequest
from flwr.supercore.control import ControlHttpClient

from murmuration.reporting.figures import counted, share_text
from murmuration.reporting.live.progress import RoundProgress, Tail

Say = Callable[[str], None]


class Watch:
    """Says what is new about a run whenever it is asked to look.

    ``out`` is the run's folder; what is in it when the watch begins was told before.
    """

    def __init__(
        self, out: Path, rounds: int, say: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds, self._say = rounds, say
        self._progress = RoundProgress(rounds, None, clock=clock)
        self._metrics, self._log = Tail(out / "metrics.jsonl"), Tail(out / "private" / "log.jsonl")
        self._nodes = ""
        self._metrics.read()
        self._log.read()

    def look(self, client: ControlHttpClient) -> None:
        """Say what has happened since the last look, and who is online."""
        nodes = online(client)
        for line in self._log.read()[0]:
            if "would refuse" in line:
                self._say(refusing(line))
        lines, anew = self._metrics.read()
        self._progress.add(lines, anew=anew)
        left = self._progress.left
        for line in () if anew else lines:  # a resumed run's file begins with what was told before
            epsilon = line.get("epsilon")
            spent = "" if epsilon is None else f", epsilon {epsilon:.4g}"
            told = line.get("heldout_accuracy")
            accuracy = "" if told is None else f", held-out {share_text(told)}"
            then = f", {left}" if left else ""
            self._say(f"round {line['round']} of {self._rounds}{spent}{accuracy}, {nodes}{then}")
            self._nodes = nodes
        if nodes != self._nodes:
            self._say(nodes)
            self._nodes = nodes


def online(client: ControlHttpClient) -> str:
    """Return how many of the registered nodes are online."""
    nodes = list(client.ListNodes(ListNodesRequest()).nodes_info)
    there = sum(node.status == "online" for node in nodes)
    return f"{there} of {len(nodes)} nodes online"


def refusing(line: Mapping[str, Any]) -> str:
    """Return what owners said of a plan, from the private log's line."""
    rules = Counter(line["would refuse"].values())
    shown = line["shown the plan"]
    if not rules:
        return f"the plan was shown to {counted(shown, 'node')}: no owner's policy refuses it"
    refuse = sum(rules.values())
    whose = "the policy of 1 refuses it" if refuse == 1 else f"the policies of {refuse} refuse it"
    which = ", ".join(f"{rule}: {times}" for rule, times in sorted(rules.items()))
    return f"the plan was shown to {counted(shown, 'node')}: {whose} ({which})"
