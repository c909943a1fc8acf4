"""Files that are not any more as they were written."""

import json
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.chained_record import ChainedRecord, head_path


def change(at: int, by: int = 1) -> Callable[[Path], None]:
    """A function that changes one byte of a file."""

    def harm(file: Path) -> None:
        whole = bytearray(file.read_bytes())
        whole[at] ^= by
        file.write_bytes(whole)

    return harm


@contextmanager
def no_file_above(most: int) -> Iterator[None]:
    """Writes to files of more bytes fail, as on a full disk, in libraries of any language too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def any_number() -> Iterator[None]:
    """Records take what is no number of JSON, as a program of somebody else's may write it."""
    dumps = json.dumps
    with patch.object(chained_record.json, "dumps", lambda value, **_: dumps(value)):
        yield


def rewrite(path: Path, payloads: Sequence[Mapping[str, Any]]) -> None:
    """Put another history, of these lines, in the place of a chained record; its head with it."""
    path.unlink(missing_ok=True)
    head_path(path).unlink(missing_ok=True)
    with any_number():
        record = ChainedRecord(path, payloads[0])
        for payload in payloads[1:]:
            record.append(payload)
        record.close()
