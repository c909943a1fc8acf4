"""The user's own ledger: what the agent was asked and answered, on their machine.

Append-only JSON lines, flushed to the disk before an answer leaves. A run's whole plan is charged
when its first request is answered, and stays charged if the user leaves the run, if the run ends
early, or if the answer is lost on its way: it can over-count, never under-count. Lines are chained,
and their number and last hash stand in a file beside it (``privacy.accounting.chained_record``): a
ledger that was deleted, emptied, cut, edited or brought back from an older copy is refused, and
nothing is answered. Both files deleted or brought back at once look like a new or an older ledger.

    {"own-ledger": 3}                         the first line
    {"run": …, "plan": …}                     a plan that a server stated, with its cost
    {"answered": "train", "run": …, "round": …, "users": …, "new": […], "masked": …}
    {"refused": …, "because": …}              kept as evidence; costs nothing

``new`` are the users (unsalted 64-bit names in hex) who were not asked this kind of thing in this
run before: who was trained on in a run, and who was measured on, is known for ever. ``masked``
names the sum (``strategies.protocol.secure_messages.about``) of an answer that left under masks.

One process writes at a time (an advisory lock, gone when the process is).
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.chained_record import (
    ChainedRecord,
    Contents,
    Head,
    NoRecord,
    OtherRecord,
    RecordDamaged,
    RecordInUse,
    head_path,
)
from murmuration.strategies.protocol.stated_plan import StatedPlan

_HEADER = {"own-ledger": 3}
#: Refusals, and answers that no rule counts, are recorded up to here, lest a server fill the disk.
MOST_REFUSALS = 10_000
#: The kinds of answers that rules count, whose users are noted by name.
COUNTED = ("train", "evaluate")


class OwnLedger:
    """An open ledger of the user's own.

    Raises:
        InputError: the file is in use, cannot be read or written, or is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self._ended = False
        self._open(path)

    def _open(self, path: Path) -> None:
        self._begin(path)
        with disk_errors_as(f"{path} cannot be used"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _refusing(path):
                self._record = ChainedRecord(path, _HEADER, mode=0o600)
        try:
            self._load(self._record.contents)
        except BaseException:
            self._record.close()
            raise

    @classmethod
    def read(cls, path: Path) -> "OwnLedger":
        """Read a ledger, also while an agent writes it; nothing can be added to it.

        Raises:
            InputError: it cannot be read, or is not what was written.
        """
        ledger = cls.__new__(cls)
        ledger._begin(path)
        with disk_errors_as(f"{path} cannot be read"), _refusing(path):
            contents = chained_record.read(path)
        ledger._load(contents)
        return ledger

    @classmethod
    def empty(cls, path: Path) -> "OwnLedger":
        """The ledger of an agent that has answered nothing yet; nothing can be added to it."""
        ledger = cls.__new__(cls)
        ledger._begin(path)
        return ledger

    def _begin(self, path: Path) -> None:
        self.path = path
        self.plans: dict[str, StatedPlan] = {}
        self.answered: Counter[str] = Counter()
        self.rounds: Counter[tuple[str, int]] = Counter()
        self.evaluations: Counter[str] = Counter()
        self.masked: set[tuple[str, str, int]] = set()
        self.sums: set[str] = set()
        self._first: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self.refusals = 0
        self.head = Head(0, "")

    def _load(self, contents: Contents) -> None:
        for number, line in enumerate(contents.lines, start=1):
            try:
                self._read(number, line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{self.path}:{number}: not a line of a user's ledger ({error}); bring back an "
                    "undamaged copy: nothing is answered without it"
                ) from None
        self.head = contents.head

    def _read(self, number: int, line: Mapping[str, Any]) -> None:
        if number == 1:
            if line != _HEADER:
                raise ValueError("not a user's ledger")
        elif "plan" in line:
            plan = StatedPlan.from_json(json.dumps(line["plan"]))
            self.plans[plan.run] = plan
        elif "answered" in line:
            new = [int(name, 16) for name in line.get("new", ())]
            kind, run, round_ = str(line["answered"]), str(line["run"]), int(line["round"])
            self._count(kind, run, round_, new, str(line.get("masked", "")))
        elif "refused" in line:
            self.refusals += 1
        else:
            raise ValueError("an unknown line")

    def _count(
        self, kind: str, run: str, round_: int, new: Iterable[int], masked: str = ""
    ) -> None:
        self.answered[kind] += 1
        self._first[kind, run].update(dict.fromkeys(new, round_))
        if masked:
            self.masked.add((kind, run, round_))
            self.sums.add(masked)
        if kind == "train":
            self.rounds[run, round_] += 1
        elif kind == "evaluate":
            self.evaluations[run] += 1

    def asked(self, kind: str, run: str) -> Set[int]:
        """The users, by unsalted names, for whom a request of this ``kind`` was answered in a
        run."""
        return self.first_rounds(kind, run).keys()

    def first_rounds(self, kind: str, run: str) -> Mapping[int, int]:
        """The round in which each user first took part in a request of this ``kind``, in a run."""
        return self._first.get((kind, run), {})

    def told(self, kind: str, run: str, round_: int) -> int:
        """The number of answers to a round of a run, or (round 0) of reports of its accuracy."""
        return self.rounds[run, round_] if kind == "train" else self.evaluations[run]

    def open_run(self, plan: StatedPlan, epsilon: float) -> None:
        """Charge a run's whole plan; ``epsilon`` is what all runs come to with it."""
        self._append({"run": plan.run, "plan": json.loads(plan.to_json()), "epsilon": epsilon})
        self.plans[plan.run] = plan

    def answer(self, kind: str, *, users: int) -> None:
        """Note an answer that is about to leave and that no rule counts; the first of each kind."""
        if kind in COUNTED:
            raise ValueError(f"answers to {kind!r} name their users")
        if self.answered[kind] >= MOST_REFUSALS:
            return
        self._append({"answered": kind, "run": "", "round": 0, "users": users})
        self._count(kind, "", 0, ())

    def answer_work(
        self, kind: str, keys_S: Iterable[int], *, run: str, round_: int = 0, masked: str = ""
    ) -> None:
        """Note an answer to work of one of the ``COUNTED`` kinds that is about to leave.

        ``keys_S`` are the unsalted names of the users whom it is about; ``masked`` names the sum,
        if it leaves under masks.
        """
        asked = {int(key) for key in keys_S}
        new = sorted(asked - self.asked(kind, run))
        line: dict[str, object] = {
            "answered": kind,
            "run": run,
            "round": round_,
            "users": len(asked),
            "new": [f"{key:016x}" for key in new],
        }
        self._append({**line, "masked": masked} if masked else line)
        self._count(kind, run, round_, new, masked)

    def refuse(self, kind: str, reason: str) -> None:
        """Note a request that was refused."""
        if self.refusals < MOST_REFUSALS:
            self._append({"refused": kind[:100], "because": reason[:500]})
            self.refusals += 1

    def close(self) -> None:
        """Close the file; everything is on disk already."""
        self._ended = True
        self._record.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._ended:
            raise InputError(f"{self.path} is closed: start the agent again")
        if self._record.closed:  # the disk was full, say: what is on it counts
            self._open(self.path)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with disk_errors_as(f"{self.path} cannot be written"):
            self.head = self._record.append({**line, "at": at})


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn errors of a record into advice to its owner."""
    head = head_path(path)
    try:
        yield
    except RecordDamaged as damage:
        raise InputError(
            f"{damage}. Nothing is answered without it: bring back {path.name} and {head.name} as "
            "they were last (or, to forget what was promised and spend anew, remove both)"
        ) from None
    except NoRecord as error:
        raise InputError(
            f"{error}: move it aside, and lower the limits of the policy by what it says was "
            "answered"
        ) from None
    except OtherRecord:
        raise InputError(
            f"{path} is not a user's ledger, or one of another version: move it aside, and lower "
            "the limits of the policy by what it says was answered"
        ) from None
    except RecordInUse:
        raise InputError(f"{path} is in use by another agent") from None
