"""Users' gradients of language models on the device that is there, in a few minutes.

Three models with random weights, in the number type that is fastest there:

- SmolLM2-135M's shape: a user has one judgement, two texts of 128 tokens;
- 350M: a round of 1,024 users with four texts of 128 tokens, all weights trained on next tokens;
- Aya: the shapes of pfl-research's benchmark, 1.1 B weights, LoRA of rank 8, a cohort of 100 users,
  here with four texts of 512 tokens; beside pfl-research itself where it is installed.

Of each a row for plain batched training, and one for each mode of users' passes. Users are measured
in growing numbers until a row's share of the time is used; ``round_s`` is of all of them, by their
number. ``noise and step`` is what the server adds: noise for D numbers and Adam's step.

``share_of_peak`` counts 6 operations a weight and token where all weights are trained and 4 for
LoRA, attention not, over what a product of two square matrices reaches.

Legend: D trained parameters.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.machine import fastest_dtype, usual_device
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.bench.language_model import (
    LmBench,
    Variants,
    examples,
    saved_model,
    texts,
)
from murmuration.research.bench.memory import OwnMemory
from murmuration.research.bench.rivals import NoRival, pfl_language_users_per_second
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer

_GROWTH = 4  # times as many users, until the time is used
_GIB = 2.0**30


@dataclass(frozen=True)
class Part:
    """A model, its users, and what is trained of it on what."""

    name: str
    bench: LmBench
    task: str
    trained: tuple[str, ...]

    @property
    def small(self) -> "Part":
        """The same of a size that any machine computes at once."""
        kinds = {"attention_heads": 4, "key_heads": 2, "inner": 64} if self.bench.key_heads else {}
        sizes = {"layers": 2, "width": 64, "vocabulary": 300, "tokens": 16, "users": 5, **kinds}
        return replace(self, bench=replace(self.bench, **sizes))


_SMOLLM2 = LmBench(
    users=1024, judgements=1, layers=30, width=576, attention_heads=9, key_heads=3, inner=1536,
    vocabulary=49_152,
)  # fmt: skip
_TINY_LLAMA = LmBench(
    users=100, tokens=512, layers=22, width=2048, attention_heads=32, key_heads=4, inner=5632,
    vocabulary=32_000, rank=8,
)  # fmt: skip
PARTS = (
    Part("SmolLM2-135M", _SMOLLM2, "reward", ("lora", "full")),
    Part("350M", LmBench(users=1024, layers=24, width=1024), "text", ("full",)),
    Part("Aya", _TINY_LLAMA, "text", ("lora",)),
)


def device() -> dict[str, str]:
    """The device's name and the number type."""
    cuda = usual_device().type == "cuda"
    name = torch.cuda.get_device_name() if cuda else "this processor, no GPU"
    return {"device": name, "dtype": fastest_dtype()}


def measure(seconds: float, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Yield rows as they are done, until all are or the time is over.

    Args:
        seconds: of all rows together; the last may take a little longer.
        quick: models of a size that any machine computes at once.
    """
    rows = 4 * sum(len(part.trained) for part in PARTS)
    left, peak = _Left(time.perf_counter() + seconds, rows), _peak(256 if quick else 8192)
    for part in PARTS:
        chosen = part.small if quick else part
        with saved_model(chosen.bench) as path:
            for train in part.trained:
                for way, row in _rows(chosen, path, train, left):
                    if operations := row.pop("operations", 0):
                        row["share_of_peak"] = row["tokens_per_second"] * operations / peak
                    yield {"model": part.name, "train": train, "way": way, **row}
                    left.rows -= 1
                    if left.share < 0.0:
                        return


@dataclass
class _Left:
    """When to end, and how many rows there are until then."""

    end: float
    rows: int

    @property
    def share(self) -> float:
        """Seconds for a row; negative if the time is over."""
        return (self.end - time.perf_counter()) / max(1, self.rows)


def _rows(part: Part, path: str, train: str, left: _Left) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each way's figures."""
    bench = part.bench
    settings = BaseSettings(
        path,
        train,
        bench.rank,
        max_tokens=bench.tokens,
        batch_tokens=bench.batch_tokens,
        task=part.task,
        dtype="auto",
    )
    base = LanguageBase(settings)
    given = texts(bench, base) if part.task == "text" else examples(bench, base)
    whole, tokens = Variants(given), len(given.tokens.ids) / bench.users
    ways: dict[str, Callable[[int], object]] = {
        "plain": lambda users: whole.first(users).plain(),
        "isolated": lambda users: whole.first(users).kept(),
        "shared": lambda users: whole.first(users).kept(shared_passes=True),
    }
    each = {}
    for way, call in ways.items():
        try:
            users, each[way], memory = _grown(call, bench.users, left.share)
        except (InputError, torch.OutOfMemoryError):
            yield way, {"note": "out of memory"}
            continue
        yield (
            way,
            {
                "users": users,
                "tokens_per_second": tokens / each[way],
                "operations": _operations(base.model) * (6 if train == "full" else 4),
                "over_plain": each[way] / each.get("plain", math.nan),
                "round_s": each[way] * bench.users,
                "memory_gib": memory,
            },
        )
    if part.name == "Aya":
        try:
            sizes = (bench.users, bench.users, bench.judgements, 1, bench.tokens, bench.rank)
            speed = pfl_language_users_per_second(path, sizes)
            yield (
                "pfl-research",
                {
                    "users": bench.users,
                    "tokens_per_second": tokens * speed,
                    "over_plain": 1.0 / speed / each.get("plain", math.nan),
                    "round_s": bench.users / speed,
                },
            )
        except NoRival as reason:
            yield "pfl-research", {"note": str(reason)}
    else:
        yield "noise and step", {"round_s": _noise_and_step(base.dimension)}


def _grown(call: Callable[[int], object], most: int, share: float) -> tuple[int, float, float]:
    """The most users that fit into ``share`` seconds, their seconds each, and GiB."""
    users = min(4, most)
    call(users)  # warms up
    while True:
        seconds, memory = _reading(call, users)
        more = min(most, _GROWTH * users)
        if users == most or seconds * (1 + more / users) > share:
            return users, seconds / users, memory
        users, share = more, share - seconds


def _reading(call: Callable[[int], object], users: int) -> tuple[float, float]:
    """Seconds, and the most GiB: the device's, or this process's own."""
    cuda = usual_device().type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    with OwnMemory() as own:
        begun = time.perf_counter()
        call(users)
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
    return seconds, torch.cuda.max_memory_allocated() / _GIB if cuda else own.most_mib / 1024


def _operations(network: torch.nn.Module) -> int:
    """The weights that a token is multiplied by: those of linear layers."""
    matrices = (p for name, p in network.named_parameters() if p.ndim == 2)
    embedded = network.get_input_embeddings().weight  # type: ignore[operator]
    head = network.get_output_embeddings()  # type: ignore[operator]
    tied = head is not None and head.weight is embedded
    return sum(p.numel() for p in matrices if p is not embedded or tied)


def _noise_and_step(dimension: int) -> float:
    """Seconds of a server's part in a round."""
    optimizer = ServerOptimizer(
        OptimizerSettings("adam", 1e-3, rounds=10), np.zeros(dimension, np.float32)
    )
    begun = time.perf_counter()
    optimizer.step(1, Randomness(0).stream("noise", 1).standard_normal(dimension))
    return time.perf_counter() - begun


def _peak(size: int) -> float:
    """Operations per second of products of two square matrices; the best of five readings."""
    one = torch.ones(size, size, dtype=getattr(torch, fastest_dtype()), device=usual_device())

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(one, one)

    return max(2.0 * size**3 * 8 / _reading(multiply, 8)[0] for _ in range(5))
