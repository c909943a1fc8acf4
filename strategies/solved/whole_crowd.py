"""Common base of plans in which all users take part, with one vector each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.sums import SumPlan, check_vectors_fit

#: Of strategies whose ball or ridge is about zero.
FROM_ZERO = Rule(
    lambda config, strategy: config.start,
    "--start: the ball or ridge of --strategy {strategy} is about zero, and so is what is known of "
    "it",
    ({"start": None},),
)


@dataclass(frozen=True, kw_only=True)
class WholeCrowdPlan(SumPlan):
    """A plan in which all users take part in every round, with one clipped vector each."""

    possible_rounds: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"there must be at least one user, got {self.users}")
        if self.rounds not in self.possible_rounds:
            listed = " or ".join(map(str, self.possible_rounds))
            raise ValueError(f"--rounds must be {listed}, got {self.rounds}")
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of a sum."""
        return self.mechanism.std
