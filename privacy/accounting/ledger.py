"""The append-only record of every release, written and fsynced before the release exists.

One JSON line each (``privacy.accounting.ledger_lines``), chained to the line before by its hash
(``privacy.accounting.chained_record``). The first line fixes adjacency, delta and the budget; every
other line is one charge: an event with public parameters, its round, what it covers. A crash
between the line and the noisy value over-counts by one charge; it can never under-count. A ledger
that was deleted, rolled back, cut or edited is refused.

Nothing is deduplicated by round: a round that is run again draws fresh randomness and is a new
charge, seeded or not. Seeded draws are keyed by the number that the charge has among those of its
round (``Charge.attempt``, ``draws``), so no two lines have the same noise.

One process writes a ledger at a time (an advisory lock on the file, gone when the process is), and
a write that fails ends the ledger's use: what is on disk then is only known once it is read again.
"""

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from murmuration.privacy.accounting import accountant, chained_record, events
from murmuration.privacy.accounting.chained_record import (
    ChainedRecord,
    Contents,
    Head,
    NoRecord,
    OtherRecord,
    RecordDamaged,
    RecordInUse,
)
from murmuration.privacy.accounting.events import Event, HoldOut, ParallelEvent, Unprotected
from murmuration.privacy.accounting.ledger_lines import (
    VERSION,
    Account,
    Charge,
    LedgerError,
    LedgerInUse,
    LedgerLoss,
    account_of,
)
from murmuration.privacy.accounting.terms import Caveat, RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Released

Value = TypeVar("Value")


class BudgetExceeded(RuntimeError):
    """The next release would cost more than the budget; nothing was released."""


class Ledger:
    """An open ledger file.

    Args:
        path: created if missing; otherwise its header must make the same promise.
        adjacency: the relation between neighbouring data sets.
        delta: the delta at which epsilon is reported.
        budget: the epsilon that may be spent, or None for a run without a limit.
        begun: whether it is known that there is a ledger.
        terms: what the run says of itself. A ledger that is gone on with keeps its own, and gets
            the caveats that are new. None: a run of its own, of which nothing is recorded.

    Raises:
        LedgerLoss: the file is not what was written, or is another run's. It is left as it was.
        LedgerError: it is in use, is not a ledger, or was opened for another adjacency, delta or
            budget. The file is left as it was.
        ValueError: delta or budget is out of range.
        OSError: it cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        adjacency: Adjacency,
        delta: float,
        budget: float | None,
        begun: bool = False,
        terms: RunTerms | None = None,
    ) -> None:
        header = _header(adjacency, delta, budget, terms, path)
        self.path, self.adjacency, self.delta, self.budget = path, adjacency, delta, budget
        self._cleared: Counter[Event] = Counter()
        try:
            self._record = ChainedRecord(path, header, begun=begun)
        except RecordDamaged as damage:
            raise LedgerLoss(damage) from None
        except RecordInUse:
            raise LedgerInUse(f"{path} is in use by another run; wait for it to end") from None
        except OtherRecord as other:
            raise LedgerError(
                f"{path} was opened for {other.found}, not for {header}: "
                "a run may not change its promise; choose another --out"
            ) from None
        except NoRecord as error:
            raise LedgerError(f"{error}: no run can go on with it; choose another --out") from None
        try:
            self._account = account_of(self._record.contents, path)
        except BaseException:
            self._record.close()
            raise
        #: Charges that were granted since it was opened, those of ``charge_once`` included.
        self.granted: list[Charge] = []
        for caveat in sorted(terms.caveats) if terms else ():
            self.note(caveat)

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; every charge is on disk already."""
        self._record.close()

    @property
    def head(self) -> Head:
        """The number of lines and the hash of the last: kept elsewhere, it shows a rollback."""
        return self._record.head

    def has_been_at(self, head: Head) -> bool:
        """True if this ledger had that head before, or has it now; only the heads at opening and
        after the last line are known."""
        return head == self.head or self._record.contents.on_chain(head)

    @property
    def charges(self) -> list[Charge]:
        """As they came."""
        return self._account.charges

    @property
    def account(self) -> Account:
        """All lines, added up; not to be changed."""
        return self._account

    @property
    def terms(self) -> RunTerms:
        """The run's terms, with the caveats that came up since."""
        return self._account.terms

    def note(self, caveat: str) -> None:
        """Write a caveat down, unless it is there already; it goes with all that is made from the
        run."""
        if caveat not in self._account.terms.caveats:
            self._add({"caveat": str(caveat)})

    def note_published(self) -> None:
        """Write that what was charged before is published now: of copies of this ledger that both
        do so, none is an earlier state of the other, and each costs."""
        self._add({"published": _nonce()})

    def clear(self, planned: Mapping[Event, int]) -> None:
        """Check once that ``planned`` fits the budget, so that these charges need no accounting.

        From then on they count as spent: nothing beyond them may use up what they need.

        Raises:
            LedgerError: rounds were charged that share other noise than the plan's.
            BudgetExceeded: the plan does not fit.
        """
        try:
            self._account.check_shared_noise(planned)
        except ValueError as error:
            raise LedgerError(
                f"{self.path}: {error}: a run may not change its noise; resume it with what it was "
                "begun with, or choose another --out"
            ) from None
        if self.budget is not None:
            cost = self._cost(planned.items(), accountant.INTERVAL)
            if not cost <= self.budget:
                raise BudgetExceeded(
                    f"the plan costs epsilon = {cost:.4f}, more than the budget {self.budget:g}"
                )
        self._cleared = Counter(planned)

    def charge(self, event: Event, *, round_: int, covers: str, seeded: bool = False) -> Charge:
        """Write one charge to disk and return it; only then may the value be released.

        ``seeded``: its noise follows from a seed, which goes with all that is made from the run.

        Raises:
            ValueError: a release that an earlier one should have paid for, and has not.
            BudgetExceeded: the composition with this event and what is planned would exceed the
                budget. Nothing was written and nothing may be released.
            OSError: the line may not be on disk, so nothing may be released.
        """
        self._account.check_paid(event, round_, covers)
        self._check_budget(event)
        if seeded:
            self.note(Caveat.SEEDED.value)
        charge = Charge(event, round_, covers, self._account.attempts(round_, covers))
        self._write(charge)
        self.granted.append(charge)
        return charge

    def charge_once(self, event: Event, *, round_: int, covers: str) -> Charge:
        """As ``charge``, of what is the same however often it is told: a charge that is there
        pays."""
        for charge in self.charges:
            if (charge.event, charge.round, charge.covers) == (event, round_, covers):
                self.granted.append(charge)
                return charge
        return self.charge(event, round_=round_, covers=covers)

    def draws(self, round_: int) -> int:
        """The number of draws of a round that were charged by now."""
        return self._account.draws(round_)

    @property
    def has_released(self) -> bool:
        """True if anything was charged except a random assignment, which reveals nothing by
        itself."""
        return any(
            not (isinstance(event, HoldOut) and event.epsilon == 0.0)
            for event in self._account.spent
        )

    def released(self, value: Value) -> Released[Value]:
        """Return a value as one that was charged here, or is computed from such values.

        Raises:
            LedgerError: nothing was charged yet, so it can come from no release.
        """
        if not self.has_released:
            raise LedgerError(
                f"{self.path}: a value is said to be released, and nothing was charged: release it "
                "by a mechanism (privacy.mechanisms), or mark it as Public if it follows from "
                "settings"
            )
        return Released(value)

    def note_unprotected(self, round_: int, covers: str) -> None:
        """Write that something got out which nothing was charged for, whatever the budget.

        Epsilon is infinite from here on.
        """
        self._write(Charge(Unprotected(), round_, covers, self._account.attempts(round_, covers)))

    def spent(self) -> Counter[Event]:
        """The number of charges of each event."""
        return self._account.spent.copy()

    def epsilon(self, *, interval: float = accountant.INTERVAL) -> float:
        """The ε of all charges, composed."""
        return self._cost(self.spent().items(), interval)

    def _check_budget(self, event: Event) -> None:
        if self.budget is None:
            return
        counts = self._account.spent.copy()
        counts[event] += 1
        # What is planned counts as spent: which of it comes to pass may depend on data.
        counts |= self._cleared
        if counts <= self._cleared:
            return
        cost = self._cost(counts.items(), accountant.INTERVAL)
        if not cost <= self.budget:
            raise BudgetExceeded(
                f"one more {event.kind} release would bring epsilon to {cost:.4f}, "
                f"over the budget {self.budget:g}"
            )

    def _cost(self, counts: Iterable[tuple[Event, int]], interval: float) -> float:
        return accountant.epsilon(
            counts, adjacency=self.adjacency, delta=self.delta, interval=interval
        )

    def _write(self, charge: Charge) -> None:
        self._add(
            {
                "round": charge.round,
                "covers": charge.covers,
                "attempt": charge.attempt,
                "event": events.to_json(charge.event),
                "at": _now(),
                "nonce": _nonce(),
            }
        )

    def _add(self, line: Mapping[str, Any]) -> None:
        """Write a line and count it."""
        self._append(line)
        self._account.add(line)

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._record.closed:
            raise LedgerError(f"{self.path} is closed, or failed before: open it again")
        self._record.append(line)


class LedgerOfPart:
    """A ledger to which everything is charged as a release about one part of the users."""

    def __init__(self, ledger: Ledger, part: int) -> None:
        self.adjacency = ledger.adjacency
        self._ledger, self._part = ledger, part

    def charge(self, event: Event, *, round_: int, covers: str, seeded: bool = False) -> Charge:
        """As ``Ledger.charge``."""
        of_part = ParallelEvent(self._part, event)
        return self._ledger.charge(of_part, round_=round_, covers=covers, seeded=seeded)


def read_account(path: Path) -> tuple[Account, Contents]:
    """A ledger that may be in use, verified.

    Raises:
        LedgerLoss: it is not what was written.
        LedgerError: it cannot be read.
    """
    try:
        contents = chained_record.read(path)
    except RecordDamaged as damage:
        raise LedgerLoss(damage) from None
    except (NoRecord, RecordInUse) as error:
        raise LedgerError(str(error)) from None
    return account_of(contents, path), contents


def read_charges(path: Path) -> list[Charge]:
    """The charges of a ledger, verified; raises as ``read_account``."""
    return read_account(path)[0].charges


def read_spent(path: Path) -> Counter[Event]:
    """The number of charges of each event, verified; raises as ``read_account``."""
    return read_account(path)[0].spent


def _header(
    adjacency: Adjacency, delta: float, budget: float | None, terms: RunTerms | None, path: Path
) -> dict[str, Any]:
    """The first line that the ledger at ``path`` must have: its own identity and words, if it is
    there; LedgerLoss where they are another run's."""
    new = _new_header(adjacency, delta, budget, terms or RunTerms())
    stored = chained_record.first_line(path)
    if stored is None:
        return new
    if terms is not None and stored.get("run", terms.run) != terms.run:
        raise LedgerLoss(f"{path} was replaced: it is the ledger of another run")
    promise = {name: new[name] for name in ("adjacency", "delta", "budget_epsilon")}
    return {**new, **stored, **promise}


def _new_header(
    adjacency: Adjacency, delta: float, budget: float | None, terms: RunTerms
) -> dict[str, Any]:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    if budget is not None and not (math.isfinite(budget) and budget > 0.0):
        raise ValueError(f"the epsilon budget must be a positive finite number, got {budget}")
    promise = {"adjacency": adjacency.value, "delta": delta, "budget_epsilon": budget}
    return {"ledger": VERSION, **promise, **terms.to_json(), "begun": _now()}


def _nonce() -> str:
    """64 bits from the operating system, whatever the seed: without them copies of a folder that
    both go on in one second would have the same lines."""
    return secrets.token_hex(8)


def _now() -> str:
    """To the second: how long a round took depends on who was in it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
