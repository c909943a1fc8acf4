"""What a server states about a run before it asks for anything: the plan as the nodes see it.

It travels with every request to work. A node cannot check that the noise is really added; it can
compute for itself what the plan costs if it is kept, refuse a plan that costs its owner too much,
and keep what was stated. One run states one plan, whatever is resumed.

What is trusted: the server, to keep to what it states.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from privacy import accounting, events
from privacy.adjacency import Adjacency
from privacy.composition import of_several_runs
from privacy.events import Event

#: Where the plan stands among the parameters of a request.
PARAMETER = "plan"
_MOST_ROUNDS = 10_000_000
_MOST_KINDS = 64
_LEAST_NOISE = 0.05
#: To account for larger groups, or a loss that spreads wider, takes minutes and gigabytes; the
#: second costs ε of more than a thousand.
_MOST_GROUP = 10_000
_MOST_SPREAD = 50.0


@dataclass(frozen=True)
class StatedPlan:
    """The name of a run and everything that it will charge.

    ``charges`` are events with how often each will happen in ``rounds`` rounds.
    """

    run: str
    adjacency: Adjacency
    delta: float
    rounds: int
    charges: tuple[tuple[Event, int], ...]

    def __post_init__(self) -> None:
        if not (self.run and len(self.run) <= 64 and self.run.isalnum()):
            raise ValueError("a run is named by up to 64 letters and digits")
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must be between 0 and 1, got {self.delta}")
        if len(self.charges) > _MOST_KINDS:
            raise ValueError(f"a plan has at most {_MOST_KINDS} kinds of charges")
        counts = [self.rounds, *(count for _, count in self.charges)]
        if any(type(count) is not int or not 1 <= count <= _MOST_ROUNDS for count in counts):
            raise ValueError(f"rounds and charges must be 1 to {_MOST_ROUNDS}")

    @classmethod
    def of(
        cls,
        run: str,
        adjacency: Adjacency,
        delta: float,
        rounds: int,
        charges: Mapping[Event, int],
    ) -> "StatedPlan":
        """A plan from what a strategy charges."""
        return cls(run, adjacency, delta, rounds, tuple(charges.items()))

    def to_json(self) -> str:
        """As it travels."""
        return json.dumps(
            {
                "run": self.run,
                "adjacency": self.adjacency.value,
                "delta": self.delta,
                "rounds": self.rounds,
                "charges": [[events.to_json(event), count] for event, count in self.charges],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "StatedPlan":
        """What was stated; ValueError if it is something else."""
        try:
            data = json.loads(text)
            return cls(
                run=str(data["run"]),
                adjacency=Adjacency(data["adjacency"]),
                delta=float(data["delta"]),
                rounds=data["rounds"],
                charges=tuple((events.from_json(event), n) for event, n in data["charges"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a plan: {error}") from None

    def epsilon(self) -> float:
        """What the run costs if the server keeps to it; infinite where nothing is promised."""
        return cost([self], self.delta)


def cost(plans: list[StatedPlan], delta: float) -> float:
    """ε of all these plans together at ``delta``, each run to its end; ValueError if their
    adjacencies differ.
    """
    if not plans:
        return 0.0
    adjacency = plans[0].adjacency
    if any(plan.adjacency is not adjacency for plan in plans):
        raise ValueError("plans under different adjacencies have no ε together")
    if any(not plan.charges for plan in plans):
        return math.inf  # a plan that charges nothing protects nothing
    charges = [charge for plan in plans for charge in plan.charges]
    if any(_beyond(event, count) for event, count in charges):
        return math.inf  # no budget allows it, and to account for it takes very long
    if len(plans) > 1:
        charges = of_several_runs(charges)
    return accounting.epsilon(charges, adjacency=adjacency, delta=delta)


def _beyond(event: Event, count: int) -> bool:
    """Whether nobody could want to know what so many of these cost, before anything is computed."""
    while (inner := getattr(event, "event", None)) is not None:
        event = inner
    noise = float(getattr(event, "noise_multiplier", math.inf))
    group_size = getattr(event, "group_size", 1)
    if noise < _LEAST_NOISE or group_size > _MOST_GROUP:
        return True
    if group_size > 1 or math.isinf(noise):
        return False
    # Standard deviation of one loss: 1/σ of a Gaussian, less where it is sampled.
    sampled = float(getattr(event, "probability", 1.0)) * math.sqrt(math.expm1(noise**-2))
    return math.sqrt(count) * min(1.0 / noise, sampled) > _MOST_SPREAD
