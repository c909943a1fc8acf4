"""What is said of held-out users: how often the model is right, by user, with pure privacy.

Each held-out user contributes the share a of their judgements that the model gets right and the
share 1 − a that it gets wrong, together 1 whatever they judged: the released ratio of the two noisy
sums is the accuracy *by user*, and nothing about how many judgements anybody has enters. Where the
model says the next token, half of a user's weight goes to their mean loss in nats, cut off at
``LOSS_BOUND``; where users have rewards of their own (``--tastes``), to the share that their own
reward gets right of the same judgements. All of it is whole numbers of ``STEPS``, so sums are exact
in any order and under masks, and the noise is discrete Laplace
(``privacy.mechanisms.discrete_laplace``).

One release covers every figure about held-out users, how many they are among them.

Legend: U held-out users, F figures (right, wrong and, of next tokens, loss; or of tastes, right
by each user's own reward).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.noisy_sum import fingerprint
from murmuration.privacy.mechanisms.randomness import Randomness

#: A user's whole weight, in steps of the grid.
STEPS = 2**20
#: Nats a token; whoever's texts are less likely counts with so many.
LOSS_BOUND = 12.0
#: Below so many standard deviations of its noise, a number of users is no number to divide by.
_CLEAR = 3.0


@dataclass(frozen=True)
class Measured:
    """Accuracy by user, and the mean loss by user where it is told; what noise and luck can do.

    Attributes:
        accuracy: mean over held-out users of the share that the model gets right.
        error: its standard error, at most: noise, and which users happened to be held out.
        noise: the part of it that is the noise's; 0 in an exact figure.
        loss: mean over users of their mean loss in nats, each cut off at ``LOSS_BOUND``.
        loss_noise: the standard error of it that is the noise's.
        personal: as ``accuracy``, of each user's own reward, on the same judgements.
        gain_noise: the standard error of ``personal`` − ``accuracy`` that is the noise's.
    """

    accuracy: float
    error: float
    noise: float
    loss: float | None = None
    loss_noise: float | None = None
    personal: float | None = None
    gain_noise: float | None = None


@dataclass(frozen=True)
class Tally:
    """Which figures about held-out users there are, as sums over bounded contributions.

    ``loss`` says whether the model says the next token, so that there is a loss; ``personal``
    whether users have rewards of their own. ValueError for both.

    Formal guarantee: a user moves the sums by at most ``STEPS`` in total where they come or go, by
    2 · ``STEPS`` where they are replaced, whatever they judged.
    """

    loss: bool = False
    personal: bool = False

    def __post_init__(self) -> None:
        if self.loss and self.personal:
            raise ValueError("what says the next token has no rewards of users' own")

    @property
    def figures(self) -> int:
        """F."""
        return 3 if self.loss or self.personal else 2

    @property
    def weight(self) -> int:
        """A user's right and wrong together, in steps."""
        return STEPS // (self.figures - 1)

    def contribution(
        self, share: float, loss: float = math.nan, personal: float = math.nan
    ) -> np.ndarray:
        """A user's part of the sums, (F,) float64 of whole numbers; zero without a share in [0, 1].

        ``share`` is of their judgements (or tokens) that the model is right about, ``personal`` of
        those that their own reward is.
        """
        found_F = np.zeros(self.figures)
        if not 0.0 <= share <= 1.0 or (self.loss and math.isnan(loss)):
            return found_F
        if self.personal and not 0.0 <= personal <= 1.0:
            return found_F
        right = math.floor(share * self.weight)
        found_F[:2] = right, self.weight - right
        if self.loss:
            found_F[2] = math.floor(min(max(loss / LOSS_BOUND, 0.0), 1.0) * (STEPS - self.weight))
        if self.personal:
            found_F[2] = math.floor(personal * (STEPS - self.weight))
        return found_F

    def is_valid(self, sum_F: np.ndarray, users: int) -> bool:
        """Return whether so many users can have produced a node's sums."""
        if not (np.isfinite(sum_F).all() and (sum_F >= 0.0).all() and (sum_F % 1.0 == 0.0).all()):
            return False
        counted, left = divmod(float(sum_F[:2].sum()), self.weight)
        return (
            left == 0.0
            and counted <= users
            and bool((sum_F[2:] <= counted * (STEPS - self.weight)).all())
        )

    def read(self, sum_F: np.ndarray, std: float = 0.0) -> Measured | None:
        """The figures from sums with noise of this ``std`` on each; None if noise drowns them."""
        right, wrong = float(sum_F[0]), float(sum_F[1])
        both = right + wrong
        if both <= 0.0 or both < _CLEAR * math.sqrt(2.0) * std:
            return None
        accuracy = min(1.0, max(0.0, right / both))
        noise = std * math.hypot(accuracy, 1.0 - accuracy) / both
        # The variance of a share between 0 and 1 is at most mean · (1 − mean).
        luck = math.sqrt(accuracy * (1.0 - accuracy) / (both / self.weight))
        error = math.hypot(noise, luck)
        if self.personal:
            personal = min(1.0, max(0.0, float(sum_F[2]) / both))
            gain = personal - accuracy
            gain_noise = std * math.sqrt(1.0 + (1.0 + gain) ** 2 + gain**2) / both
            return Measured(accuracy, error, noise, personal=personal, gain_noise=gain_noise)
        if not self.loss:
            return Measured(accuracy, error, noise)
        unit = LOSS_BOUND * self.weight / (STEPS - self.weight) / both
        loss = min(LOSS_BOUND, max(0.0, float(sum_F[2]) * unit))
        loss_noise = std * math.hypot(unit, math.sqrt(2.0) * loss / both)
        return Measured(accuracy, error, noise, loss, loss_noise)


@dataclass(frozen=True)
class HeldOutRelease:
    """Discrete Laplace noise on the sums of a tally.

    Formal guarantee: one release is (``hold_out.epsilon``, 0)-DP under ``adjacency`` for the users
    who are held out, if every user's part came from ``tally.contribution``: noise of scale
    Δ/ε on each sum, Δ being what one user can move them by in total.
    """

    hold_out: HoldOut
    adjacency: Adjacency
    tally: Tally

    #: What the ledger calls it.
    covers: ClassVar[str] = "figures about held-out users"

    def __post_init__(self) -> None:
        if not self.hold_out.epsilon > 0.0:
            raise ValueError("nothing can be said of held-out users without an epsilon for it")

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on each sum, in steps."""
        return STEPS * self.adjacency.vectors_changed / Fraction(self.hold_out.epsilon)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each sum, in steps."""
        return discrete_laplace.std(self.scale)

    def release(
        self, sum_F: np.ndarray, *, round_: int, ledger: Ledger, source: Randomness
    ) -> list[int]:
        """The sums with noise, in steps; charged to ``ledger`` before the noise exists.

        Raises:
            ValueError: the sums are no whole numbers, or the ledger is for another adjacency.
            LedgerError: a seeded run released this before from other sums; nothing is released.
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        if sum_F.shape != (self.tally.figures,) or not (np.mod(sum_F, 1.0) == 0.0).all():
            raise ValueError("what is said of held-out users must be whole numbers")
        replay = fingerprint(sum_F, float(self.scale), round_, self.covers, source)
        charge = ledger.charge(self.hold_out, round_=round_, covers=self.covers, replay=replay)
        coins = source.stream(self.covers, round_, charge.attempt)
        return [int(value) + discrete_laplace.draw(self.scale, coins) for value in sum_F]
