"""JSON that every reader can read: it has no word for what is no number, or infinite."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def strict_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with words in the place of numbers that JSON cannot hold; ``options``
    are those of ``json.dumps``."""
    return json.dumps(finite(value, _word), allow_nan=False, **options)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON, a line each."""
    return "".join(strict_json(row, ensure_ascii=False) + "\n" for row in rows).encode()


def finite(value: Any, instead: Callable[[float], Any]) -> Any:
    """Return a value in which something is ``instead`` of each number that JSON cannot hold; its
    tuples are lists."""
    if isinstance(value, Mapping):
        return {name: finite(entry, instead) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry, instead) for entry in value]
    return instead(value) if isinstance(value, float) and not math.isfinite(value) else value


def _word(value: float) -> str:
    return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
