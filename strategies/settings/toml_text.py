"""Untrusted TOML, read within bounds."""

import tomllib
from typing import Any

#: Dots in one line: Python's parser takes time by the square of a key's parts.
_MOST_DOTS = 200


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        ValueError: it is none, nests too deeply, has keys of too many parts, or a number that no
            64 bits hold.
    """
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    try:
        result = tomllib.loads(text)
        _check_numbers(result)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return result


def _check_numbers(value: object) -> None:
    """ValueError for a whole number beyond 64 bits, which could not even be shown."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("a number is longer than 64 bits")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_numbers(inner)
