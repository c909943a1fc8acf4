"""Votes of a board that goes on: a file for each period, kept in the run's private folder.

`private/votes/0001.csv` and so on are copies of what was handed over; `private/votes.json` has the
SHA-256 of each, in its order. What a voter may still add follows from what they gave before, so all
of them are compared each time, and one that was changed ends the board. Votes whose release was not
charged have told nothing to anybody: they are dropped, and others can come in their place.

What a voter's row counts for can depend on their other rows: the last vote on a statement counts.
So `private/votes-read.json` has the SHA-256 of what the votes of each period were read as, and new
votes beside which former ones would be read in another way are refused.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from murmuration.client.labels.private_file import PrivateFile
from murmuration.preference.data.in_memory import Source, naming_rows, row_lines
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import Data
from murmuration.preference.data.rows import InputError
from murmuration.preference.data.sources import kind_of
from murmuration.preference.ranking.votes import periods_of
from murmuration.privacy.accounting.ledger import LedgerError, read_charges
from murmuration.privacy.durable_files import replace_file
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.own.ranking import RankingSettings

_ROWS = ".jsonl"  # as what rows that are in memory are written


def location(folder: Path) -> Path:
    """Return where the files of a run's votes are."""
    return Path(os.path.realpath(folder)) / "private" / "votes"


@contextmanager
def votes_added(folder: Path, data: Source) -> Iterator[None]:
    """Keep the votes of the next period in the folder of a run, from which its release is made
    inside; one process at a time.

    Raises:
        InputError: they are no file and no rows, of another kind than those before, or cannot be
            copied; or the release before was not finished.
    """
    with _held(folder) as index:
        charged = _charged(folder)
        if _finished(folder) < charged:
            raise InputError(
                f"release {charged} of {folder} was begun, and not finished: finish it first, with "
                f"murmuration rank --resume --out {folder}"
            )
        votes = _Votes(folder, index)
        votes.drop_after(charged)
        try:
            copy = votes.add(data)
            with naming_rows({} if isinstance(data, str | os.PathLike) else {str(copy): "data"}):
                yield
        except BaseException:
            votes.drop_after(_charged(folder))
            raise


@contextmanager
def with_release(config: RunConfig) -> Iterator[RunConfig]:
    """Yield the settings of a run with the release that its votes are for, where there are several;
    the votes stay what they are inside, which is where that release is made.

    Raises:
        InputError: votes are elsewhere, or were changed.
    """
    if config.of(RankingSettings).releases == 1:
        yield config
    elif not _index(Path(config.out)).lock_path.exists():
        raise InputError("--releases is for murmuration rank, which keeps the votes of each period")
    else:
        with _held(Path(config.out)) as index:
            digests = index.read().get("sha256", {})
            _check_same(config, digests)
            yield config.changed(release=len(digests))


def _check_same(config: RunConfig, digests: Mapping[str, str]) -> None:
    folder = Path(config.out)
    if Path(config.data) != location(folder):
        raise InputError(f"a board with --releases goes on where it was begun, in {config.data}")
    for name, digest in digests.items():
        path = location(folder) / name
        try:
            same = hashlib.sha256(path.read_bytes()).hexdigest() == digest
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}: bring it back") from None
        if not same:
            raise InputError(
                f"{path} is not what was handed over: a board cannot go on with another past; "
                "bring back an undamaged copy"
            )


def check_past(config: RunConfig, data: Data) -> None:
    """Note what the votes of each period are read as, where there are several releases.

    Raises:
        InputError: votes of a release that was made are read in another way than they were then.
    """
    if config.of(RankingSettings).releases == 1:
        return
    judgements = data.as_judgements("--releases takes votes")
    readings = _readings(Path(config.out))
    release = config.of(RankingSettings).release
    digests = _digests(judgements, release)
    with readings.locked():
        before = readings.read().get("sha256", [])[: release - 1]
        changed = [place for place, digest in enumerate(before) if digests[place] != digest]
        if changed:
            raise InputError(
                f"votes of release {changed[0] + 1} are read in another way beside those that came "
                "since: a board cannot go on with another past; write the new ones as those were"
            )
        readings.write({"sha256": digests})


def _digests(judgements: Judgements, releases: int) -> list[str]:
    """Return a hash of what the votes of each period say, in their order."""
    hashes = [hashlib.sha256() for _ in range(releases)]
    user_R = np.repeat(np.arange(len(judgements.user_ids)), judgements.counts_U)
    period_R = periods_of(judgements)
    if period_R is None:  # of nobody's votes
        period_R = np.ones(len(judgements), dtype=np.int32)
    for row, user in enumerate(user_R.tolist()):
        vote = (
            judgements.user_ids[user],
            judgements.prompts[row],
            judgements.responses[row],
            float(judgements.y_R[row]),
            judgements.groups_R[row] if judgements.groups_R else (),
        )
        hashes[period_R[row] - 1].update(repr(vote).encode())
    return [each.hexdigest() for each in hashes]


class _Votes:
    """The files, while they are locked."""

    def __init__(self, folder: Path, index: PrivateFile) -> None:
        self._folder, self._index = folder, index
        self._digests: dict[str, str] = index.read().get("sha256", {})

    def add(self, data: Source) -> Path:
        """Copy the votes of one more period; where to."""
        content, ending = _read(data)
        if former := {name.partition(".")[2] for name in self._digests} - {ending[1:]}:
            raise InputError(
                f"--data: the votes before came as .{former.pop()}, and these as {ending}: give "
                "them in the same form"
            )
        name = f"{len(self._digests) + 1:04d}{ending}"
        try:
            location(self._folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(location(self._folder) / name, content, mode=0o600)
        except OSError as error:
            raise InputError(f"--data: votes cannot be copied: {error.strerror}") from None
        self._digests[name] = hashlib.sha256(content).hexdigest()
        self._index.write({"sha256": self._digests})
        return location(self._folder) / name

    def drop_after(self, releases: int) -> None:
        """Remove the votes of all periods but the first so many, and of a run that never began
        everything."""
        if len(self._digests) < releases:
            raise InputError(
                f"{self._index.path} lacks votes of the {releases} releases that were made: bring "
                "back an undamaged copy"
            )
        remaining = dict([*self._digests.items()][:releases])
        dropped = self._digests.keys() - remaining.keys()
        if dropped and remaining:
            self._index.write({"sha256": remaining})
        for name in dropped:
            (location(self._folder) / name).unlink(missing_ok=True)
        self._digests = remaining
        if not remaining and not (self._folder / "config.json").exists():
            for file in (self._index, _readings(self._folder)):
                file.path.unlink(missing_ok=True)
                file.lock_path.unlink(missing_ok=True)
            for empty in (location(self._folder), self._index.path.parent, self._folder):
                if not empty.is_dir() or any(empty.iterdir()):
                    break
                empty.rmdir()


#: Whose votes are held in this process, and by which thread.
_holders: dict[Path, int] = {}


@contextmanager
def _held(folder: Path) -> Iterator[PrivateFile]:
    """Hold the votes of a run's folder, against other processes and threads, and yield their index;
    inside once more, where a thread holds them already."""
    index, thread = _index(folder), threading.get_ident()
    if _holders.get(index.path) == thread:
        yield index
        return
    with index.locked():
        _holders[index.path] = thread
        try:
            yield index
        finally:
            del _holders[index.path]


def _index(folder: Path) -> PrivateFile:
    return PrivateFile(location(folder).with_name("votes.json"))


def _readings(folder: Path) -> PrivateFile:
    return PrivateFile(location(folder).with_name("votes-read.json"))


def _read(data: Source) -> tuple[bytes, str]:
    """Return votes as the bytes of a file, and how its name ends."""
    if not isinstance(data, str | os.PathLike):
        return b"".join(row_lines(data, "data")), _ROWS
    path = Path(data).expanduser()
    if not path.is_file() or not kind_of(path.name):
        raise InputError(
            f"--data {path}: a board with --releases takes a file of votes for each of them, or "
            "rows that are in memory"
        )
    parts = path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]
    try:
        return path.read_bytes(), "".join(parts)
    except OSError as error:
        raise InputError(f"--data {path}: {error.strerror}") from None


def _charged(folder: Path) -> int:
    """Return the last release that was charged, 0 for none."""
    ledger = folder / "ledger.jsonl"
    try:
        charges = read_charges(ledger) if ledger.exists() else []
    except LedgerError as error:
        raise InputError(str(error)) from None
    return max((charge.round for charge in charges), default=0)


def _finished(folder: Path) -> int:
    """Return the last release of which there is a result, 0 for none."""
    path = folder / "result.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["rounds"]) if path.exists() else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be relied on: {error}") from None
