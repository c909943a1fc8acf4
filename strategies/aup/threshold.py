"""AUP, centred, with a radius that a sparse vector test keeps small.

In every round the test asks the cohort that is summed whether at least four in five of the nominal
cohort are within the radius (AUP-RLHF, Algorithm 3, with a query that every client computes alone).
While it passes the radius shrinks by schedule; a "no" widens it and ends the series, and one of a
fixed number of further series begins. When all are spent the radius stays. See
``strategies.aup.centred`` for the rest.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, which may be
any of the four, for the whole sequence of models, centres and radii: T compositions of the
Poisson-subsampled Gaussian with probability M/N, and the pure epsilon of each series in full. The
test may ask the very cohort that is summed because it has pure DP for any change of one user's
sampling and bit, and because the round's centre and radius are fixed before its answer; it is never
amplified by sampling. The count of those within moves by 1, and only up where a user comes and down
where one goes, so that its noise is halved under add-remove and zero-out. Trusted: as for
``strategies.aup.centred``.

This costs more than the quantile: the test needs noise small beside a fifth of the cohort in every
round, with Laplace tails, and none of it is amplified. With 200 rounds of 500 among 2,500 users it
adds a fifth to the noise; the quantile adds 2 % at epsilon = 1 and 0.3 % at 3.

Legend: D dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold, OpenThreshold
from murmuration.strategies.adaptive import DEFAULT_START, RadiusPlan, bounded
from murmuration.strategies.aup.centred import AupCentred

#: The share of the nominal cohort that is to be within the radius.
_SHARE = 0.8
#: Factors per round that passes, and per "no".
_SHRINK, _WIDEN = 0.9, 1.25
#: How many series, and the share of the whole epsilon that each may cost.
_SERIES, _EACH = 2, 0.125


@dataclass(frozen=True)
class ThresholdRule:
    """Shrinks a radius that begins at ``start`` while the test passes, and widens it at a "no"."""

    start: float = DEFAULT_START

    def next(self, radius: float, passed: bool) -> float:
        """The radius after a test."""
        return bounded(radius * (_SHRINK if passed else _WIDEN), self.start)


@dataclass(frozen=True, kw_only=True)
class ThresholdPlan(RadiusPlan):
    """An ``AdaptivePlan`` with ``series`` tests of ``test_epsilon`` each instead of a noisy
    count.
    """

    test_epsilon: float
    rule: ThresholdRule = ThresholdRule()
    series: int = _SERIES

    #: The test takes a plain count.
    middle = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.series < 1:
            raise ValueError(f"there must be at least one series of tests, got {self.series}")

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> Self:
        """The plan with the least noise that costs at most ``epsilon``; other fields as given."""
        return super().for_epsilon(epsilon, **{"test_epsilon": _EACH * epsilon, **plan})

    @cached_property
    def test(self) -> AboveThreshold:
        """The test of one series."""
        monotone = self.adjacency.vectors_changed == 1
        return AboveThreshold(
            _SHARE * self.cohort, self.test_epsilon, 1.0, self.adjacency, monotone
        )

    @property
    def besides(self) -> dict[Event, int]:
        """Every series, as if all were begun."""
        return {self.test.event: self.series}


class AupThreshold(AupCentred):
    """The server half: that of ``AupCentred`` with another rule for the radius.

    A series that was running when the process ended counts as spent: whether it had just said "no"
    is unknown.
    """

    plan: ThresholdPlan  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, plan: ThresholdPlan, ledger: Ledger, least_unit: float = 0.0, **arguments: Any
    ) -> None:
        super().__init__(plan, ledger, least_unit, **arguments)
        self._spent = 0
        self._begun = 0  # the round in which the running series began; 0 if none runs
        self._open: OpenThreshold | None = None

    def node_noise(self) -> None:
        """None: its tests ask the server, which adds noise to exact counts."""

    def _release(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        noisy_D = self.plan.mechanism_at(self.radius).release(
            totals["sum"],
            round_=round_,
            covers="gradient sum",
            ledger=self.ledger,
            source=self.source,
        )
        self._figures = {"radius": self.ledger.released(self.radius)}
        if self._spent < self.plan.series:
            passed = self._ask(round_, float(totals["within"][0]))
            self.radius = self.plan.rule.next(self.radius, passed)
        return noisy_D

    def _ask(self, round_: int, within: float) -> bool:
        if self._open is None:
            self._begun = self._begun or round_
            self._open = self.plan.test.open(
                round_=self._begun,
                covers=f"radius test {self._spent + 1}",
                ledger=self.ledger,
                source=self.source,
            )
        passed = self._open.ask(within, round_)
        if not passed:
            self._spent, self._begun, self._open = self._spent + 1, 0, None
        return passed

    def finish(self) -> None:
        """Charge the unused series, too: their number depends on the users.

        An epsilon without them would depend on the data, and be below the cost of the mechanism.
        """
        if self.rounds_done < self.plan.rounds and not self.stopped:
            return  # more rounds are to come, and may need them
        begun = self._spent + (self._begun > 0)
        for number in range(begun + 1, self.plan.series + 1):
            covers = f"radius test {number}, not needed"
            if not any(charge.covers == covers for charge in self.ledger.charges):
                try:
                    self.ledger.charge(self.plan.test.event, round_=self.rounds_done, covers=covers)
                except BudgetExceeded:
                    return  # after crashes: there was no budget to begin it either

    def state(self) -> dict[str, np.ndarray]:
        """Optimizer, radius, centre, and which series runs since when."""
        return {**super().state(), "series": np.array([self._spent, self._begun])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self._spent, self._begun = (int(value) for value in state["series"])
        self._open = None
        if self._begun:
            self._spent, self._begun = self._spent + 1, 0
