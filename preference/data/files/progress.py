"""How far long work is: a line in the log now and then, for whoever sets a handler there.

Numbers of rows are private: the lines are for the operator, or a node's owner, alone.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from murmuration.preference.escaping import get_logger
from murmuration.privacy.disclosure import OperatorOnly

log = get_logger("murmuration.progress")
log.setLevel(logging.INFO)

#: From one line to the next.
SECONDS = 5.0
_EACH = 1024  # items between looks at the clock
_Item = TypeVar("_Item")


def counted_aloud(items: Iterable[_Item], doing: str, total: int = 0) -> Iterator[_Item]:
    """Yield the items, and log now and then how many are done, of ``total`` if that is known."""
    begun = logged = time.monotonic()
    of_all = f" of {total:,}" if total else ""
    for done, item in enumerate(items, start=1):
        yield item
        if done % _EACH == 0 and (now := time.monotonic()) >= logged + SECONDS:
            logged = now
            log_private(f"{doing}: {done:,}{of_all}, {done / (now - begun):.0f} per second")


def log_private(line: str) -> None:
    """Log a line about private rows."""
    log.info("%s", OperatorOnly(line))
