"""What stated plans cost, found out in a process that is given so much time and memory.

A server chooses what it states, and so what there is to account for. What is plainly too much is
refused before anything is computed (``strategies.protocol.stated_plan.cost``); this bounds the
rest, whatever it is and however the accountant works: who answers for an owner must go on
answering.

    python -m murmuration.client.agent.plan_cost    reads {"delta": …, "plans": […], "seconds": …,
                                         "extensions": […]}
                                  writes {"epsilon": …} or {"refused": …}
"""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

from murmuration.client.isolated import owners_environment, python
from murmuration.privacy import extensions
from murmuration.strategies.protocol.stated_plan import StatedPlan, charged, cost

#: Seconds of a processor that accounting may take, and seconds in all: on a busy machine nobody's
#: plan is too long. Sixteen different plans of 200 rounds take about 11.
SECONDS, PATIENCE = 60, 300.0
#: Different events in one plan, and in all plans of a node together: each takes its time.
MOST_EVENTS = 8
MOST_EVENTS_IN_ALL = 64
_MEMORY = 4 << 30


class Costly(ValueError):
    """The plans cannot be accounted for within what is given; the message says why."""


def bounded_cost(
    plans: Sequence[StatedPlan], delta: float, *, seconds: int = SECONDS, patience: float = PATIENCE
) -> float:
    """``strategies.protocol.stated_plan.cost`` of ``plans``, the last of which is new.

    ``seconds`` of a processor are given to it, and ``patience`` seconds in all.

    Raises:
        Costly: they have too many different events, or accounting for them takes too long or fails.
    """
    if len(charged(plans[-1:])) > MOST_EVENTS:
        raise Costly(f"a plan of more than {MOST_EVENTS} different events")
    if len(charged(plans)) > MOST_EVENTS_IN_ALL:
        raise Costly(f"all stated plans come to more than {MOST_EVENTS_IN_ALL} different events")
    texts = [plan.to_json() for plan in plans]
    named = sorted(extensions.allowed() or ())
    asked = json.dumps({"delta": delta, "plans": texts, "seconds": seconds, "extensions": named})
    try:
        result = subprocess.run(
            python("-m", __name__),
            input=asked,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
            cwd="/",  # not where we happen to be, which may be a folder of somebody else's
            env={**owners_environment(), "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        raise Costly(f"to account for it takes more than {patience:g} seconds") from None
    if result.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Costly(f"to account for it takes more than {seconds} seconds of a processor")
    try:
        answer = json.loads(result.stdout)
    except ValueError:  # it died: of memory, most likely
        raise Costly("it cannot be accounted for in the memory that is given") from None
    if "refused" in answer:
        raise Costly(str(answer["refused"]))
    return float(answer["epsilon"])


def main() -> None:
    """One question on stdin, one answer on stdout."""
    asked = json.loads(sys.stdin.read())
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"] + 1))
    try:
        with extensions.only(asked.get("extensions", ())):
            plans = [StatedPlan.from_json(text) for text in asked["plans"]]
            answer: dict[str, object] = {"epsilon": cost(plans, float(asked["delta"]))}
    except ValueError as error:  # no guarantee under the adjacency, for one
        answer = {"refused": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
