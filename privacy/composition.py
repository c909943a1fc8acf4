"""Many releases as one privacy loss distribution."""

from collections.abc import Iterable

from privacy.adjacency import Adjacency
from privacy.events import PLD, Event, PureDp, Unprotected
from privacy.hold_out import HoldOut
from privacy.parts import OnPart

#: Spacing of the discretized privacy loss; coarser is faster and errs towards a larger epsilon.
INTERVAL = 1e-4


def composition(
    events: Iterable[tuple[Event, int]], *, adjacency: Adjacency, interval: float = INTERVAL
) -> PLD | None:
    """The privacy loss distribution of all of ``(event, times)``; None if nothing is released.

    Raises:
        Unsupported: an event has no guarantee under ``adjacency``.
    """
    total = None
    for event, times in events:
        if times == 0:
            continue
        loss = event.loss(adjacency, interval)
        if isinstance(event, Unprotected):
            return loss
        loss = loss.self_compose(times) if times > 1 else loss
        total = loss if total is None else total.compose(loss)
    return total


def composed_epsilon(
    events: Iterable[tuple[Event, int]], *, adjacency: Adjacency, delta: float, interval: float
) -> float:
    """The smallest epsilon at ``delta`` of the composition: 0 for nothing, inf for unprotected."""
    total = composition(events, adjacency=adjacency, interval=interval)
    return 0.0 if total is None else max(0.0, float(total.get_epsilon_for_delta(delta)))


def of_several_runs(events: Iterable[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """What runs that each toss coins of their own charge, as it composes.

    Whoever is in one part of a run, or held out from it, may be in another part of the next: so
    everybody counts as exposed to everything.
    """
    found: list[tuple[Event, int]] = []
    for event, times in events:
        if isinstance(event, HoldOut):
            found += [(PureDp(event.epsilon), times)] if event.epsilon else []
        else:
            found.append((event.event if isinstance(event, OnPart) else event, times))
    return found
