"""What a SuperLink keeps on disk of what nodes sent, and getting rid of it.

Flower stores every message in ``state.db`` until its run is over, exact sums of nodes among them,
and deletes the rows then. Their bytes stay in free pages and in the write-ahead log beside it
(``state.db-wal``), for as long as nobody writes over them. Writing the database anew and cutting
the log to nothing takes them out of both files. What a disk keeps of blocks that no file has any
more is beyond this (an encrypted disk helps).
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

LOCKED = 2.0  # seconds that one attempt waits for the SuperLink's writing
_BETWEEN = 0.25


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
