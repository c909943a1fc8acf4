"""The exponential mechanism: which of finitely many models suits people best, chosen by chance.

Every user has, for each of P choices that were fixed independently of all data, its loss on their
judgements. A choice is drawn with probability proportional to exp(−rate · total loss), so a good
one is likely, and no user can make any outcome much likelier (McSherry and Talwar 2007; Zhou et al.
2025, Algorithm 2).

The probabilities depend on the *span*: the largest difference of one unit's losses between choices.
A constant that a user's losses share moves all choices alike and cancels, so each vector is shifted
to a minimum of zero and lies in [0, span]. A vector that comes or goes then multiplies weights by
something between e^(−rate·span) and 1, all of them the same way: rate ε/span is ε-DP. One that is
swapped moves weights both ways, and the rate must be ε/(2·span). Both are attained.

Decisions:
- *Whole numbers.* Losses are rounded to the nearest of ``STEPS`` parts of the span and held within
  it, so what a user adds is at most ``STEPS`` whichever way it was rounded, and sums are exact in
  any order and under masks.
- *An exact draw.* A choice is proposed uniformly and taken with probability exp(−γ), with γ the
  rational number that rate and sums make and exact Bernoulli draws (``discrete_laplace``), until
  one is taken. No exponential or logarithm is ever rounded, so there are no last digits to read
  (Mironov 2012; Ilvento 2020), as there are in noise added to scores or in a softmax of 64 bits. At
  most P proposals are needed on average. Its running time depends on the sums, and must be hidden
  from those who may see outcomes only.

Legend: P choices, J judgements of one user.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import Event, PureDp, Unprotected
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.discrete_laplace import below, flip_exp
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import ALL, Mechanism, Participation, Theorem, Unit

#: The span of one unit's losses, in steps of the grid.
STEPS = 2**20
#: Sums of whole numbers are exact below this.
_EXACT = 2**53
#: Pure promises beyond this count as none.
_MOST_EPSILON = 500.0


def span_of(r_max: float) -> float:
    """4·tanh(``r_max``): the largest difference of (tanh(z/2) − y)² over |z| ≤ 2·``r_max``, y = ±1.

    Less than the 4 of Zhou et al. 2025, whose clip allows no more either.
    """
    if not r_max > 0.0:
        raise ValueError(f"the largest reward must be positive, got {r_max}")
    return 4.0 * math.tanh(r_max)


#: What is proven of a choice.
CHOICE = Theorem(
    Unit.LOSSES,
    Participation.ONCE,
    Mechanism.EXPONENTIAL,
    event=PureDp.kind,
    adjacencies=ALL,
    says="Drawing a policy with probability proportional to e^(−εL/Δ), where L is the sum of "
    "users' bounded losses, is (ε, 0)-DP.",
    source="Zhou et al. 2025, Algorithm 2; McSherry and Talwar 2007",
    audit="exponential-mechanism",
)


@dataclass(frozen=True)
class ExponentialMechanism:
    """A choice among ``choices``, by the losses of all users.

    Formal guarantee: one ``choose`` is the event ``self.event`` under ``adjacency``, provided that
    the choices do not depend on the data, that each user's part of the sum came from
    ``contribution``, and that its losses are a function of that user's judgements alone: not of
    other users in a batch, which move last digits. At item level one judgement costs ``epsilon``,
    and ``event`` is of a user, who has up to ``cap`` of them; that is exact for a user as well, not
    a bound.

    Attributes:
        epsilon: of a user, or at item level of one judgement.
        span: the largest difference of one judgement's losses between choices, as from ``span_of``;
            larger ones are clipped.
        choices: P.
        adjacency: the relation between neighbouring data sets.
        cap: 0 at user level, where a user counts as the mean of their judgements. At item level
            each judgement counts by itself, the first ``cap`` of a user. There ``epsilon`` is of a
            judgement that keeps its place: where one comes or goes, the next moves up under the
            cap, two vectors change, and it costs up to twice that.
    """

    theorem: ClassVar[Theorem] = CHOICE
    epsilon: float
    span: float
    choices: int
    adjacency: Adjacency
    cap: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= _MOST_EPSILON:
            raise ValueError(f"epsilon must be in (0, {_MOST_EPSILON:g}], got {self.epsilon}")
        if not (math.isfinite(self.span) and self.span > 0.0):
            raise ValueError(f"the span of losses must be a positive number, got {self.span}")
        if not (type(self.choices) is int and self.choices >= 1):
            raise ValueError(f"there must be at least one choice, got {self.choices!r}")
        if not (type(self.cap) is int and self.cap >= 0):
            raise ValueError(f"the cap must be a whole number, or 0, got {self.cap!r}")

    @property
    def most(self) -> int:
        """The most that a user can add to any sum, in steps."""
        return STEPS * max(1, self.cap)

    @property
    def event(self) -> Event:
        """The event of a choice for one user: at item level, of all their judgements."""
        epsilon = self.epsilon * max(1, self.cap)
        return Unprotected() if epsilon > _MOST_EPSILON else PureDp(epsilon)

    @property
    def rate(self) -> Fraction:
        """The decrease of the logarithm of a choice's probability per step of its sum."""
        return Fraction(self.epsilon) / (STEPS * self.adjacency.vectors_changed)

    def contribution(self, losses_JP: np.ndarray) -> np.ndarray:
        """A user's part of the sums from their judgements' losses, (P,) float64 of whole numbers.

        A user with no judgements, losses of another shape or a loss that is not finite adds zero.
        """
        zero_P = np.zeros(self.choices)
        losses_JP = np.asarray(losses_JP, dtype=np.float64)
        if losses_JP.ndim != 2 or losses_JP.shape[1] != self.choices or not len(losses_JP):
            return zero_P
        with np.errstate(over="ignore", invalid="ignore"):
            mine_JP = losses_JP[: self.cap] if self.cap else losses_JP.mean(axis=0)[None]
        steps_JP = self.in_steps(mine_JP)
        return steps_JP.sum(axis=0) if np.isfinite(steps_JP).all() else zero_P

    def in_steps(self, losses_JP: np.ndarray) -> np.ndarray:
        """Each row less its minimum, clipped to the span, in whole steps, (J, P).

        NaN in a row that is not finite; a difference of finite losses can overflow, too.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            apart_JP = (losses_JP - losses_JP.min(axis=1, keepdims=True)) / self.span
        finite_J = np.isfinite(apart_JP).all(axis=1)
        steps_JP = np.rint(np.minimum(apart_JP, 1.0) * STEPS)
        return np.where(finite_J[:, None], steps_JP, np.nan)

    def is_valid(self, sum_P: np.ndarray, users: int) -> bool:
        """True if ``users`` users can have produced a node's sums."""
        return (
            sum_P.shape == (self.choices,)
            and users * self.most < _EXACT
            and bool(((sum_P >= 0.0) & (sum_P <= users * self.most)).all())
            and bool((sum_P % 1.0 == 0.0).all())
        )

    def probabilities(self, sum_P: np.ndarray) -> np.ndarray:
        """The probability of each choice, (P,), to the accuracy of 64 bits. Not for release."""
        weight_P = np.exp(-float(self.rate) * (sum_P - sum_P.min()))
        return weight_P / weight_P.sum()

    def expected_gap(self, sum_P: np.ndarray) -> float:
        """The expected loss of the choice less that of the best. Not for release.

        In the unit of losses, summed over users (at item level over judgements).
        """
        gap_P = (sum_P - sum_P.min()) * (self.span / STEPS)
        return float(self.probabilities(sum_P) @ gap_P)

    def gap_bound(self, failure: float = 1.0) -> float:
        """The bound that the gap exceeds with probability at most ``failure``; public.

        (span/ε)·log(P/failure), and twice that where a user is swapped. At ``failure`` 1 it bounds
        the *expected* gap: E[rate · gap] is at most the entropy of the choice.
        """
        if not 0.0 < failure <= 1.0:
            raise ValueError(f"the failure probability must be in (0, 1], got {failure}")
        unit = self.adjacency.vectors_changed * self.span / self.epsilon
        return unit * (math.log(self.choices) - math.log(failure))

    def choose(
        self, sum_P: np.ndarray, *, round_: int, covers: str, ledger: Ledger, source: Randomness
    ) -> int:
        """The place of one choice; charged to ``ledger`` before it is drawn.

        Raises:
            ValueError: the sums are no whole numbers of the right shape, or the ledger is for
                another adjacency.
            BudgetExceeded: the ledger refuses; nothing is chosen.
        """
        if ledger.adjacency is not self.adjacency:
            raise ValueError(f"the ledger is for {ledger.adjacency}, the plan for {self.adjacency}")
        sum_P = np.asarray(sum_P, dtype=np.float64)
        if not self.is_valid(sum_P, (_EXACT - 1) // self.most):
            raise ValueError(f"losses must be {self.choices} sums of whole numbers, below 2^53")
        charge = ledger.charge(self.event, round_=round_, covers=covers, seeded=source.seeded)
        coins = source.stream(f"choice {covers}", round_, charge.attempt)
        best = int(sum_P.min())
        while True:
            drawn = below(self.choices, coins)
            if _taken(self.rate * (int(sum_P[drawn]) - best), coins):
                return drawn


def _taken(exponent: Fraction, coins: np.random.Generator) -> bool:
    """True with probability exp(−``exponent``), exactly."""
    whole, rest = divmod(exponent, 1)
    for _ in range(whole):  # hardly ever goes far
        if not flip_exp(1, 1, coins):
            return False
    return flip_exp(rest.numerator, rest.denominator, coins)
