"""Releases of a sum that grows, period after period, which together cost what one release does.

A user's part of the whole is not one vector but W of them, x_1 … x_W, what they add in each period.
The mechanism is one Gaussian release, spread over time, of R x with independent noise z (R:
``privacy.continual.square_root``). What is shown after period w is row w of R (R x + z), which is
the sum of all that came so far with noise (R z)_w: post-processing of rows 1 … w of R x + z.

So a user is bounded once for the whole: the vectors of R x together have ℓ2 length at most the clip
norm. Whoever computes a user's x_w does so from what the user gave up to then, such that the rows
that are there by now are within the bound; what is still to come starts from that.

Formal guarantee: all W releases together are one event ``PoissonGaussian(1, noise_multiplier)``
under ``adjacency``, provided that for each user the rows of R x have joint length at most
``clip.norm``, whatever the user gives and when. It holds where later periods depend on earlier
releases, too: given these, row w is a Gaussian release whose sensitivity the bound limits along
every path (Denisov, McMahan, Rush, Smith and Thakurta 2022, section 2, for lower-triangular
factors; Smith and Thakurta 2022 for Gaussian filters).

What it rests on: the noise of a release is drawn once. Each has a key of its own, which is on disk
before the release is charged, and is drawn by that key and the keyed hash of the sum in the ledger:
the same sum has the same noise again, and another one, as in a copy of the run that goes on by
itself with the same key, noise of its own. A release that was charged before and now meets another
sum is refused all the same.

Legend: D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmuration.privacy.accounting.events import ContinuedSum, Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.ledger_lines import KEPT
from murmuration.privacy.continual.square_root import SquareRoot
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, fingerprint
from murmuration.privacy.mechanisms.randomness import Randomness


@dataclass(frozen=True)
class PrefixSums:
    """The mechanism for so many ``releases``; ``whole`` is what all of them are together.

    Raises:
        ValueError: not everybody takes part, or noise on a grid.
    """

    whole: GaussianSum
    releases: int

    def __post_init__(self) -> None:
        if self.whole.sampler.probability != 1.0:
            raise ValueError("a sum that grows is of everybody, and not of a sample")
        if self.whole.discrete is not None:
            raise ValueError("correlated noise is not on a grid")

    @cached_property
    def root(self) -> SquareRoot:
        """Return how noise is shared among the releases."""
        return SquareRoot(self.releases)

    @property
    def charges(self) -> dict[Event, int]:
        """Return what all releases cost: the first pays for all."""
        continued = {self._event(2): self.releases - 1} if self.releases > 1 else {}
        return {self._event(1): 1, **continued}

    def std(self, release: int) -> float:
        """Standard deviation of the noise on each coordinate of a release, from 1."""
        return self.whole.std * self.root.row_norm(release)

    def release(
        self,
        sum_D: np.ndarray,
        before_D: np.ndarray,
        *,
        release: int,
        label: str,
        ledger: Ledger,
        keys: Sequence[bytes],
        seeded: bool,
    ) -> np.ndarray:
        """The sum of all periods so far with its noise, float64 (D,); charged before it exists.

        Args:
            sum_D: what came in this period, exactly.
            before_D: the release before, zero at the first.
            release: which one it is, from 1.
            label: what the ledger says is released.
            ledger: is charged.
            keys: of the noise of this release and of all before, in their order.
            seeded: whether the keys follow from a simulation's seed.

        Raises:
            ValueError: the sum is not finite, there are fewer or more keys, a release before was
                not charged, or there is no such release.
            NotRepeated: it was released before from another sum; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if not 1 <= release <= self.releases or len(keys) != release:
            raise ValueError(f"release {release} of {self.releases}, with {len(keys)} keys")
        if not np.isfinite(sum_D).all():
            raise ValueError("a sum with a value that is not finite may not be released")
        if ledger.adjacency is not self.whole.adjacency:
            raise ValueError(
                f"the ledger is for {ledger.adjacency}, the plan for {self.whole.adjacency}"
            )
        before = {one.round for one in ledger.charges if one.covers == label}
        if missing := set(range(1, release)) - before:
            which = "the first, which pays" if 1 in missing else "those before"
            raise ValueError(f"{ledger.path}: release {release} without {which}")
        sources = [Randomness(int.from_bytes(key, "little")) for key in keys]
        replay = fingerprint(sum_D, self.whole.std, release, label, sources[-1])
        replay = replay if seeded else f"{KEPT}{replay}"
        ledger.charge(self._event(release), round_=release, covers=label, replay=replay)
        replays = {one.round: one.replay for one in ledger.charges if one.covers == label}
        noise_D = np.zeros_like(sum_D, dtype=np.float64)
        row, above = self.root.coefficients_W[:release][::-1], np.zeros(release)
        above[:-1] = self.root.coefficients_W[: release - 1][::-1]
        for place, source in enumerate(sources):
            coins = source.stream(f"noise {label} {replays[place + 1]}", place + 1)
            draw_D = coins.standard_normal(sum_D.shape)
            noise_D += (row[place] - above[place]) * draw_D
        return before_D + (sum_D + self.whole.std * noise_D)

    def _event(self, release: int) -> Event:
        event = self.whole.event
        return event if release == 1 else ContinuedSum(self.whole.noise_multiplier, self.releases)
