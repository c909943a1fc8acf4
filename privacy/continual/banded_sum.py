"""Sums over groups of users in turn, with noise that is correlated over the rounds.

Users are divided once into b groups, each by their own name alone; round t is of group t mod b, and
within it a user's coin decides, b times as likely as if all were asked. The exact sum x_t of round
t is released as x_t + (C⁻¹ z)_t, where C has b bands (``privacy.continual.banded``).

**The guarantee** (Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu 2023, (Amplified)
Banded Matrix Factorization, Theorem 4). The releases are C⁻¹ (C x + z), row by row, so they tell
what C x + z tells. A user of a group can be in rounds b apart only, and column t of C has entries
in rows t … t + b − 1 only: what the user adds in two of their rounds is in different rows. In one
of them it is c ⊗ v, with v of at most the clip norm and known from what was released before; all
else in these rows is the others' sums, which depend on the user through earlier releases alone. As
‖c‖ ≤ 1 these rows are one Poisson-sampled Gaussian sum, released row by row, and the rounds of the
group compose. So a run costs each user the rounds of their own group, and no more than ⌈T/b⌉ of
them.

**Adjacency.** It holds where a user *comes or goes* (``add-remove``) and where their part becomes
nothing (``zero-out``): the others stay in their groups, because a group is a function of one's own
name. It is claimed for no other. The theorem is of data that come or go, and whoever is replaced by
somebody of another name would be in another group, whose rounds would have to be paid for, too.

**An interruption** ends the correlation. The memory of the noise is used only if the ledger's last
charge is the one that the memory was kept with, and then nobody else has a row with that noise.
Otherwise (a round that was charged and is run again, a loss) it is forgotten: what follows has
noise of its own, as in a run that begins there. Rows of before and after share no noise, and each
round is charged to its group whatever became of it; so repeating a round costs that round again.

Legend: D dimensions, K rounds before.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import BandedGaussian, Event, ParallelEvent
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.noisy_sum import fingerprint
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import CyclicSampler


class NoiseMemory:
    """The noise of the last rounds, as many as bands reach: secrets, D numbers each.

    ``ledger`` is how many charges and how many losses the ledger had when the last was drawn.
    """

    def __init__(self, factor: Banded) -> None:
        self.factor = factor
        self.ledger = (0, 0)
        self._before: deque[np.ndarray] = deque(maxlen=factor.bands - 1)

    @property
    def noise_D(self) -> np.ndarray:
        """All of it, one after the other."""
        return np.concatenate([np.empty(0), *self._before])

    def forget(self) -> None:
        """Begin anew: what comes next has nothing in common with what was."""
        self._before.clear()

    def next(self, fresh_D: np.ndarray) -> np.ndarray:
        """The noise of the next round, (D,), from a draw ``fresh_D`` of independent noise."""
        noise_D = fresh_D.copy()
        first, *others = self.factor.coefficients
        # In this order, one by one, so that a resumed run has the same to the last bit.
        for coefficient, before_D in zip(others, self._before, strict=False):
            noise_D -= coefficient * before_D
        noise_D /= first
        self._before.appendleft(noise_D)
        return noise_D

    def state(self) -> dict[str, np.ndarray]:
        """Return what a resumed run needs."""
        if not self._before:
            return {}
        return {
            "noise before": np.stack(self._before),
            "noise ledger": np.array(self.ledger),
            "noise factor": np.array(self.factor.coefficients),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from ``state``, if that is of the same factor; else there is nothing to go on
        from."""
        self.forget()
        if np.array_equal(state.get("noise factor", ()), self.factor.coefficients):
            charges, losses = state["noise ledger"].tolist()
            self.ledger = (charges, losses)
            self._before.extend(state["noise before"])


@dataclass(frozen=True)
class BandedSum:
    """The mechanism of a run; see above. ``noise_multiplier`` is that of z, over the clip norm.

    Formal guarantee: round t is the event ``ParallelEvent(t mod b, BandedGaussian)`` under
    ``adjacency``, provided that cohorts were drawn by ``sampler``, that every user's vector passed
    through ``clip``, and that all rounds share one ``NoiseMemory`` of ``factor``, kept from process
    to process or lost.

    Raises:
        ValueError: the factor has other than as many bands as there are groups.
        Unsupported: there is no guarantee under the adjacency.
    """

    sampler: CyclicSampler
    clip: UserClip
    noise_multiplier: float
    adjacency: Adjacency
    factor: Banded
    discrete: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.factor.bands != self.sampler.groups:
            raise ValueError(f"{self.factor.bands} bands, and {self.sampler.groups} groups")
        if self.adjacency.vectors_changed != 1:
            raise Unsupported(
                f"correlated noise has no guarantee under {self.adjacency}; use add-remove or "
                "zero-out, or independent noise"
            )
        _ = self.event  # validates the parameters

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of z."""
        return self.noise_multiplier * self.clip.norm

    @property
    def event(self) -> BandedGaussian:
        """Return what one release costs the users of its group."""
        probability = self.sampler.of_group.probability
        return BandedGaussian(self.sampler.groups, probability, self.noise_multiplier)

    def event_of(self, round_: int) -> ParallelEvent:
        """Return what the release of a round costs."""
        return ParallelEvent(self.sampler.group(round_), self.event)

    def charges(self, rounds: int) -> dict[Event, int]:
        """Return what so many rounds cost."""
        return dict(Counter(self.event_of(round_) for round_ in range(1, rounds + 1)))

    def release(
        self,
        sum_D: np.ndarray,
        *,
        round_: int,
        label: str,
        ledger: Ledger,
        source: Randomness,
        memory: NoiseMemory,
    ) -> np.ndarray:
        """``sum_D`` with its noise, float64 (D,); charged to ``ledger`` before it exists.

        Raises:
            ValueError: the sum is not finite, the ledger is for another adjacency, or the memory of
                another factor.
            NotRepeated: a seeded round was released before from other values, from other noise of
                the rounds before, or before the ledger had lost something; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if not np.isfinite(sum_D).all():
            raise ValueError("a sum with a value that is not finite may not be released")
        if ledger.adjacency is not self.adjacency or memory.factor != self.factor:
            raise ValueError(
                f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}; or its "
                "noise is of another factor"
            )
        charged = [charge.round for charge in ledger.charges if charge.covers == label]
        again = source.seeded and round_ in charged  # then it repeats exactly, or is refused
        losses = len(ledger.lost)
        if not again and memory.ledger != (len(charged), losses):
            memory.forget()
        seen_D = np.concatenate([sum_D, memory.noise_D, np.full(losses, losses)])
        replay = fingerprint(seen_D, self.std, round_, label, source)
        event = self.event_of(round_)
        charge = ledger.charge(event, round_=round_, covers=label, replay=replay)
        # What was drawn before a loss is not drawn again: it had other noise beside it.
        number = (round_, charge.attempt, *[losses] * (losses > 0))
        stream = source.stream(f"noise {label}", *number)
        noise_D = memory.next(self.std * stream.standard_normal(sum_D.shape))
        memory.ledger = (len(charged) + (not again), losses)
        return sum_D + noise_D
