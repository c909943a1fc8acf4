"""From settings to a strategy: the plan is made here, once, from public numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.events import Event
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from server.config import RunConfig
from strategies import nonprivate, uls
from strategies.nonprivate import NonPrivate, NonPrivatePlan
from strategies.optimizer import OptimizerSettings, ServerOptimizer, noise_limited_rate
from strategies.rounds import CohortStrategy, Participants, PrivateLog
from strategies.uls import Uls, UlsPlan


@dataclass(frozen=True)
class Setting:
    """What a strategy needs besides its plan."""

    config: RunConfig
    participants: Participants
    source: Randomness
    features: str
    dimension: int
    log: PrivateLog

    @property
    def users(self) -> int:
        """The nominal number of users."""
        return self.config.users or len(self.participants.train)

    def optimizer(self, kind: str, noise: float, ceiling: float) -> ServerOptimizer:
        """The server optimizer, starting from zero: every answer is worth the same.

        ``kind`` and ``ceiling`` are the strategy's defaults, ``noise`` that of one round's average.
        """
        config = self.config
        settings = OptimizerSettings(
            kind=config.optimizer or kind,
            rate=config.learning_rate or ceiling,
            rounds=config.rounds,
            momentum=config.momentum,
            warmup=config.warmup,
            averaging=config.averaging,
        )
        if not config.learning_rate:
            rate = noise_limited_rate(noise, settings, ceiling)
            settings = OptimizerSettings(**{**settings.__dict__, "rate": rate})
        return ServerOptimizer(settings, np.zeros(self.dimension, dtype=np.float32))

    def arguments(self, optimizer: ServerOptimizer) -> dict[str, object]:
        """Arguments of every ``CohortStrategy``."""
        return {
            "participants": self.participants,
            "optimizer": optimizer,
            "source": self.source,
            "features": self.features,
            "log": self.log,
            "timeout": self.config.timeout,
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


def build(setting: Setting, ledger: Ledger) -> Built:
    """The strategy that the settings ask for; ValueError or BudgetExceeded if it cannot be."""
    return _BUILDERS[setting.config.strategy](setting, ledger)


def _uls(setting: Setting, ledger: Ledger) -> Built:
    config = setting.config
    plan = UlsPlan.for_epsilon(
        config.epsilon,
        users=setting.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(config.clip or uls.DEFAULT_CLIP),
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
    )
    optimizer = setting.optimizer("sgd", plan.noise, uls.RATE_CEILING / plan.clip.norm)
    return Built(
        strategy=Uls(plan, ledger, **setting.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=(
            f"User-level ({config.epsilon:g}, {config.delta:g})-differential privacy under "
            f"{plan.adjacency} adjacency for all {plan.rounds} models together. "
            f"{plan.adjacency.sentence}"
        ),
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting),
    )


def _nonprivate(setting: Setting, ledger: Ledger) -> Built:
    config = setting.config
    plan = NonPrivatePlan(
        setting.users,
        config.cohort,
        config.rounds,
        config.group_size or uls.DEFAULT_GROUP_SIZE,
    )
    optimizer = setting.optimizer("adam", 0.0, nonprivate.RATE)
    return Built(
        strategy=NonPrivate(plan, ledger, **setting.arguments(optimizer)),
        charges={},
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=plan.group_size,
        noise=0.0,
        guarantee="No privacy: exact gradients were released.",
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(setting),
    )


def cohort_bytes(setting: Setting, vectors: float = 2.0) -> float:
    """Bytes per user where a sampled user exchanges ``vectors`` vectors of D float32 a round."""
    config = setting.config
    return config.rounds * config.cohort / setting.users * vectors * 4 * setting.dimension


_BUILDERS: dict[str, Callable[[Setting, Ledger], Built]] = {
    "uls": _uls,
    "nonprivate": _nonprivate,
}
