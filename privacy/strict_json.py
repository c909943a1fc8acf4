"""JSON that every reader can read: it has no word for what is no number, or infinite."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def strict_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with words in the place of numbers that JSON cannot hold; ``options``
    are those of ``json.dumps``."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON, a line each."""
    return "".join(strict_json(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    return value
