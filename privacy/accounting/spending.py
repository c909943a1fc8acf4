"""The ε of a run while it goes on: that of its ledger, or slightly more.

Composing after every round would be slow. The ε of a ledger with *more* charges is an upper bound
until there are as many: so it is computed where counts reach certain levels, about four for each
doubling, and shown from the level before on. Nothing is interpolated.

Whether a planned test or choice comes to pass may depend on the users, and figures about held-out
users follow the last round: these count as charged from the start, as a run charges all of them in
the end. So do later rounds that a first one pays for, which cost nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    BufferedLater,
    Event,
    ParallelEvent,
    PureDp,
    of_one_group,
)
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.hold_out import HoldOut

#: Counts up to this are all levels; then four for each doubling.
_EXACT = 8
_LEVELS = 4


class Spending:
    """Epsilon of what ``ledger`` holds, each time it is asked for.

    ``planned`` is what the run will charge if nothing is charged twice: no level lies beyond it.
    Whatever stands in the ledger counts, rounds that were charged again after a crash included.

    Formal guarantee: never less than what the ledger, with all planned tests, composes to at that
    moment; the same where every event has been charged as often as at a level, and so once
    everything planned has been, or where it is asked ``exactly``.
    """

    def __init__(self, ledger: Ledger, planned: Mapping[Event, int]) -> None:
        self._ledger, self._planned = ledger, dict(of_one_group(planned.items()))
        self._reserved = Counter({e: times for e, times in planned.items() if _is_reserved(e)})
        self._ahead: Counter[Event] | None = None
        self._epsilon = 0.0
        self._known: dict[frozenset[tuple[Event, int]], float] = {}

    def __call__(self, *, exactly: bool = False) -> float:
        """Epsilon so far."""
        spent = self._spent()
        if exactly:
            ahead = spent
        elif self._ahead is not None and spent <= self._ahead:
            return self._epsilon
        else:
            ahead = self._at_levels(spent)
        if ahead != self._ahead:
            self._ahead, self._epsilon = ahead, self._composed(ahead)
        return self._epsilon

    def prepare(self) -> None:
        """Compute the levels that are ahead, if what is planned is one event over and over.

        Between rounds that would get in the way of nodes on the same machine. Whatever else comes
        is computed when it does.
        """
        growing = self._planned.keys() - self._reserved.keys()
        if len(growing) != 1:
            return
        (event,) = growing
        spent = self._spent()
        while spent[event] < self._planned[event]:
            spent[event] += 1
            ahead = self._at_levels(spent)
            self._composed(ahead)
            spent[event] = ahead[event]

    def _spent(self) -> Counter[Event]:
        """All charges, and those that are reserved; of groups that take turns those of the most
        expensive one."""
        spent = self._ledger.spent() | self._reserved
        return Counter(dict(of_one_group(spent.items())))

    def _composed(self, ahead: Counter[Event]) -> float:
        key = frozenset(ahead.items())
        if key not in self._known:
            self._known[key] = accountant.epsilon(
                ahead.items(), adjacency=self._ledger.adjacency, delta=self._ledger.delta
            )
        return self._known[key]

    def _at_levels(self, spent: Counter[Event]) -> Counter[Event]:
        return Counter({event: self._level(event, times) for event, times in spent.items()})

    def _level(self, event: Event, times: int) -> int:
        """The first level that is at least ``times``."""
        if times <= _EXACT:
            return times
        step = math.ceil(_LEVELS * math.log2(times) - 1e-9)
        level = max(times, math.floor(2.0 ** (step / _LEVELS)))
        return max(times, min(level, self._planned.get(event, 0)))


def _is_reserved(event: Event) -> bool:
    reserved = PureDp | HoldOut | BufferedLater
    return isinstance(event.event if isinstance(event, ParallelEvent) else event, reserved)
