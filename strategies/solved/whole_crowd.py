"""Common base of plans in which all users take part, with one vector each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.strategies.spec import Strategy
from murmuration.strategies.sums import Discrete, SumPlan, check_vectors_fit, noise_for_users


@dataclass(frozen=True, kw_only=True)
class WholeCrowdPlan(SumPlan):
    """A plan in which all users take part in every round, with one clipped vector each."""

    discrete: Discrete = None

    @staticmethod
    @abstractmethod
    def declared() -> Strategy:
        """The strategy that it is the plan of."""

    @property
    @abstractmethod
    def clip(self) -> UserClip:
        """The bound on a user's contribution."""

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"there must be at least one user, got {self.users}")
        if self.rounds not in (allowed := self.declared().rounds):
            listed = " or ".join(map(str, allowed))
            raise ValueError(f"--rounds must be {listed}, got {self.rounds}")
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @classmethod
    def calibrate_noise(cls, epsilon: float, plan: Mapping[str, Any]) -> float:
        """The noise multiplier at which a plan with these other fields costs ``epsilon``."""
        return noise_for_users(epsilon, plan)

    @cached_property
    def mechanism(self) -> GaussianSum:
        """The mechanism that each round runs and charges: a Gaussian sum over all users."""
        return GaussianSum(
            self.sampler, self.clip, self.noise_multiplier, self.adjacency, self.discrete
        )

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of a sum."""
        return self.mechanism.std

    @property
    def noise(self) -> float:
        """The noise of the mean over the nominal number of users."""
        return self.std / self.users

    @property
    def gradients(self) -> float:
        """Expected number of users' vectors computed in the whole run."""
        return self.rounds * self.users
