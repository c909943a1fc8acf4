"""Votes of a board that goes on: a file for each period, kept in the run's private folder.

`private/votes/0001.csv` and so on are copies of what was handed over; `private/votes.json` has the
SHA-256 of each, in its order. What a voter may still add follows from what they gave before, so all
of them are compared each time, and one that was changed ends the board. Votes whose release was not
charged have told nothing to anybody: they are dropped, and others can come in their place.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from murmuration.client.labels.private_file import PrivateFile
from murmuration.preference.data.in_memory import Source, row_lines
from murmuration.preference.data.loading import Data
from murmuration.preference.data.rows import InputError
from murmuration.preference.data.sources import kind_of
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
    index = _index(folder)
    with index.locked():
        charged = _charged(folder)
        if _finished(folder) < charged:
            raise InputError(
                f"release {charged} of {folder} was begun, and not finished: finish it first, with "
                f"murmuration rank --resume --out {folder}"
            )
        votes = _Votes(folder, index)
        votes.drop_after(charged)
        try:
            votes.add(data)
            yield
        except BaseException:
            votes.drop_after(_charged(folder))
            raise


def with_release(config: RunConfig) -> RunConfig:
    """Return the settings of a run with the release that its votes are for, where there are
    several.

    Raises:
        InputError: votes are elsewhere, or were changed.
    """
    folder = Path(config.out)
    if config.of(RankingSettings).releases == 1:
        return config
    digests = _index(folder).read().get("sha256", {})
    if not digests:
        raise InputError("--releases is for murmuration rank, which keeps the votes of each period")
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
    return config.changed(release=len(digests))


def check_periods(config: RunConfig, data: Data) -> None:
    """InputError for votes that are in no period of their own, where a board has several releases.

    Pairs of single ratings are those: what is said later makes pairs with what was said before, so
    votes of periods that are released already would change.
    """
    if data.thumbs and config.of(RankingSettings).releases > 1:
        raise InputError(
            f"{config.data}: these are single ratings, and pairs of two of them belong to no "
            "period: a board with --releases takes pairs, rankings or the best of several"
        )


class _Votes:
    """The files, while they are locked."""

    def __init__(self, folder: Path, index: PrivateFile) -> None:
        self._folder, self._index = folder, index
        self._digests: dict[str, str] = index.read().get("sha256", {})

    def add(self, data: Source) -> None:
        """Copy the votes of one more period."""
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
            self._index.path.unlink(missing_ok=True)
            self._index.lock_path.unlink(missing_ok=True)
            for empty in (location(self._folder), self._index.path.parent, self._folder):
                if not empty.is_dir() or any(empty.iterdir()):
                    break
                empty.rmdir()


def _index(folder: Path) -> PrivateFile:
    return PrivateFile(location(folder).with_name("votes.json"))


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
