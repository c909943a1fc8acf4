"""Randomized response: the owner keeps a label or replaces it, at random.

Of K possible answers the true one is kept with probability e^ε/(e^ε + K − 1), and otherwise one of
the others is reported, each as likely (label-dp-reward-estimation, eq. 2 and 11; Warner 1965). For
two answers the flip probability is 1/(e^ε + 1).

Decisions:
- Draws are exact. One uniform 64-bit word decides a label by integer comparisons: each false answer
  owns t = ⌈2⁶⁴/(e^ε + K − 1)⌉ words, computed with 60 decimal digits, the truth the rest. Rounding
  up never lowers a flip probability, so the promise holds to the last bit; it raises it by less
  than (K − 1)·2⁻⁶⁴.
- A tie is broken first, uniformly among the best, and then randomized like any label. For the
  channel a tie is then a mixture of its rows, which has ratios no larger than theirs, and the
  expected soft label of a tie is the even one. Dropping ties would reveal them.
- The promise is fixed before the first draw (``LabelPromise``): a user's budget is split evenly
  over all labels that they may ever send; with a δ by exact composition.

The guarantee is for labels: prompts, responses, and how many judgements somebody gave are public
(adjacency ``replace-labels``).

Legend: R labels, K possible answers.
"""

import decimal
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy import special

#: Weaker labels say nothing, and integer draws could not distinguish them from uniform ones.
SMALLEST_EPSILON = 1e-9
#: An answer travels in a byte.
MOST_CHOICES = 255
#: What a budget with a δ is split over is gone through label by label.
MOST_LABELS = 100_000
_WORDS = 2**64


@dataclass(frozen=True)
class RandomizedResponse:
    """One label's mechanism, (``epsilon``, 0)-DP in it whatever it is, a tie included.

    Attributes:
        epsilon: the largest log ratio of an answer's probabilities under two labels; attained up
            to (K − 1)·2⁻⁶⁴ in probability.
        choices: K, how many answers there are; 2 for pairs.
    """

    epsilon: float
    choices: int = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= SMALLEST_EPSILON):
            raise ValueError(
                f"epsilon of a label must be at least {SMALLEST_EPSILON:g}, got {self.epsilon}"
            )
        if not 2 <= self.choices <= MOST_CHOICES:
            raise ValueError(f"a label has 2 to {MOST_CHOICES} possible answers: {self.choices}")

    @cached_property
    def words(self) -> int:
        """t: the number of words, out of 2⁶⁴, for each false answer."""
        return _words(self.epsilon, self.choices)

    @property
    def flip_probability(self) -> float:
        """The probability that the answer is not the true one, (K − 1)·t·2⁻⁶⁴."""
        return (self.choices - 1) * self.words / _WORDS

    def matrix(self) -> np.ndarray:
        """Row: the truth, column: the answer; their probabilities, (K, K) float64."""
        told = np.full((self.choices, self.choices), self.words / _WORDS)
        np.fill_diagonal(told, 1 - (self.choices - 1) * Fraction(self.words, _WORDS))
        return told

    def answer(self, truth_R: np.ndarray, words_R: np.ndarray) -> np.ndarray:
        """Randomize labels in 0…K − 1 by independent uniform uint64 words; (R,) int64.

        Raises:
            ValueError: a label that is no place among K answers.
        """
        truth_R, words_R = np.asarray(truth_R, np.int64), np.asarray(words_R, np.uint64)
        if ((truth_R < 0) | (truth_R >= self.choices)).any():
            raise ValueError(f"labels must lie in 0…{self.choices - 1}")
        # Which block of t words; as a float it could be rounded over a border.
        false = words_R < np.uint64((self.choices - 1) * self.words)
        other_R = (words_R // np.uint64(self.words)).clip(max=np.uint64(self.choices - 2))
        other_R = other_R.astype(np.int64)
        return np.where(false, other_R + (other_R >= truth_R), truth_R)


def break_tie(best: tuple[int, ...], word: int) -> int:
    """One of those tied for best, all as likely (to 2⁻⁶⁴), by a uniform 64-bit word."""
    return best[int(word) * len(best) >> 64]


@lru_cache(maxsize=4096)
def _words(epsilon: float, choices: int) -> int:
    with decimal.localcontext() as context:
        context.prec = 60
        # From below, and from 100 on, where it is one word whatever epsilon is, from far below.
        growth = decimal.Decimal(min(epsilon, 100.0)).exp() * (1 - decimal.Decimal(10) ** -50)
        context.rounding = decimal.ROUND_CEILING
        share = decimal.Decimal(_WORDS) / (growth + choices - 1)
        return int(share.to_integral_value())


@dataclass(frozen=True)
class LabelPromise:
    """The promise of a user's randomized labels, fixed before the first of them is sent.

    All labels that a user ever sends are (ε, δ)-DP together: as many as they had when they were
    first asked, or ``cap``, each with an even share of the budget.

    Attributes:
        epsilon: of all labels of a user together.
        cap: the most labels a user ever sends, G; 0: as many as they have when they are first
            asked.
        delta: 0 for a pure promise.
    """

    epsilon: float
    cap: int = 0
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be a positive number; got {self.epsilon}")
        if not 0 <= self.cap <= MOST_LABELS:
            raise ValueError(f"a cap is 1 to {MOST_LABELS:,} labels; got {self.cap}")
        if not 0.0 <= self.delta < 1.0:
            raise ValueError(f"delta must be at least 0 and below 1; got {self.delta}")
        _ = RandomizedResponse(self.per_label(max(self.cap, 1)))

    def most(self, given: int) -> int:
        """The most labels that a user who has ``given`` at first may ever send."""
        return self.cap or given

    def per_label(self, labels: int) -> float:
        """ε of each label of a user who may ever send ``labels`` labels, as ``most`` returns."""
        if labels < 1:
            raise ValueError(f"a budget is split over at least one label, not over {labels}")
        return per_label_epsilon(self.epsilon, labels, self.delta)

    def spent(self, per_label: float, told: int) -> float:
        """ε, at this promise's δ, of ``told`` labels of a user together."""
        return composed_epsilon(per_label, told, self.delta)

    def to_config(self) -> dict[str, float | int]:
        """As flat settings."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "LabelPromise":
        """From ``to_config``. Raises ValueError for anything else."""
        kinds = {"epsilon": (int, float), "cap": (int,), "delta": (int, float)}
        wrong = set(config) ^ set(kinds)
        wrong |= {
            name for name in set(config) & set(kinds) if type(config[name]) not in kinds[name]
        }
        if wrong:
            raise ValueError(f"not a promise about labels: {', '.join(sorted(wrong))}")
        return cls(**config)  # type: ignore[arg-type]

    def __str__(self) -> str:
        cap = f", at most {self.cap} labels" if self.cap else ""
        delta = f" and delta {self.delta:g}" if self.delta else ""
        return f"epsilon {self.epsilon:g}{delta}{cap}"


def composed_delta(per_label: float, labels: int, epsilon: float) -> float:
    """The smallest δ with which ``labels`` labels of ε ``per_label`` are (``epsilon``, δ)-DP.

    Exact for pairs: the losses of k independent binary answers sum to (k − 2j)·ε₀ with j binomial,
    and δ is the hockey-stick divergence. With more answers it is an upper bound: whatever is
    (ε₀, 0)-DP is post-processing of the binary mechanism (Kairouz, Oh and Viswanath 2015).
    """
    from scipy import stats  # slow to import, only for this

    if labels == 0:
        return 0.0
    flips = np.arange(labels + 1)
    excess = (labels - 2 * flips) * per_label - epsilon
    over = excess > 0
    masses = stats.binom.pmf(flips[over], labels, special.expit(-per_label))
    return math.fsum(masses * -np.expm1(-excess[over]))


def composed_epsilon(per_label: float, labels: int, delta: float) -> float:
    """The smallest ε at ``delta`` of ``labels`` labels of ε ``per_label`` together."""
    whole = labels * per_label
    if delta == 0.0 or labels == 0:
        return whole
    if composed_delta(per_label, labels, 0.0) <= _wary(delta):
        return 0.0
    low, high = 0.0, whole
    for _ in range(60):
        middle = (low + high) / 2
        enough = composed_delta(per_label, labels, middle) <= _wary(delta)
        low, high = (low, middle) if enough else (middle, high)
    return high


def per_label_epsilon(epsilon: float, labels: int, delta: float = 0.0) -> float:
    """The largest ε of each of ``labels`` labels that are (``epsilon``, ``delta``)-DP together.

    Never too large: without a δ it is ε/k rounded down.
    """
    each = epsilon / labels
    if Fraction(each) * labels > Fraction(epsilon):
        each = math.nextafter(each, 0.0)
    if delta == 0.0:
        return each
    high = 2 * each
    while composed_delta(high, labels, epsilon) <= _wary(delta):
        high *= 2
    for _ in range(60):
        middle = (each + high) / 2
        fits = composed_delta(middle, labels, epsilon) <= _wary(delta)
        each, high = (middle, high) if fits else (each, middle)
    return each


def _wary(delta: float) -> float:
    """Binomial masses are good to about 13 digits."""
    return delta * (1 - 1e-9)


# Labels after randomized response, with their flip probabilities.
#
# Legend: U users, N labels.


@dataclass(frozen=True, eq=False)
class ToldLabels:
    """Randomized labels of U users, a user's together.

    Attributes:
        start_U: int64, U + 1 offsets; a user may have none.
        items_N: uint64, what each label is about (``preference.data.public_items``), ascending for
            a user; one that recurs was judged several times.
        answers_N: int64, the randomized answer: a place among the responses in canonical order.
        choices_N: int64, how many responses there were.
        per_label_U: float64, ε of each label of a user.

    Raises:
        ValueError: fields that do not fit each other.
    """

    start_U: np.ndarray
    items_N: np.ndarray
    answers_N: np.ndarray
    choices_N: np.ndarray
    per_label_U: np.ndarray

    def __post_init__(self) -> None:
        start_U, labels = self.start_U, len(self.items_N)
        if start_U.shape != (len(self.per_label_U) + 1,) or start_U[0] != 0:
            raise ValueError("offsets of labels are one more than users, from 0")
        if start_U[-1] != labels or (np.diff(start_U) < 0).any():
            raise ValueError("offsets of labels do not fit their number")
        if self.items_N.dtype != np.uint64 or self.items_N.ndim != 1:
            raise ValueError("items are unsigned 64-bit numbers")
        if self.answers_N.shape != (labels,) or self.choices_N.shape != (labels,):
            raise ValueError("items, answers and choices differ in number")
        if ((self.answers_N < 0) | (self.answers_N >= self.choices_N)).any():
            raise ValueError("an answer is not among its choices")
        same_user_N = np.ones(labels, dtype=bool)
        same_user_N[start_U[:-1][np.diff(start_U) > 0]] = False
        if (np.diff(self.items_N.astype(object)) < 0)[same_user_N[1:]].any():
            raise ValueError("items of a user must ascend")
        _ = self.flips_N  # validates ε and choices

    @property
    def flips_N(self) -> np.ndarray:
        """float64: how likely each answer is not the true label."""
        per_label_N = np.repeat(self.per_label_U, np.diff(self.start_U))
        pairs = zip(per_label_N.tolist(), self.choices_N.tolist(), strict=True)
        flips = (RandomizedResponse(*pair).flip_probability for pair in pairs)
        return np.fromiter(flips, dtype=np.float64, count=len(per_label_N))
