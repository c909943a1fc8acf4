"""A mechanism that was broken on purpose, and its audit."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import CONFIDENCE, Measured, Task
from murmuration.privacy.mechanisms.randomness import Randomness


@dataclass(frozen=True)
class Fault:
    """A fault, how it is audited, and what else stands in its way.

    ``test`` names the test that rejects it, ``construction`` what in the product stands in its way
    besides; empty where there is nothing. ``needs`` is the optional library that it is made with.
    """

    about: str
    measure: Callable[[Task], Measured]
    test: str
    construction: str = ""
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    trials: int = 200_000
    epsilon: float = 1.0
    needs: str = ""


def fault_row(name: str, fault: Fault, seed: int, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """The audit of one seeded fault; ``caught`` or ``missed``."""
    started = time.monotonic()
    task = Task(fault.adjacency, fault.epsilon, fault.trials, Randomness(seed), confidence)
    measured = fault.measure(task)
    return {
        "fault": name,
        "about": fault.about,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "verdict": "caught" if measured.lower > measured.claimed else "missed",
        "test": fault.test,
        "construction": fault.construction,
        "seconds": round(time.monotonic() - started, 1),
    }
