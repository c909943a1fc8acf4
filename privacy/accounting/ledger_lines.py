"""The lines of a ledger: a promise, and charges.

    {"ledger": 3, "adjacency": …, "delta": …, "budget_epsilon": …, "run": …, …}   the first line;
                                                   what it says of the run: ``accounting.terms``
    {"caveat": name}                         one that came up later
    {"published": nonce}                     what was charged before is about to be published, once:
                                                   copies of a folder that both do so are two runs
    {"round": …, "covers": …, "attempt": …, "event": …, "nonce": …}   a charge; its nonce tells
                                                   copies of a run that both go on apart

How lines are chained and kept: ``privacy.accounting.chained_record``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from murmuration.privacy.accounting import events
from murmuration.privacy.accounting.chained_record import Contents
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    Event,
    ParallelEvent,
)
from murmuration.privacy.accounting.terms import RunTerms, printable
from murmuration.privacy.adjacency import Adjacency

VERSION = 3


class LedgerError(ValueError):
    """The ledger cannot be read, or belongs to another promise."""


class LedgerInUse(LedgerError):
    """Another process holds it."""


class LedgerLoss(LedgerError):
    """It is not what was written: deleted, rolled back, cut or edited."""

    def __init__(self, what: object) -> None:
        super().__init__(
            f"{what}. Bring back the ledger and its head as they were last, or begin anew with "
            "another --out"
        )


#: What reading a line raises that says nothing which can be counted.
_NO_LINE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Charge:
    """One line of the ledger. ``attempt`` is how many came before for its round and coverage."""

    event: Event
    round: int
    covers: str
    attempt: int = 0


@dataclass(kw_only=True)
class Account:
    """All lines of a ledger, added up.

    Attributes:
        promise: the first line.
        charges: as they came.
        spent: how often each event was charged.
        noted: caveats that came up after the first line.
    """

    promise: dict[str, Any] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)
    spent: Counter[Event] = field(default_factory=Counter)
    noted: set[str] = field(default_factory=set)
    _paid: dict[str, tuple[BufferedGaussian | None, int, int]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _attempts: dict[int, Counter[str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def terms(self) -> RunTerms:
        """The run's terms, with the caveats that came up later."""
        terms = RunTerms.from_json(self.promise)
        return replace(terms, caveats=terms.caveats | self.noted)

    def attempts(self, round_: int, label: str) -> int:
        """The number of charges of a round for this coverage."""
        return self._attempts.get(round_, Counter())[label]

    def draws(self, round_: int) -> int:
        """The number of draws of a round that were charged: of the charge that came most often."""
        return max(self._attempts.get(round_, Counter()).values(), default=0)

    def add(self, line: Mapping[str, Any]) -> None:
        """Count a line; one of ``_NO_LINE`` if it says nothing that can be."""
        if "caveat" in line:
            self.noted.add(printable(line["caveat"]))
        elif "published" in line:
            printable(line["published"])
        else:
            charge = Charge(
                event=events.from_json(line["event"]),
                round=int(line["round"]),
                covers=str(line["covers"]),
                attempt=int(line["attempt"]),
            )
            self.check_paid(charge.event, charge.round, charge.covers)
            if charge.attempt != self.attempts(charge.round, charge.covers):
                raise ValueError(f"attempt {charge.attempt} at round {charge.round} is another's")
            self._count_paid(charge)
            self._attempts.setdefault(charge.round, Counter())[charge.covers] += 1
            self.charges.append(charge)
            self.spent[charge.event] += 1

    def check_paid(self, event: Event, round_: int, label: str) -> None:
        """ValueError for a release that an earlier one should have paid for, and has not, or that
        is not of the group whose turn it is."""
        self._check_group(event, round_)
        if isinstance(event, ParallelEvent) and isinstance(event.event, BufferedGaussian):
            raise ValueError(f"release {round_} is of everybody, and not of a part")
        if isinstance(event, BufferedLater):
            release, left, last = self._paid.get(label, (None, 0, 0))
            if release is None or not event.paid_by(release) or left < 1 or round_ != last + 1:
                raise ValueError(
                    f"round {round_} of a run with shared noise without the one before, or without "
                    "the first, which pays"
                )

    def _count_paid(self, charge: Charge) -> None:
        """Remember for how many rounds the latest release of this label still pays."""
        release, left, _ = self._paid.get(charge.covers, (None, 0, 0))
        if type(charge.event) is BufferedGaussian:
            release, left = charge.event, charge.event.rounds
        elif not isinstance(charge.event, BufferedLater):
            release, left = None, 0
        self._paid[charge.covers] = release, left - 1, charge.round

    def _check_group(self, event: Event, round_: int) -> None:
        """ValueError for banded noise of another group than the round's, or other groups than
        before."""
        if isinstance(event, BandedGaussian):
            raise ValueError(f"round {round_} with banded noise is of a group, and names none")
        if not isinstance(event, ParallelEvent):
            return
        inner = event.event
        if isinstance(inner, BandedGaussian) and event.part != (round_ - 1) % inner.bands:
            raise ValueError(f"round {round_} is not of group {event.part} of {inner.bands}")
        parted = (
            c.event.event for c in reversed(self.charges) if isinstance(c.event, ParallelEvent)
        )
        last = next(parted, inner)  # with which all before agree
        if last != inner and any(isinstance(one, BandedGaussian) for one in (last, inner)):
            raise ValueError(f"round {round_} divides the users otherwise than those before")

    def check_shared_noise(self, planned: Iterable[Event]) -> None:
        """ValueError for a plan whose rounds share other noise than those that were charged."""
        before, now = (
            {shared for event in these if (shared := _shared(event))}
            for these in ({charge.event for charge in self.charges}, planned)
        )
        if before and now and before != now:
            raise ValueError(
                f"its rounds share noise as {min(map(str, before))}, and the plan is "
                f"{min(map(str, now))}"
            )

    def first_uncharged(self) -> int:
        """The first round, from 1, that has no charge."""
        charged = {charge.round for charge in self.charges}
        round_ = 1
        while round_ in charged:
            round_ += 1
        return round_


def _shared(event: Event) -> Event | None:
    """The event whose noise several rounds share; None for independent noise."""
    if isinstance(event, BufferedGaussian):
        return BufferedGaussian(event.rounds, event.separation, event.noise_multiplier)
    inner = event.event if isinstance(event, ParallelEvent) else None
    return inner if isinstance(inner, BandedGaussian) else None


def account_of(contents: Contents, path: Path) -> Account:
    """The lines of a record, added up; LedgerError for one that is no ledger's."""
    if not contents.lines:
        raise LedgerError(f"{path}: nothing is written in it yet")
    account = Account(promise=dict(contents.lines[0]))
    _check_promise(account.promise, path)
    for number, line in enumerate(contents.lines[1:], start=2):
        try:
            account.add(line)
        except _NO_LINE as error:
            raise LedgerError(f"{path}:{number}: not a line of a ledger ({error})") from None
    return account


def _check_promise(promise: Mapping[str, Any], path: Path) -> None:
    """LedgerError unless a first line says what a ledger's does."""
    delta, budget = promise.get("delta"), promise.get("budget_epsilon")
    positive = isinstance(budget, int | float) and 0.0 < budget < math.inf
    if (
        promise.get("adjacency") not in list(Adjacency)
        or not (isinstance(delta, float) and 0.0 < delta < 1.0)
        or not (budget is None or positive)
    ):
        raise LedgerError(f"{path}:1: not the first line of a ledger")
    try:
        RunTerms.from_json(promise)
    except _NO_LINE as error:
        raise LedgerError(f"{path}:1: not the first line of a ledger ({error})") from None
