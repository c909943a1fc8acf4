"""The append-only record of every release, written and fsynced before the release exists.

One JSON line each. The first line fixes adjacency, delta and the budget; every other line is one
charge: an event with public parameters, its round, what it covers. A crash between the line and the
noisy value over-counts by one charge; it can never under-count.

Nothing is deduplicated by round: a round that is run again draws fresh coins and is a new charge.
The one exception is an exact replay in a seeded simulation, where the same coins meet the same sum
and yield the same value again: it is recognised by a keyed hash of the exact sum (the key is the
run's secret seed, so the hash tells nothing to whoever reads the ledger). A seeded round that meets
another sum is refused: its coins are the old ones, and no accountant covers that.

One process writes a ledger at a time (an advisory lock on the file, gone when the process is), and
a write that fails ends the ledger's use: what is on disk then is only known once it is read again.
"""

import fcntl
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privacy import accounting, events
from privacy.adjacency import Adjacency
from privacy.events import Event

_VERSION = 1


class LedgerError(ValueError):
    """The ledger cannot be read, or belongs to another promise."""


class LedgerInUse(LedgerError):
    """Another process holds it."""


class BudgetExceeded(RuntimeError):
    """The next release would cost more than the budget; nothing was released."""


@dataclass(frozen=True)
class Charge:
    """One line of the ledger. ``attempt`` counts the charges for the same round and coverage."""

    event: Event
    round: int
    covers: str
    attempt: int = 0
    replay: str | None = None


class Ledger:
    """An open ledger file.

    Args:
        path: created if missing; otherwise its header must make the same promise.
        adjacency: the relation between neighbouring data sets.
        delta: the delta at which epsilon is reported.
        budget: the epsilon that may be spent, or None for a run without a limit.

    Raises:
        LedgerError: the file is damaged, is in use, is not a ledger, or was opened for another
            adjacency, delta or budget. The file is left as it was.
        ValueError: delta or budget is out of range.
    """

    def __init__(
        self, path: Path, *, adjacency: Adjacency, delta: float, budget: float | None
    ) -> None:
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta must be in (0, 1), got {delta}")
        if budget is not None and not (math.isfinite(budget) and budget > 0.0):
            raise ValueError(f"the epsilon budget must be a positive finite number, got {budget}")
        self.path, self.adjacency, self.delta, self.budget = path, adjacency, delta, budget
        self._header = {
            "ledger": _VERSION,
            "adjacency": adjacency.value,
            "delta": delta,
            "budget_epsilon": budget,
        }
        self._cleared: Counter[Event] = Counter()
        self.charges: list[Charge] = []
        self._spent: Counter[Event] = Counter()
        self._same: dict[tuple[int, str], list[Charge]] = {}
        self._file = path.open("ab", buffering=0)
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        """Lock the file; write its first line, or read what is there and cut off a torn line."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerInUse(f"{self.path} is in use by another run; wait for it to end") from None
        raw = self.path.read_bytes()
        if b"\n" not in raw and _line(self._header).startswith(raw):  # new, or torn at birth
            self._file.truncate(0)
            self._append(self._header)
            _sync_directory(self.path.parent)
            return
        header, charges = _parse(raw, self.path)
        if header != self._header:
            raise LedgerError(
                f"{self.path} was opened for {header}, not for {self._header}: "
                "a run may not change its promise; choose another --out"
            )
        for charge in charges:
            self._note(charge)
        # A torn last line is cut off: its release never left memory.
        complete = raw.rfind(b"\n") + 1
        if complete < len(raw):
            self._file.truncate(complete)
            os.fsync(self._file.fileno())

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; every charge is on disk already."""
        self._file.close()

    def clear(self, planned: Mapping[Event, int]) -> None:
        """Check once that ``planned`` fits the budget, so that these charges need no accounting.

        From then on they count as spent: nothing beyond them may use up what they need.

        Raises:
            BudgetExceeded: the plan does not fit.
        """
        if self.budget is not None:
            cost = accounting.epsilon(planned.items(), adjacency=self.adjacency, delta=self.delta)
            if not cost <= self.budget:
                raise BudgetExceeded(
                    f"the plan costs epsilon = {cost:.4f}, more than the budget {self.budget:g}"
                )
        self._cleared = Counter(planned)

    def charge(
        self, event: Event, *, round_: int, covers: str, replay: str | None = None
    ) -> Charge:
        """Write one charge to disk and return it; only then may the value be released.

        With ``replay`` (a keyed hash of the exact sum, seeded runs only) a charge for the same
        event, round, coverage and hash is returned as it stands instead of being written again; one
        with another hash is refused, because a seeded run draws the same coins again.

        Raises:
            LedgerError: a seeded round that was charged before does not repeat exactly. Nothing was
                written and nothing may be released.
            BudgetExceeded: the composition with this event and what is planned would exceed the
                budget. Nothing was written and nothing may be released.
        """
        same = self._same.get((round_, covers), [])
        for earlier in same:
            if replay is not None and earlier.replay == replay and earlier.event == event:
                return earlier
        if replay is not None and same:
            # Its coins would be the old ones: two releases on one cohort are not two sampled ones.
            raise LedgerError(
                f"{self.path}: round {round_} was released before with another sum; a seeded run "
                "can be resumed only where it repeats exactly: choose another --out"
            )
        self._check_budget(event)
        charge = Charge(event, round_, covers, attempt=len(same), replay=replay)
        self._append(
            {
                "round": round_,
                "covers": covers,
                "attempt": charge.attempt,
                "event": events.to_json(event),
                "replay": replay,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        )
        self._note(charge)
        return charge

    def spent(self) -> Counter[Event]:
        """How often each event was charged."""
        return self._spent.copy()

    def epsilon(self, *, interval: float = accounting.INTERVAL) -> float:
        """What has been spent, composed."""
        return self._cost(self.spent().items(), interval)

    def _check_budget(self, event: Event) -> None:
        if self.budget is None:
            return
        counts = self.spent()
        counts[event] += 1
        # What is planned counts as spent: which of it comes to pass may depend on data.
        counts |= self._cleared
        if counts <= self._cleared:
            return
        cost = self._cost(counts.items(), accounting.INTERVAL)
        if not cost <= self.budget:
            raise BudgetExceeded(
                f"one more {event.kind} release would bring epsilon to {cost:.4f}, "
                f"over the budget {self.budget:g}"
            )

    def _cost(self, counts: Iterable[tuple[Event, int]], interval: float) -> float:
        return accounting.epsilon(
            counts, adjacency=self.adjacency, delta=self.delta, interval=interval
        )

    def _note(self, charge: Charge) -> None:
        """Remember what is on disk, counted as it comes; rounds can be thousands."""
        self.charges.append(charge)
        self._spent[charge.event] += 1
        self._same.setdefault((charge.round, charge.covers), []).append(charge)

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._file.closed:
            raise LedgerError(f"{self.path} is closed, or failed before: open it again")
        data = _line(line)
        try:
            if self._file.write(data) != len(data):
                raise OSError(f"{self.path}: the line was not written in full; is the disk full?")
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.close()
            raise


def _line(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data) + "\n").encode()


def _parse(raw: bytes, path: Path) -> tuple[dict[str, Any], list[Charge]]:
    """Header and charges of all complete lines."""
    complete, newline, _ = raw.rpartition(b"\n")
    if not newline:
        raise LedgerError(f"{path} is not a ledger; choose another --out")
    lines = complete.split(b"\n")
    charges = []
    header: dict[str, Any] = {}
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
            if number == 1:
                header = dict(data)
            else:
                charges.append(
                    Charge(
                        event=events.from_json(data["event"]),
                        round=int(data["round"]),
                        covers=str(data["covers"]),
                        attempt=int(data["attempt"]),
                        replay=data["replay"],
                    )
                )
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{path}:{number}: damaged ledger line ({error}); "
                "restore the file: a ledger with holes proves nothing"
            ) from None
    return header, charges


def read_charges(path: Path) -> list[Charge]:
    """The charges of a ledger that is not being written; LedgerError if it is damaged."""
    return _parse(path.read_bytes(), path)[1]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
