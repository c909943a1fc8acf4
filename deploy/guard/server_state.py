"""Erase nodes' messages from a SuperLink's database on disk.

Flower stores every message in ``state.db`` until its run is over, exact sums of nodes among them,
and deletes the rows then. Their bytes stay in free pages and in the write-ahead log beside it
(``state.db-wal``), for as long as nobody writes over them. Writing the database anew and cutting
the log to nothing takes them out of both files. The SuperLink does it itself when a run has ended,
in any way. What a disk keeps of blocks that no file has any more is beyond this (an encrypted disk
helps).
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from murmuration.strategies.protocol.flower_internals import LinkState, Status

LOCKED = 2.0  # seconds that one attempt waits for the SuperLink's writing
_BETWEEN = 0.25
_LOOKS = 1.0  # seconds between looks at which runs are over

log = logging.getLogger(__name__)


def start_erasing(state: LinkState, database: Path) -> None:
    """Erase what nodes sent as long as this process lives, each time that runs are over."""
    threading.Thread(target=_erase_forever, args=(state, database), daemon=True).start()


def _erase_forever(state: LinkState, database: Path) -> None:
    erased: set[int] = set()
    while True:
        try:
            erased |= erase_finished(state, database, erased)
        except Exception:  # the database is locked, say: what is left is erased at a later look
            log.exception("what nodes sent could not be erased from %s yet", database)
        time.sleep(_LOOKS)


def erase_finished(state: LinkState, database: Path, before: set[int]) -> set[int]:
    """Delete what runs that are over left in a SuperLink's state, and erase it; these runs.

    Those in ``before`` have been erased already. Flower deletes a run's messages only when
    somebody asks for the run after its end. None are returned while the SuperLink is writing too
    much for erasing.
    """
    over = {run.run_id for run in state.get_run_info(statuses=[Status.FINISHED])} - before
    for run in over:
        state.cleanup_run(run)
    return over if over and erase_leftovers(database) else set()


def erase_leftovers(database: Path, seconds: float = 15.0) -> bool:
    """Erase what was deleted from a SuperLink's state, whether or not the SuperLink runs.

    What belongs to a run that is not over stays. The files are for their owner alone afterwards.
    False if that could not be done in so many seconds, because the SuperLink was writing.
    """
    if not database.exists():
        return True
    for path in database.parent.glob(f"{database.name}*"):
        path.chmod(0o600)
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(sqlite3.OperationalError), _opened(database) as connection:
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_BETWEEN)


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(database, timeout=LOCKED, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()
