"""The settings of a benchmark, and its machine."""

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any, TypeVar

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.strategies.config import RunConfig

_Value = TypeVar("_Value")
_USERS = "murmuration.research.bench.synthetic_users"


@dataclass(frozen=True)
class Setting:
    """A run: N users with m judgements each, D dimensions, M users in a round. With a ``base``
    users have texts, which that language model learns; m are the most of one user in a round.
    """

    users: int = 2500
    cohort: int = 250
    dimension: int = 384
    each: int = 10
    runtime: str = "local"  # or ray
    base: str = ""

    @property
    def source(self) -> str:
        """Its judgements, or texts."""
        name = f"texts_{self.users}" if self.base else f"users_{self.users}_each_{self.each}"
        return f"{_USERS}:{name}"

    @property
    def features(self) -> HashingFeatures:
        """Hashing features of its dimension."""
        return HashingFeatures(dimension=self.dimension)

    @contextmanager
    def config(self, rounds: int) -> Iterator[RunConfig]:
        """Settings of a run whose folder is gone afterwards."""
        texts = {"task": "text", "base": self.base, "lora_rank": 4, "max_tokens": 128}
        with tempfile.TemporaryDirectory(prefix="bench-", dir=Path.cwd()) as folder:
            yield RunConfig(
                **(texts if self.base else {}),
                data=self.source,
                test=f"{_USERS}:few{'_texts' if self.base else ''}",  # so that nobody is held out
                cohort=self.cohort,
                rounds=rounds,
                seed=0,
                group_size=self.each,  # every judgement counts
                out=str(Path(folder) / "run"),
            )


def machine() -> dict[str, Any]:
    """The machine and packages of a measurement."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ("torch", "numpy", "flwr")
    return {
        "cpu": models[0] if models else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "versions": {"python": python_version(), **{name: version(name) for name in packages}},
    }


def timed(call: Callable[[], _Value]) -> tuple[_Value, float]:
    """The result of a call, and its duration in seconds."""
    begun = time.perf_counter()
    value = call()
    return value, time.perf_counter() - begun


def told(grid: type[Grid], of_round: Callable[[list[Message]], None]) -> Callable[..., Grid]:
    """A grid of this kind that says when messages are to go out, and goes on when told."""

    class Told(grid):  # type: ignore[misc, valid-type]
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            outgoing = list(messages)
            of_round(outgoing)
            return super().push_messages(outgoing)

    return Told
