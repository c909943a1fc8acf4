"""Releases about one part of the users: what the parts cost is not added up.

Where users are divided by coins of their own, independent of all data, two neighbouring data sets
differ in one part only. Releases about the others are then post-processing of what is common to
both, and the whole costs as much as the dearest part (parallel composition, McSherry 2009). That
holds within one run: two runs divide their users differently.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from murmuration.privacy.accounting.masses import Masses
from murmuration.privacy.adjacency import Adjacency

if TYPE_CHECKING:
    from murmuration.privacy.accounting.events import Event
    from murmuration.privacy.accounting.ledger import Charge, Ledger


@dataclass(frozen=True)
class OnPart:
    """An event about the users of one part; no user is in two parts."""

    kind: ClassVar[str] = "on-part"
    part: int
    event: "Event"

    def __post_init__(self) -> None:
        if type(self.part) is not int:
            raise ValueError(f"a part is named by a whole number, not by {self.part!r}")
        if isinstance(self.event, OnPart):
            raise ValueError("a part of a part: users are divided once")

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[Masses, ...]:
        """What it costs a user of this part."""
        return self.event.loss(adjacency, interval)


def by_part(events: Iterable[tuple["Event", int]]) -> list[list[tuple["Event", int]]]:
    """What a user of each part is exposed to: the events of the part, and all that have none.

    One list with everything if no event belongs to a part.
    """
    events = list(events)
    parts = sorted({event.part for event, _ in events if isinstance(event, OnPart)})
    if not parts:
        return [events]
    return [
        [
            (event.event, times) if isinstance(event, OnPart) else (event, times)
            for event, times in events
            if not isinstance(event, OnPart) or event.part == part
        ]
        for part in parts
    ]


class LedgerOfPart:
    """A ledger to which everything is charged as a release about one part of the users."""

    def __init__(self, ledger: "Ledger", part: int) -> None:
        self.adjacency = ledger.adjacency
        self._ledger, self._part = ledger, part

    def charge(
        self, event: "Event", *, round_: int, covers: str, replay: str | None = None
    ) -> "Charge":
        """As ``Ledger.charge``."""
        of_part = OnPart(self._part, event)
        return self._ledger.charge(of_part, round_=round_, covers=covers, replay=replay)
