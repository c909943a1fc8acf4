"""What the lines of a ledger mean: a promise, charges, and what is known of losses.

    {"ledger": 3, "adjacency": …, "delta": …, "budget_epsilon": …, "run": …, …}   the first line;
                                                   what it says of the run: ``accounting.terms``
    {"caveat": name}                         one that came up later
    {"published": nonce}                     what was charged before is about to be published, once:
                                                   copies of a folder that both do so are two runs
    {"round": …, "covers": …, "attempt": …, "event": …, "replay": …, "nonce": …}   a charge; its
                                                   nonce tells copies of a run that both go on apart
    {"lost": why, "round": …}         it was damaged after so many rounds, and went on all the same
    {"charged again": [{"event": …, "times": …}, …]}    the plan, once more, on account of that

How lines are chained and kept: ``privacy.accounting.chained_record``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from murmuration.privacy.accounting import chained_record, events
from murmuration.privacy.accounting.allocation import AllocatedLater
from murmuration.privacy.accounting.chained_record import Contents
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    BufferedLater,
    ContinuedSum,
    Event,
    ParallelEvent,
    PoissonGaussian,
)
from murmuration.privacy.accounting.terms import Caveat, RunTerms, printable
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut

VERSION = 3
#: Of ledgers whose runs have no identity.
VERSION_WITHOUT_IDENTITY = 2


class LedgerError(ValueError):
    """The ledger cannot be read, or belongs to another promise."""


class LedgerInUse(LedgerError):
    """Another process holds it."""


class LedgerLoss(LedgerError):
    """It is not what was written: deleted, rolled back, cut or edited."""

    def __init__(self, what: object) -> None:
        super().__init__(
            f"{what}. Bring back the ledger and its head as they were last, or go on with "
            "--resume --accept-ledger-loss, which charges the whole plan again"
        )
        self.what = str(what)


class NotRepeated(LedgerError):
    """A seeded round was released before, from another sum under the same coins."""


#: What reading a line raises that says nothing which can be counted.
_NO_LINE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
#: More often nothing is charged: it is still a whole number as a float.
_MOST_TIMES = 2**53
#: ``replay`` of what is released once in a run, whatever its draws come from.
ONCE = "told once"
#: How ``replay`` begins of a release whose noise has a key of its own, drawn from the operating
#: system and kept: the same sum has the same noise again, without a seed.
KEPT = "kept "


def draw_of(replay: str | None) -> int:
    """Return how often a charge's round had been drawn before: what stands before its keyed
    hash."""
    before, drawn, _ = (replay or "").partition(":")
    return int(before) if drawn else 0


@dataclass(frozen=True)
class Charge:
    """One line of the ledger. ``attempt`` counts the charges for the same round and coverage.

    ``replay``: by what a seeded run recognises its sum; see ``draw_of``.
    """

    event: Event
    round: int
    covers: str
    attempt: int = 0
    replay: str | None = None


@dataclass
class Account:
    """All lines of a ledger, added up.

    Attributes:
        promise: the first line.
        charges: as they came.
        spent: how often each event was charged, those that losses cost too.
        closed: of these, what came before the last loss or on account of it. It counts for ever,
            and no longer against the budget.
        lost: what happened, for each loss.
        lost_round: the last round that was done when one was noticed; it and those before count as
            charged.
        settled: how many losses have been paid for.
        noted: caveats that came up after the first line.
    """

    promise: dict[str, Any] = field(default_factory=dict)
    charges: list[Charge] = field(default_factory=list)
    spent: Counter[Event] = field(default_factory=Counter)
    closed: Counter[Event] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    lost_round: int = 0
    settled: int = 0
    noted: set[str] = field(default_factory=set)

    @property
    def terms(self) -> RunTerms:
        """Return what the run says of itself, with every caveat that its lines show."""
        terms, seen = RunTerms.from_json(self.promise), set(self.noted)
        replays = {charge.replay or ONCE for charge in self.charges}
        if not all(replay == ONCE or replay.startswith(KEPT) for replay in replays):
            seen.add(Caveat.SEEDED.value)
        if self.lost:
            seen.add(Caveat.LEDGER_LOST.value)
        return replace(terms, caveats=terms.caveats | seen)

    def add(self, line: Mapping[str, Any]) -> None:
        """Count a line; one of ``_NO_LINE`` if it says nothing that can be."""
        if "charged again" in line:
            again = Counter[Event]()
            for entry in line["charged again"]:
                again[events.from_json(entry["event"])] += _at_least_one(entry["times"])
            self.spent += again
            for event in self.spent:
                if isinstance(event, HoldOut) and not event.epsilon:
                    self.spent[event] = 1  # coins are tossed once in a run, whatever was lost
            self.closed += again
            self.settled = len(self.lost)
        elif "lost" in line:
            self.lost_round = max(self.lost_round, int(line["round"]))
            self.lost.append(str(line["lost"]))
            self.closed = self.spent.copy()
        elif "caveat" in line:
            self.noted.add(printable(line["caveat"]))
        elif "published" in line:
            printable(line["published"])
        else:
            charge = Charge(
                event=events.from_json(line["event"]),
                round=int(line["round"]),
                covers=str(line["covers"]),
                attempt=int(line["attempt"]),
                replay=line["replay"],
            )
            self.check_paid(charge.event, charge.round, charge.covers)
            self.charges.append(charge)
            self.spent[charge.event] += 1

    def check_paid(self, event: Event, round_: int, label: str) -> None:
        """ValueError for a release that an earlier one should have paid for, and has not, or that
        is not of the group whose turn it is."""
        self._check_group(event, round_)
        of_everybody = ContinuedSum | AllocatedLater | BufferedGaussian
        if isinstance(event, ParallelEvent) and isinstance(event.event, of_everybody):
            raise ValueError(f"release {round_} is of everybody, and not of a part")
        if isinstance(event, AllocatedLater | BufferedLater):
            event.check_paid(
                round_, [(c.event, c.round) for c in self.charges if c.covers == label]
            )
        if not isinstance(event, ContinuedSum):
            return
        first = PoissonGaussian(1.0, event.noise_multiplier)
        before = [charge for charge in self.charges if charge.covers == label]
        if not any(charge.round == 1 and charge.event == first for charge in before):
            raise ValueError(f"release {round_} without the first, which pays")
        if not 2 <= round_ <= event.releases or round_ in (charge.round for charge in before):
            raise ValueError(f"release {round_} of {event.releases}, or a second time")
        others = {c.event for c in before if isinstance(c.event, ContinuedSum)} - {event}
        if others:
            raise ValueError(f"one of {event.releases} releases, and others are of other ones")

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
        round_ = self.lost_round + 1
        while round_ in charged:
            round_ += 1
        return round_


def _shared(event: Event) -> Event | None:
    """Return what an event says of the noise that several rounds share; None if nothing."""
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


def salvage(path: Path) -> list[dict[str, Any]]:
    """The lines of a damaged ledger that say what was charged or lost, as they can be read."""
    result, account = [], Account()
    for line in chained_record.readable(path):
        try:
            account.add(line)
        except _NO_LINE:
            continue
        result.append(line)
    return result


def charged_again(counts: Mapping[Event, int]) -> dict[str, Any]:
    """The line that charges these events on account of a loss."""
    entries = [{"event": events.to_json(event), "times": n} for event, n in counts.items()]
    return {"charged again": entries}


def _at_least_one(times: Any) -> int:
    if type(times) is not int or not 1 <= times <= _MOST_TIMES:
        raise ValueError(f"{times!r} times")
    return times
