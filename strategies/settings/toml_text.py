"""TOML that somebody else wrote, read within bounds."""

import tomllib
from typing import Any

#: Dots in one line: Python's parser takes time by the square of a key's parts.
_MOST_DOTS = 200


def parse_toml(text: str) -> dict[str, Any]:
    """Return what a TOML document says.

    Raises:
        ValueError: it is none, nests too deeply, or has keys of too many parts.
    """
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
