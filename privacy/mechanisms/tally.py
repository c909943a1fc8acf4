"""Figures about held-out users, with pure privacy: how often the model is right, and for whom.

Each held-out user is one count in a histogram, at the share of their judgements that the model gets
right (``privacy.user_histogram``). From it the accuracy *by user* is read and that of
each tenth of the users, so that a majority cannot hide a minority; how many judgements anybody has
does not enter. Where the model says the next token, half of a user's weight goes to their mean loss
in nats, cut off at ``LOSS_BOUND``. All of it is whole numbers of ``STEPS``, so sums are exact in
any order and under masks, and the noise is discrete Laplace
(``privacy.mechanisms.discrete_laplace``).

One release covers every figure about held-out users, how many they are among them.

Legend: U held-out users, F figures (counts by accuracy and, of next tokens, the loss).
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.user_histogram import ACCURACIES, Spread

#: A user's whole weight, in steps of the grid.
STEPS = 2**20
#: Nats per token; a user whose texts are less likely counts with so many.
LOSS_BOUND = 12.0
#: Below so many standard deviations of its noise, a number of users is no number to divide by.
_CLEAR = 2.5
#: What the ledger calls a release.
COVERS = "figures about held-out users"
#: The figures that are counts by accuracy.
_RIGHT = slice(len(ACCURACIES.knots))
_LOSS = slice(len(ACCURACIES.knots), None)


@dataclass(frozen=True)
class Measured:
    """Accuracy by user, and the mean loss by user if it is released, with their errors.

    Attributes:
        accuracy: mean over held-out users of the share that the model gets right.
        error: its standard error, at most: noise, and which users happened to be held out.
        noise: the part of it that is the noise's; 0 in an exact figure.
        accuracies: the same over users.
        loss: mean over users of their mean loss in nats, each cut off at ``LOSS_BOUND``.
        loss_noise: the standard error of it that is the noise's.
    """

    accuracy: float
    error: float
    noise: float
    accuracies: Spread
    _: KW_ONLY
    loss: float | None = None
    loss_noise: float | None = None


@dataclass(frozen=True)
class Tally:
    """The figures about held-out users, as sums over bounded contributions.

    ``loss`` says whether the model says the next token, so that there is a loss.

    Formal guarantee: a user moves the sums by at most ``STEPS`` in total where they come or go, by
    2 · ``STEPS`` where they are replaced, whatever they judged.
    """

    loss: bool = False

    @property
    def figures(self) -> int:
        """F."""
        return len(ACCURACIES.knots) + int(self.loss)

    @property
    def weight(self) -> int:
        """A user's weight for accuracy, in steps; the loss has the same weight."""
        return STEPS // 2 if self.loss else STEPS

    def contribution(self, share: float, loss: float = math.nan) -> np.ndarray:
        """A user's part of the sums, (F,) float64 of whole numbers; zero without a share in [0, 1].

        ``share`` is of their judgements (or tokens) that the model is right about.
        """
        part_F = np.zeros(self.figures)
        if not 0.0 <= share <= 1.0 or (self.loss and math.isnan(loss)):
            return part_F
        part_F[_RIGHT] = ACCURACIES.contribution(share, self.weight)
        if self.loss:
            part_F[_LOSS] = math.floor(min(max(loss / LOSS_BOUND, 0.0), 1.0) * self.weight)
        return part_F

    def is_valid(self, sum_F: np.ndarray, users: int) -> bool:
        """True if ``users`` users can have produced a node's sums."""
        if not (np.isfinite(sum_F).all() and (sum_F >= 0.0).all() and (sum_F % 1.0 == 0.0).all()):
            return False
        counted, left = divmod(float(sum_F[_RIGHT].sum()), self.weight)
        bounded = float(sum_F[_LOSS].sum()) <= counted * self.weight
        return left == 0.0 and counted <= users and bounded

    def noise(self, accuracy: float, users: float, std: float) -> float:
        """Return the standard error of an accuracy that noise of ``std`` on each figure gives."""
        return ACCURACIES.mean_noise(accuracy, users * self.weight, std)

    def read(self, sum_F: np.ndarray, std: float = 0.0) -> Measured | None:
        """The figures from sums with noise of this ``std`` on each; None if noise drowns them."""
        right_B = sum_F[_RIGHT].astype(np.float64)
        counted = float(right_B.sum())
        if not counted > 0.0 or counted < _CLEAR * math.sqrt(len(right_B)) * std:
            return None
        accuracy = ACCURACIES.mean(right_B)
        noise = self.noise(accuracy, counted / self.weight, std)
        # The variance of a share between 0 and 1 is at most mean · (1 − mean).
        luck = math.sqrt(accuracy * (1.0 - accuracy) / (counted / self.weight))
        measured = Measured(accuracy, math.hypot(noise, luck), noise, ACCURACIES.read(right_B, std))
        if not self.loss:
            return measured
        unit = LOSS_BOUND / counted
        loss = min(LOSS_BOUND, max(0.0, float(sum_F[_LOSS][0]) * unit))
        uncertain = math.sqrt(len(right_B)) * loss / counted
        return replace(measured, loss=loss, loss_noise=std * math.hypot(unit, uncertain))


@dataclass(frozen=True)
class TallyRelease:
    """Discrete Laplace noise on the sums of a tally.

    Formal guarantee: one release is (``event.epsilon``, 0)-DP under ``adjacency`` for the users
    whom it is about, if every user's part came from ``tally.contribution``: noise of scale
    Δ/ε on each sum, Δ being what one user can move them by in total.

    Attributes:
        event: the hold-out that is charged.
        adjacency: the relation between neighbouring data sets.
        tally: the figures.
    """

    event: HoldOut
    adjacency: Adjacency
    tally: Tally

    def __post_init__(self) -> None:
        if not self.event.epsilon > 0.0:
            raise ValueError("nothing can be said of held-out users without an epsilon for it")

    @property
    def scale(self) -> Fraction:
        """Scale of the noise on each sum, in steps."""
        return STEPS * self.adjacency.vectors_changed / Fraction(self.event.epsilon)

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
            BudgetExceeded: the ledger refuses; nothing is released.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        if sum_F.shape != (self.tally.figures,) or not (np.mod(sum_F, 1.0) == 0.0).all():
            raise ValueError("what is said of held-out users must be whole numbers")
        charge = ledger.charge(self.event, round_=round_, covers=COVERS, seeded=source.seeded)
        coins = source.stream(COVERS, round_, charge.attempt)
        return [int(value) + discrete_laplace.draw(self.scale, coins) for value in sum_F]
