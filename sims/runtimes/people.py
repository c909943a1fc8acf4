"""Whom a simulated run trained on, as keyed hashes: what all of an operator's runs cost them.

Every run on the same people is a release about them, and no single ledger shows the others. Who
simulates has the user ids at hand, and notes them as hashes (HMAC-SHA-256 under the operator's own
key, sorted) in the run's ``private/``. The key is drawn once, and lies in the operator's home, so
that runs compare. With it guesses of ids can be tested, like in the data beside which it lies.

What runs cost somebody is that of all that have their id; a run that noted nobody (a deployment,
whose server knows no ids, a run that was killed, or of another key) counts for everybody. Whatever
has a ledger is counted: figures of ``personalize``, another package's releases. (An owner's ledger
has another name, and is about other people.)
"""

import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import first_line
from murmuration.privacy.accounting.ledger_lines import LedgerError
from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.promise import Promise, ReleasedRun, combined
from murmuration.reporting.figures import counted
from murmuration.reporting.run_files import read_json
from murmuration.server.lineage import promise_of_run

PLACE = Path("private") / "people.json"
_KEY = Path("murmuration") / "people.key"
_BYTES = 8  # of a hash: among 100,000 users two share one with probability 3e-10


def keep(run: Path, user_ids: Iterable[str]) -> None:
    """Note a run's users in its folder.

    Raises:
        InputError: the operator's key cannot be used.
        OSError: it cannot be written.
    """
    key = _key()
    (run / PLACE).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"key": _name_of(key), "people": _hashes(key, user_ids).tolist()})
    replace_file(run / PLACE, text.encode(), mode=0o600)


@dataclass(frozen=True)
class Paid:
    """What some runs cost those who were in all of them.

    Attributes:
        people: how many, exactly: for the operator alone; None: whoever was in any.
        runs: folders.
        promise: of these runs together.
    """

    people: int | None
    runs: tuple[Path, ...]
    promise: Promise

    def sentence(self, below: Path) -> str:
        """Return it in words, for the operator's terminal; ``below`` is where runs were looked
        for."""
        who = "anybody" if self.people is None else counted(self.people, "person")
        who = who.replace("persons", "people")
        return (
            f"{who} of this data set paid before, in {counted(len(self.runs), 'run')} below "
            f"{below} (the first: {self.runs[0].name}), which cost together: {self.promise}"
        )

    def to_json(self) -> dict[str, Any]:
        """For programs of the operator."""
        return {
            "people": self.people,
            "runs": [str(run) for run in self.runs],
            "promise": self.promise.to_json(),
        }


def book(folder: Path) -> list[Paid]:
    """Return what all runs below a folder cost the people in them, the dearest first: an entry for
    each set of runs that somebody was in.

    Raises:
        InputError: there is no run, or one's files are damaged.
    """
    runs = {run: _promise(run) for run in _runs(folder)}
    if not runs:
        raise InputError(f"{folder}: there is no run below it: no ledger.jsonl")
    key = _key() if any((run / PLACE).exists() for run in runs) else b""
    noted = {run: people for run in runs if (people := _people(run, key)) is not None}
    return _paid(runs, noted)


def paid_before(out: Path, user_ids: Sequence[str]) -> Paid | None:
    """Return what the runs below the folder that a new one lies in have cost those of its users
    who were in most; None if they were in none that is known.

    Raises:
        InputError: a run's files are damaged, or the operator's key is.
    """
    there = [run for run in _runs(out.parent) if run != out and (run / PLACE).exists()]
    if not there:
        return None
    key = _key()
    mine = _hashes(key, user_ids)
    noted: dict[Path, np.ndarray] = {}
    for run in there:
        people = _people(run, key)
        if people is not None and len(same := np.intersect1d(people, mine)):
            noted[run] = same
    return _paid({run: _promise(run) for run in noted}, noted)[0] if noted else None


def _paid(runs: Mapping[Path, Promise], noted: Mapping[Path, np.ndarray]) -> list[Paid]:
    """Return what is paid in each set of runs that somebody was in."""
    anybody = [run for run in runs if run not in noted]
    places: dict[int, list[Path]] = {}
    for run, people in noted.items():
        for person in people.tolist():
            places.setdefault(person, []).append(run)
    sets: dict[tuple[Path, ...], int] = {}
    for theirs in places.values():
        together = tuple(sorted([*theirs, *anybody]))
        sets[together] = sets.get(together, 0) + 1
    rows = [
        Paid(count, together, combined(runs[run] for run in together))
        for together, count in sets.items()
    ] or [Paid(None, tuple(sorted(runs)), combined(runs.values()))]

    def cost(paid: Paid) -> tuple[bool, float, int]:
        epsilon = paid.promise.epsilon
        return epsilon is None, epsilon or 0.0, len(paid.runs)

    return sorted(rows, key=cost, reverse=True)


def _runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of releases below a folder, itself too; they may be gone meanwhile."""
    yield from sorted(Path(at) for at, _, files in os.walk(folder) if "ledger.jsonl" in files)


def _promise(run: Path) -> Promise:
    """Return what a run cost, whether it has ended or not."""
    if (run / "result.json").exists():
        return promise_of_run(run)
    try:
        return Promise((ReleasedRun.read(run / "ledger.jsonl"),))
    except (OSError, LedgerError) as error:
        raise InputError(f"{run}: {first_line(error)}") from None


def _people(run: Path, key: bytes) -> np.ndarray | None:
    """The users that a run noted under a key, sorted; None if it noted none."""
    kept = read_json(run / PLACE, "key", "people")
    if not kept or not key or kept["key"] != _name_of(key):
        return None
    try:
        people = np.array(kept["people"], dtype=np.uint64)
        if people.ndim != 1:
            raise ValueError("no list of people")
        return np.unique(people)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{run / PLACE} is damaged ({error})") from None


def _hashes(key: bytes, user_ids: Iterable[str]) -> np.ndarray:
    """Sorted: the order of a file would say who stands beside whom."""
    words = (hmac.digest(key, user.encode(), "sha256")[:_BYTES] for user in user_ids)
    return np.unique(np.array([int.from_bytes(word, "little") for word in words], dtype=np.uint64))


def _name_of(key: bytes) -> str:
    """Return what tells one key from another, and nothing of either."""
    return hmac.digest(key, b"name of this key", "sha256")[:8].hex()


def _key() -> bytes:
    """The operator's key, drawn where there is none."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = Path(home) / _KEY
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, secrets.token_hex(32).encode(), mode=0o600)
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be used: {first_line(error)}; remove it") from None
    if len(key) != 32:
        raise InputError(f"{path} is damaged: it has {len(key)} bytes, not 32; remove it")
    return key
