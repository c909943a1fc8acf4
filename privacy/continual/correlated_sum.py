"""Sums over groups of users in turn, with noise that is correlated over the rounds.

The exact sum x_t of round t is released as x_t + (C⁻¹ z)_t; which C, what that is good for and what
it costs is in ``privacy.continual.banded`` and ``privacy.continual.buffered``.

**An interruption** ends the correlation. The memory of the noise is used only if the ledger's last
charge is the one that the memory was kept with, and then nobody else has a row with that noise.
Otherwise (a round that was charged and is run again) it is forgotten: what follows has
noise of its own, as in a run that begins there. Rows of before and after share no noise, and are
charged as those of two runs; so repeating a round costs that round again, or, where the first pays
for all, all of them.

Legend: D dimensions.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np

from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.toeplitz import ToeplitzFactor
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import CyclicSampler
from murmuration.privacy.theorems import Theorem, find


@dataclass(frozen=True)
class CorrelatedSum:
    """The mechanism of a run; see above. ``noise_multiplier`` is that of z, over the clip norm.

    Formal guarantee: round t is the event ``event_of(t)`` under ``adjacency``, provided that
    cohorts were drawn by ``sampler``, that every user's vector passed through ``clip``, and that
    all rounds share one ``CorrelatedNoise``, kept from process to process or lost.

    Raises:
        ValueError: the factor is for another number of groups than there are.
        Unsupported: there is no guarantee under the adjacency.
    """

    sampler: CyclicSampler
    clip: UserClip
    noise_multiplier: float
    adjacency: Adjacency
    factor: ToeplitzFactor
    _: KW_ONLY
    discrete: DiscreteNoise | DistributedNoise | None = None  # of which nothing is proven

    def __post_init__(self) -> None:
        if self.factor.groups != self.sampler.groups:
            raise ValueError(
                f"noise for {self.factor.groups} groups, and {self.sampler.groups} groups"
            )
        _ = self.theorem, self.event  # validates the parameters

    @property
    def theorem(self) -> Theorem:
        """The theorem about all rounds; Unsupported if there is none."""
        noise = self.discrete.mechanism if self.discrete else self.factor.mechanism
        return find(self.clip.unit, self.factor.participation, noise, self.adjacency)

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of z."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> Event:
        """The event of the first round."""
        return self.event_of(1)

    def event_of(self, round_: int, *, begins: bool = False) -> Event:
        """The event of a round's release; ``begins``: it shares no noise with earlier ones, like
        the first."""
        return self.factor.event(
            round_,
            self.sampler.of_group.probability,
            self.noise_multiplier,
            begins=begins or round_ == 1,
        )

    def charges(self, rounds: int) -> dict[Event, int]:
        """The charges of ``rounds`` rounds."""
        return dict(Counter(self.event_of(round_) for round_ in range(1, rounds + 1)))


class CorrelatedNoise:
    """Releases the sums of a run by its ``mechanism``, and remembers what later rounds' noise needs
    of that of earlier ones: secrets, D numbers each.

    ``charges`` is how many the ledger had when noise was last drawn; ``rounds`` how many share
    noise by now.
    """

    def __init__(self, mechanism: CorrelatedSum) -> None:
        self.mechanism, self.factor = mechanism, mechanism.factor
        self.charges, self.rounds = 0, 0
        self._before: list[np.ndarray] = []

    @property
    def noise_D(self) -> np.ndarray:
        """The remembered vectors, one after the other."""
        return np.concatenate([np.empty(0), *self._before])

    def forget(self) -> None:
        """Begin anew: what comes next has nothing in common with what was."""
        self._before, self.rounds = [], 0

    def next(self, fresh_D: np.ndarray) -> np.ndarray:
        """The noise of the next round, (D,), from a draw ``fresh_D`` of independent noise."""
        noise_D = fresh_D.copy()
        # In this order, one by one, so that a resumed run has the same to the last bit.
        for weight, before_D in zip(self.factor.weights, self._before, strict=False):
            noise_D -= weight * before_D
        noise_D /= self.factor.row_T(1)[0]
        self._before = self.factor.remember(self._before, noise_D)
        self.rounds += 1
        return noise_D

    def state(self) -> dict[str, np.ndarray]:
        """The state for a resumed run."""
        if not self._before:
            return {}
        return {
            "noise before": np.stack(self._before),
            "noise ledger": np.array([self.charges, self.rounds]),
            "noise factor": np.array(self.factor.parameters),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from ``state``, if that is of the same factor; else there is nothing to go on
        from."""
        self.forget()
        same = np.array_equal(state.get("noise factor", ()), self.factor.parameters)
        if same:
            self.charges, self.rounds = state["noise ledger"].tolist()
            self._before = list(state["noise before"])

    def release(
        self, sum_D: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> np.ndarray:
        """``sum_D`` with its noise, float64 (D,); charged to ``ledger`` before it exists.

        Raises:
            ValueError: the sum is not finite, or the ledger is for another adjacency.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        mechanism = self.mechanism
        if not np.isfinite(sum_D).all():
            raise ValueError("a sum with a value that is not finite may not be released")
        if ledger.adjacency is not mechanism.adjacency:
            raise ValueError(
                f"the ledger is for {ledger.adjacency}, the plan for {mechanism.adjacency}"
            )
        charged = sum(charge.covers == covers for charge in ledger.charges)
        if self.charges != charged:
            self.forget()
        event = mechanism.event_of(round_, begins=not self.rounds)
        charge = ledger.charge(event, round_=round_, covers=covers, seeded=source.seeded)
        stream = source.stream(f"noise {covers}", round_, charge.attempt)
        noise_D = self.next(mechanism.std * stream.standard_normal(sum_D.shape))
        self.charges = charged + 1
        return sum_D + noise_D
