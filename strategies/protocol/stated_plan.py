"""The plan of a run as its server states it to the nodes, before any request.

It travels with every request to work. A node cannot check that the noise is really added; it can
compute for itself what the plan costs if it is kept, refuse a plan that costs its owner too much,
and keep what was stated. One run states one plan, also when it is resumed.

What is trusted: the server, to keep to the noise that it states. Its claim that some releases are
about disjoint parts of the users is not believed, since a node cannot see which part a user is in:
``cost`` takes every user to be in every part. Nor is its claim about the rounds between a user's
participations, which pays for buffered noise: an agent sees that itself. The random hold-out of
users is believed like the sampling probability: a node can see neither. With a share near one any
run would have no cost, so no more than ``MOST_SHARE`` is believed; an owner's agent itself makes
sure that no user is in both halves of a run (``client.agent.agent``).
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.composition import INTERVAL
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    BufferedLater,
    Event,
    ParallelEvent,
    PureDp,
    Unprotected,
    examples_of,
    group_of,
    noise_of,
    of_several_runs,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import hold_out
from murmuration.privacy.mechanisms.distributed import against_server
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.selection.random_stopping import RandomStopping

#: Where the plan stands among the parameters of a request.
PARAMETER = "plan"
#: A share held out beyond this is not believed.
MOST_SHARE = 0.5
#: Different events in one plan, and in all plans of a node together: each takes its time.
MOST_EVENTS = 8
MOST_EVENTS_IN_ALL = 64
_MOST_ROUNDS = 10_000_000
_MOST_KINDS = 64
#: To account for less noise, larger groups or a loss that spreads wider (the standard deviation of
#: that of all plans) takes minutes and gigabytes; the last costs ε of more than 200.
_LEAST_NOISE = 0.05
_MOST_GROUP = 1000
_MOST_SPREAD = 20.0
#: Standard deviations of the loss that a grid of so many points has room for.
_WIDE, _POINTS = 40.0, 1e6
#: The same as ``accountant.MOST_WORK``, for some seconds: where there would be more, the grid is
#: coarser.
_MOST_WORK = 1e8
#: Where there are more numbers than that the grid is not made finer for small losses either.
_MOST_FINER = 400


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
        if self._unpaid:
            raise ValueError("more later rounds than their first ones pay for")
        hold_out.check_one_run(hold_out.split(charged([self]).items())[1])

    @property
    def _unpaid(self) -> bool:
        """True if the plan has later rounds of shared noise without a first round that pays for
        them; events of a part of the users neither pay nor are paid for.
        """
        counts = _counted(self.charges)
        for event, count in counts.items():
            inner = getattr(event, "event", event)
            if not isinstance(inner, BufferedGaussian) or type(event) is BufferedGaussian:
                continue
            if not isinstance(event, BufferedLater):
                return True
            if count > sum(n * max(0, event.paid_by(e) - 1) for e, n in counts.items()):
                return True
        return False

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
        """The plan as JSON, for messages."""
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
        """The plan that a text states; ValueError if it is something else."""
        try:
            data = json.loads(text)
            if len(data["charges"]) > _MOST_KINDS:  # before any of them is looked at
                raise ValueError(f"a plan has at most {_MOST_KINDS} kinds of charges")
            return cls(
                run=str(data["run"]),
                adjacency=Adjacency(data["adjacency"]),
                delta=float(data["delta"]),
                rounds=data["rounds"],
                charges=tuple((events.from_json(event), n) for event, n in data["charges"]),
            )
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise ValueError(f"not a plan: {error}") from None

    @property
    def figures(self) -> int:
        """The number of releases about held-out users that it pays for."""
        return sum(n for event, n in self.charges if isinstance(event, HoldOut) and event.epsilon)

    @property
    def held_out(self) -> float:
        """The largest share of users that it says are held out; 0 where it says nothing of it."""
        held = (event for event in charged([self]) if isinstance(event, HoldOut))
        return max((event.share for event in held), default=0.0)

    def against_server(self, honest: int) -> "StatedPlan":
        """The plan as seen by the server itself, if ``honest`` nodes add their share of the noise.

        There is no guarantee (``Unprotected``) unless all of the noise is the nodes' own.
        """
        seen = against_server(_counted(self.charges), honest) or {Unprotected(): self.rounds}
        return replace(self, charges=tuple(seen.items()))

    def epsilon(self) -> float:
        """The cost of the run if the server keeps to the plan; infinite without a guarantee."""
        return cost([self], self.delta)


def _counted(charges: Iterable[tuple[Event, int]]) -> Counter[Event]:
    result: Counter[Event] = Counter()
    for event, count in charges:
        result[event] += count
    return result


def charged(plans: Iterable[StatedPlan]) -> Counter[Event]:
    """The number of times each event can happen to one user who is in all of these plans and all
    their parts.

    That no user is in two parts is claimed by the server, and cannot be checked at a node.
    """
    result: Counter[Event] = Counter()
    for plan in plans:
        for event, count in plan.charges:
            result[event.event if isinstance(event, ParallelEvent) else event] += count
    return result


def cost(plans: list[StatedPlan], delta: float) -> float:
    """ε of all these plans together at ``delta``, each run to its end.

    Infinite where nothing is promised: a plan with fewer noisy releases than rounds, a share held
    out that is not believed, or so little noise that no budget allows it. It takes some seconds at
    most and some hundred MB, whatever is stated: what would take more is refused, or computed on a
    coarser grid, which errs upward. How long events of other packages take is not known here.

    Raises:
        ValueError: the plans' adjacencies differ, they have too many different events, or an event
            has no guarantee under their adjacency.
    """
    if not plans:
        return 0.0
    adjacency = plans[0].adjacency
    if any(plan.adjacency is not adjacency for plan in plans):
        raise ValueError("plans under different adjacencies have no ε together")
    if any(_releases(plan) < plan.rounds or plan.held_out > MOST_SHARE for plan in plans):
        return math.inf
    runs = [list(charged([plan]).items()) for plan in plans]
    if any(len(run) > MOST_EVENTS for run in runs):
        raise ValueError(f"a plan of more than {MOST_EVENTS} different events")
    charges = runs[0] if len(runs) == 1 else of_several_runs(itertools.chain(*runs))
    if len(charges) > MOST_EVENTS_IN_ALL:
        raise ValueError(f"all plans come to more than {MOST_EVENTS_IN_ALL} different events")
    if any(_too_costly(event) for event, _ in charges):
        return math.inf
    spread = math.sqrt(sum(count * _spread(event) ** 2 for event, count in charges))
    if not spread <= _MOST_SPREAD:
        return math.inf
    interval = _interval([event for event, _ in charges], spread, adjacency)
    return accountant.epsilon(*runs, adjacency=adjacency, delta=delta, interval=interval)


def _releases(plan: StatedPlan) -> int:
    """The number of noisy sums that a plan pays for, without tests, choices and held-out users'
    figures.

    In a plan without sums, each round releases a choice.
    """
    charges = [(e, count) for e, count in charged([plan]).items() if not isinstance(e, HoldOut)]
    sums = sum(count for event, count in charges if not isinstance(event, PureDp))
    return sums or sum(count for _, count in charges)


def _too_costly(event: Event) -> bool:
    """True if an event's cost is so large that it need not be computed."""
    return (
        noise_of(event) < _LEAST_NOISE
        or getattr(getattr(event, "event", event), "group_size", 1) > _MOST_GROUP
        or isinstance(event, RandomStopping)  # of whole runs: no run states it
    )


def _spread(event: Event) -> float:
    """About the standard deviation of the loss of one run, and not much less than it."""
    if math.isinf(noise := noise_of(event)):
        return float(getattr(event, "epsilon", 0.0))
    # The mixture's mean is k/σ with probability P(k), and its χ² divergence E[exp(j·k/σ²)] − 1.
    size, (sampled, mass_K) = group_of(event), examples_of(event)
    k_K = np.flatnonzero(mass_K > 0.0)
    with np.errstate(over="ignore"):
        moment_K = (1.0 - sampled + sampled * np.exp(k_K / noise**2)) ** size
        divergence = float(mass_K[k_K] @ moment_K) - 1.0
    return min(size / noise, math.sqrt(max(divergence, 0.0)))


def _interval(events: Sequence[Event], spread: float, adjacency: Adjacency) -> float:
    """The discretization interval for all these events: the usual one, or a coarser one if losses
    spread so widely that computing would take long.
    """
    sums = [
        accountant.work_of(event, adjacency) for event in events if not math.isinf(noise_of(event))
    ]
    numbers = sum(times for times, _ in sums)
    work = sum(times * span for times, span in sums)
    usual = INTERVAL if numbers <= _MOST_FINER else math.nextafter(INTERVAL, 1.0)
    return max(usual, spread * _WIDE / _POINTS, work / _MOST_WORK)
