"""Stored results of parts of a reproduction, from which an interrupted one continues: data, never
code.

A result is named by its function, its task, and the code and libraries that it was computed with:
all modules of this package, the interpreter, numpy and torch. What a task reads from elsewhere is
no part of the name, unless the task says so (as by a digest).

A file is JSON. Numbers, texts, lists, tuples, dictionaries, arrays of numbers, and records
(dataclasses and named tuples of these experiments) are read as what they were; anything else is
not kept, and what cannot be read is computed again.
"""

import base64
import hashlib
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import murmuration
from murmuration.privacy.durable_files import replace_file

_NUMBERS = "biufc"  # kinds of numpy's types


def place(folder: Path, function: Callable[..., Any], task: object) -> Path:
    """The file of a result."""
    about = (_code(), function.__module__, function.__qualname__, task)
    return folder / f"{hashlib.sha256(pickle.dumps(about)).hexdigest()[:32]}.json"


@cache
def _code() -> str:
    whole = hashlib.sha256(f"{sys.version} {np.__version__} {torch.__version__}".encode())
    root = Path(murmuration.__file__).parent
    for room in sorted({root, *(path.resolve() for path in root.iterdir() if path.is_dir())}):
        for file in sorted(room.rglob("*.py")):
            whole.update(f"{room.name}/{file.relative_to(room)}\n".encode() + file.read_bytes())
    return whole.hexdigest()


def keep(file: Path, result: object) -> None:
    """Write a result down, if it is data."""
    try:
        content = json.dumps([encoded(result)])
    except TypeError:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, content.encode())


def read(file: Path) -> tuple[Any] | None:
    """The cached result, in a tuple; None if there is none that can be read."""
    try:
        (content,) = json.loads(file.read_bytes())
        return (decoded(content),)
    except Exception:  # not there, or somebody else's: it is computed
        return None


def encoded(value: object) -> Any:
    """Encode data as JSON; TypeError for anything else."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMBERS:
        array = np.ascontiguousarray(value)
        shape = list(value.shape) if isinstance(value, np.ndarray) else None
        return {"array": [array.dtype.str, shape, base64.b64encode(array.tobytes()).decode()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [encoded(each) for each in value]}  # type: ignore[attr-defined]
    if type(value) is dict:
        return {"dict": [[encoded(key), encoded(each)] for key, each in value.items()]}
    if (names := _names(type(value))) is not None:
        parts = [encoded(getattr(value, name)) for name in names]
        return {"record": [type(value).__module__, type(value).__name__, parts]}
    raise TypeError(f"a {type(value).__name__} is not kept")


def decoded(content: Any) -> Any:
    """Decode what ``encoded`` made; an error for anything else."""
    if not isinstance(content, dict):
        return content
    ((kind, parts),) = content.items()
    if kind == "array":
        dtype, shape, data = np.dtype(str(parts[0])), parts[1], base64.b64decode(parts[2])
        if dtype.kind not in _NUMBERS:
            raise TypeError("an array of something else than numbers")
        array = np.frombuffer(data, dtype).reshape(() if shape is None else shape).copy()
        return array[()] if shape is None else array
    if kind in ("list", "tuple"):
        result = [decoded(each) for each in parts]
        return result if kind == "list" else tuple(result)
    if kind == "dict":
        return {decoded(key): decoded(each) for key, each in parts}
    if kind != "record":
        raise TypeError(f"unknown: {kind}")
    module, name, values = parts
    record = vars(sys.modules[module])[name]
    names = _names(record)
    if names is None or record.__module__ != module:
        raise TypeError(f"{module}.{name} is no record")
    return record(**dict(zip(names, map(decoded, values), strict=True)))


def _names(kind: type) -> tuple[str, ...] | None:
    """The names of the fields of a record of the experiments; None for any other type."""
    if not (isinstance(kind, type) and kind.__module__.startswith(f"{__package__}.")):
        return None
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind) if field.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
