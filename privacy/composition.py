"""Many releases as one privacy loss distribution."""

from collections.abc import Iterable

from privacy.adjacency import Adjacency
from privacy.events import PLD, Event, Unprotected

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
