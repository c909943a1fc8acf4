"""AboveThreshold: many yes-or-no queries for the ε of one, until the first "no".

The sparse vector technique (Dwork and Roth 2014, Algorithm 1; Lyu et al. 2017; AUP-RLHF,
Algorithm 3): a noisy threshold, fresh noise on every query, and an end at the first query that
falls below. Whatever the number of queries that passed, it costs ``epsilon`` once, in full: it is
never amplified by sampling here, because its threshold is shared by all rounds.

What decides the cost is the *sensitivity* of the queries. AUP-RLHF's concentration score moves by
nearly 2 when one user changes, and a threshold calibrated for 1 then costs nearly twice what is
claimed.

An open threshold lives in memory only. A process that starts again opens, and is charged for, a new
one: nobody could know whether the old one had said "no" just before the crash. In a seeded
simulation it is the same one again, and is charged once. That is sound only where every query that
was answered before is asked again with the same value: the ledger does not see queries, so the
caller must have each value refused first if it is another (``beside`` in ``GaussianSum.release``).
"""

import math
from dataclasses import dataclass

import numpy as np

from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness


class Halted(BudgetExceeded):
    """A query fell below the threshold: what was to be paid for by it may not be released."""


@dataclass(frozen=True)
class AboveThreshold:
    """The mechanism with its public constants; ``open`` starts it.

    Formal guarantee: all answers of one ``OpenThreshold`` together are (``epsilon``, 0)-DP under
    ``adjacency``, if every query moves by at most ``sensitivity`` between neighbouring data sets,
    given the answers so far. With Δ the sensitivity: Lap(2Δ/ε) on the threshold, Lap(4Δ/ε) on each
    query, or Lap(2Δ/ε) if the queries are ``monotone``: between two neighbours all of them move up,
    or all of them down. Counts are monotone where one user comes or goes, not where one is swapped
    (Lyu et al. 2017, Theorem 3).

    Attributes:
        threshold: queries at or above it are meant to pass.
        epsilon: what the whole series costs.
        sensitivity: Δ.
        monotone: see above; refused where a user is swapped for another.
        adjacency: the relation under which Δ was derived.
    """

    threshold: float
    epsilon: float
    sensitivity: float
    adjacency: Adjacency
    monotone: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError(f"the threshold must be finite, got {self.threshold}")
        if not (math.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise ValueError(f"the sensitivity must be positive, got {self.sensitivity}")
        if self.monotone and self.adjacency.vectors_changed != 1:
            raise ValueError(f"under {self.adjacency} queries can move both ways: not monotone")
        _ = self.event  # validates epsilon

    @property
    def event(self) -> PureDp:
        """The event of the whole series, however many queries pass."""
        return PureDp(self.epsilon)

    @property
    def threshold_scale(self) -> float:
        """Scale of the Laplace noise on the threshold."""
        return 2.0 * self.sensitivity / self.epsilon

    @property
    def query_scale(self) -> float:
        """Scale of the Laplace noise on each query."""
        return (2.0 if self.monotone else 4.0) * self.sensitivity / self.epsilon

    def margin(self, failure: float) -> float:
        """The distance below the threshold at which a query passes with probability ≤ ``failure``.

        By symmetry also how far above it must lie to fall with at most that probability. What
        passes is certified to no more than threshold − margin.
        """
        from scipy import optimize  # slow to import, only for this

        if not 0.0 < failure < 0.5:
            raise ValueError(f"the failure probability must be in (0, 0.5), got {failure}")
        widest = max(self.threshold_scale, self.query_scale)
        result = optimize.brentq(
            lambda gap: self.passing(gap) - failure, 0.0, 4.0 * widest * (1 - math.log(failure))
        )
        return float(result)  # type: ignore[arg-type]

    def passing(self, gap: float) -> float:
        """The probability that a query lying ``gap`` ≥ 0 below the threshold passes."""
        a, b = self.threshold_scale, self.query_scale
        if a == b:
            return math.exp(-gap / a) * (0.5 + gap / (4.0 * a))
        return (b**2 * math.exp(-gap / b) - a**2 * math.exp(-gap / a)) / (2.0 * (b**2 - a**2))

    def open(
        self, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> "OpenThreshold":
        """Charge the whole series to ``ledger``, then draw the noisy threshold.

        ``round_`` and ``covers`` name the series in the ledger.

        Raises:
            ValueError: the ledger is for another adjacency.
            BudgetExceeded: the ledger refuses.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        charge = ledger.charge(self.event, round_=round_, covers=covers, seeded=source.seeded)
        name = f"threshold {covers} {charge.attempt}"
        noise = source.stream(name, round_).laplace(0.0, self.threshold_scale)
        return OpenThreshold(self, f"{name} {round_}", source, self.threshold - noise)


class OpenThreshold:
    """A running series of queries; from ``AboveThreshold.open``."""

    def __init__(
        self, mechanism: AboveThreshold, name: str, source: Randomness, noisy_threshold: float
    ) -> None:
        self.mechanism, self.halted = mechanism, False
        self._name, self._source, self._noisy_threshold = name, source, noisy_threshold

    def ask(self, value: float, index: int) -> bool:
        """True if the noisy ``value`` is above the noisy threshold; False ends the series.

        ``index`` numbers the queries of the series.

        Raises:
            ValueError: the series has ended, or ``value`` is not finite.
        """
        if self.halted:
            raise ValueError("this threshold has been spent; a new one must be opened and charged")
        if not np.isfinite(value):
            raise ValueError("a query that is not finite may not be answered")
        # Keyed by the value too: the noise of one answer is never reused on another value.
        stream = self._source.stream(f"query {self._name} {float(value)!r}", index)
        noisy = value + stream.laplace(0.0, self.mechanism.query_scale)
        self.halted = bool(noisy < self._noisy_threshold)
        return not self.halted
