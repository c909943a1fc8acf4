"""The user's own ledger: what the agent was asked and answered, on their machine.

Append-only JSON lines, flushed to the disk before an answer leaves. A run's whole plan is charged
when its first request is answered, and stays charged if the user leaves the run, if the run ends
early, or if the answer is lost on its way: it can over-count, never under-count.

    {"own-ledger": 1, …}                      the first line
    {"run": …, "plan": …}                     a plan that a server stated, with its cost
    {"answered": "train", "run": …, "round": …, "users": …}
    {"refused": …, "because": …}              kept as evidence; costs nothing

One process writes at a time (an advisory lock, gone when the process is).
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from preference.judgements import InputError
from strategies.stated import StatedPlan

_HEADER = {"own-ledger": 1}
#: Refusals, and answers that no rule counts, are recorded up to here, lest a server fill the disk.
MOST_REFUSALS = 10_000
#: The kinds of answers that rules count.
COUNTED = ("train", "evaluate")


class OwnLedger:
    """An open ledger of the user's own.

    Raises:
        InputError: the file is in use, cannot be read or written, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._begin(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(descriptor, "ab", buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be used: {error.strerror}") from None
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def read(cls, path: Path) -> "OwnLedger":
        """What a ledger says, also while an agent writes it; nothing can be added to it.

        Raises:
            InputError: it cannot be read, or is damaged.
        """
        ledger = cls.__new__(cls)
        ledger._begin(path)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        ledger._load(raw[: raw.rfind(b"\n") + 1])
        return ledger

    def _begin(self, path: Path) -> None:
        self.path = path
        self.plans: dict[str, StatedPlan] = {}
        self.answered: Counter[str] = Counter()
        self.rounds: Counter[tuple[str, int]] = Counter()
        self._refusals = 0

    def _open(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{self.path} is in use by another agent") from None
        raw = self.path.read_bytes()
        complete = raw.rfind(b"\n") + 1
        self._load(raw[:complete])
        if complete < len(raw):  # torn: its answer never left
            self._file.truncate(complete)
        if not complete:
            self._append(_HEADER)
            _flush_folder(self.path.parent)

    def _load(self, raw: bytes) -> None:
        for number, line in enumerate(raw.splitlines(), start=1):
            try:
                self._read(number, json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{self.path}:{number}: damaged ({error}); bring back an undamaged copy: "
                    "nothing is answered without it"
                ) from None

    def _read(self, number: int, line: Mapping[str, Any]) -> None:
        if number == 1:
            if line["own-ledger"] != 1:
                raise ValueError("not a user's ledger")
        elif "plan" in line:
            plan = StatedPlan.from_json(json.dumps(line["plan"]))
            self.plans[plan.run] = plan
        elif "answered" in line:
            self._count(str(line["answered"]), str(line["run"]), int(line["round"]))
        elif "refused" in line:
            self._refusals += 1
        else:
            raise ValueError("an unknown line")

    def _count(self, kind: str, run: str, round_: int) -> None:
        self.answered[kind] += 1
        if kind == "train":
            self.rounds[run, round_] += 1

    def open_run(self, plan: StatedPlan, epsilon: float) -> None:
        """Charge a run's whole plan; ``epsilon`` is what all runs come to with it."""
        self._append({"run": plan.run, "plan": json.loads(plan.to_json()), "epsilon": epsilon})
        self.plans[plan.run] = plan

    def answer(self, kind: str, *, users: int, run: str = "", round_: int = 0) -> None:
        """Note an answer that is about to leave; of kinds that cost nothing, the first ones."""
        if kind not in COUNTED and self.answered[kind] >= MOST_REFUSALS:
            return
        self._append({"answered": kind, "run": run, "round": round_, "users": users})
        self._count(kind, run, round_)

    def refuse(self, kind: str, reason: str) -> None:
        """Note a request that was refused."""
        if self._refusals < MOST_REFUSALS:
            self._append({"refused": kind[:100], "because": reason[:500]})
            self._refusals += 1

    def close(self) -> None:
        """Close the file; everything is on disk already."""
        self._file.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._file.closed:
            raise InputError(f"{self.path} is closed, or failed before: start the agent again")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        data = (json.dumps({**line, "at": at}) + "\n").encode()
        try:
            if self._file.write(data) != len(data):
                raise OSError("the line was not written in full; is the disk full?")
            os.fsync(self._file.fileno())
        except BaseException as error:
            self._file.close()
            raise InputError(f"{self.path} cannot be written: {error}") from error


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
