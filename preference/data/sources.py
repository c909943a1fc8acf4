"""What is a path and what a name on a hub.

An existing path always wins. A name that does not exist here and looks like a path is a missing
file, not something to ask a hub for: a mistyped path never leaves the machine.
"""

import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

_FILE_ENDINGS = (
    ".jsonl",
    ".json",
    ".ndjson",
    ".csv",
    ".tsv",
    ".txt",
    ".parquet",
    ".arrow",
    ".gz",
    ".zip",
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def looks_like_path(source: str) -> bool:
    """Return whether this can only be meant as a path: `./x`, `~/x`, `/x`, `x/`, `a/b/c`,
    `x.csv`."""
    return (
        source.startswith((".", "~"))
        or Path(source).is_absolute()
        or source.endswith(("/", os.sep))
        or source.count("/") > 1
        or "\\" in source
        or source.lower().endswith(_FILE_ENDINGS)
    )


def is_hub_name(source: str) -> bool:
    """Return whether this is formed like `name` or `owner/name`."""
    return _HUB_NAME.fullmatch(source) is not None


def hub_is_reachable() -> bool:
    """Return whether the hub's name can be looked up; behind a proxy it is taken to be reachable.

    Without a network the hub's clients try again for half a minute before they look into their own
    caches; who asks here first can send them there at once.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if getproxies():
        return True
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def first_line(error: BaseException) -> str:
    """An error's first line of text, or its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
