"""What every builder of a strategy is given, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from flwr.serverapp import Grid

from murmuration.preference.data.judgements import InputError
from murmuration.preference.features.hashing import parse_features
from murmuration.preference.features.language_head import KIND as HEAD
from murmuration.preference.language.base_model import KIND, BaseSettings
from murmuration.preference.language.loading import resolve_base
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.config import RunConfig
from murmuration.server.run_directory import Value
from murmuration.strategies.base import CohortStrategy, Participants, PrivateLog
from murmuration.strategies.noise import NoiseChoice, choose
from murmuration.strategies.optimizers import (
    OptimizerSettings,
    ServerOptimizer,
    SolvedModel,
    noise_limited_rate,
)
from murmuration.strategies.settings import FEW_ROUNDS

# What a run's settings say about a language model, and how such a model is stepped.

#: Adam's step by what is trained. θ starts at zero and is measured in the parameters' own units,
#: so features' scale says nothing about it; at these rates a hundred rounds of noise alone move a
#: reward little.
RATES = {"lora": 1e-2, "full": 1e-3}


def base_config(config: RunConfig) -> dict[str, Any]:
    """The description of what is learnt on, for `preference.bases.base_of`.

    Raises:
        InputError: settings that do not go together, or a folder that is not there.
    """
    given = {
        "train": config.train,
        "rank": config.lora_rank,
        "targets": config.lora_targets,
        "max_tokens": config.max_tokens,
        "batch_tokens": config.batch_tokens,
        "memory": config.user_memory,
        "task": config.task,
        "as_published": config.as_published,
    }
    if not config.base:
        return parse_features(config.features)
    if config.features != "hashing":
        raise InputError("--features are for a linear head: leave them out, or --base")
    chosen = {name: value for name, value in given.items() if value}
    settings = BaseSettings(path=resolve_base(config.base), **chosen)
    if settings.train == "head":
        shaping = ("path", "max_tokens", "batch_tokens")
        return {"kind": HEAD, **{name: getattr(settings, name) for name in shaping}}
    if config.strategy in FEW_ROUNDS:
        raise InputError(
            f"--strategy {config.strategy} solves for a linear head: with --base, --train head"
        )
    return {"kind": KIND, **vars(settings)}


def trains_layers(config: RunConfig) -> bool:
    """Whether more than a linear head is trained."""
    return bool(config.base) and config.train != "head"


class Once(Protocol):
    """What a release gave, which a resumed run is not to ask for again."""

    def __call__(self, name: str, release: Callable[[], Value]) -> Value:
        """What ``release()`` gives, or gave, under this name."""
        ...


@dataclass(frozen=True)
class Setting:
    """What a strategy needs besides its plan.

    Raises:
        ValueError: the plan would count on coins of a hold-out that were not tossed.
    """

    config: RunConfig
    participants: Participants
    source: Randomness
    features: str
    dimension: int
    log: PrivateLog
    grid: Grid
    once: Once

    def __post_init__(self) -> None:
        tossed, hold_out = self.participants.share, self.hold_out
        if hold_out and hold_out.share != tossed:
            raise ValueError(
                f"the noise would be made for users who are held out with probability "
                f"{hold_out.share:g}, and they are with {tossed:g}: name a test, or hold them out"
            )

    @property
    def hold_out(self) -> HoldOut | None:
        """How users are held out by a secret coin, if that is so."""
        return self.config.hold_out

    @property
    def users(self) -> int:
        """The nominal number of users to train on."""
        return self.config.trained_on(len(self.participants.registry))

    @cached_property
    def noise(self) -> NoiseChoice:
        """Which noise is drawn."""
        nodes = len(self.participants.registry.nodes)
        return choose(self.config, self.dimension, seeded=self.source.seeded, nodes=nodes)

    def optimizer(self, kind: str, noise: float, ceiling: float) -> ServerOptimizer:
        """The server optimizer, starting from zero: every answer is worth the same.

        ``kind`` and ``ceiling`` are the strategy's defaults, ``noise`` that of one round's average.
        """
        config = self.config
        if trains_layers(config):
            kind, ceiling, noise = "adam", RATES[config.train or "lora"], 0.0
        settings = OptimizerSettings(
            kind=config.optimizer or kind,
            rate=config.learning_rate or ceiling,
            rounds=config.rounds,
            momentum=config.momentum,
            warmup=config.warmup,
            averaging=config.averaging,
        )
        if not config.learning_rate:
            settings = replace(settings, rate=noise_limited_rate(noise, settings, ceiling))
        return ServerOptimizer(settings, np.zeros(self.dimension, dtype=np.float32))

    def arguments(self, optimizer: ServerOptimizer | SolvedModel) -> dict[str, object]:
        """Arguments of every ``CohortStrategy``."""
        return {
            "participants": self.participants,
            "optimizer": optimizer,
            "source": self.source,
            "features": self.features,
            "model": self.config.model,
            "log": self.log,
            "timeout": self.config.timeout,
            "least_nodes": self.config.least_nodes,
            "masked": self.config.secure_aggregation,
            "batch_users": self.config.batch_users,
        }


@dataclass(frozen=True)
class Built:
    """A strategy with the figures that its report states."""

    strategy: CohortStrategy
    charges: dict[Event, int]
    noise_multiplier: float
    clip_norm: float | None
    group_size: int
    noise: float
    guarantee: str
    #: Expected number of users' gradients computed in the whole run.
    gradients: float
    #: Expected bytes to and from one user on a node of their own, in the whole run.
    bytes_per_user: float
    #: For the report: what took place in a round, in sentences.
    account: str = ""
    #: Whether the guarantee is one; False where a paper's claim is repeated.
    proven: bool = True
    #: Whose ε the promise is: a user's, or an item's where each judgement is protected by itself.
    level: str = "user"


def cohort_bytes(setting: Setting, *, down: int = 1, up: int = 8) -> float:
    """Bytes per user where a sampled user gets ``down`` vectors and answers with one, a round.

    What comes down is float32; each of the D numbers that go up has ``up`` bytes.
    """
    config = setting.config
    each = (4 * down + up) * setting.dimension
    return config.rounds * config.cohort / setting.users * each


def promise(config: RunConfig) -> str:
    """The guarantee of a run that spends its whole budget, in a sentence or two."""
    adjacency = Adjacency(config.adjacency)
    return (
        f"User-level ({config.epsilon:g}, {config.delta:g})-differential privacy under "
        f"{adjacency} adjacency for all {config.rounds} models together. {adjacency.sentence}"
    )
