"""An audit: what a mechanism claims to cost, beside what an attacker can show that it costs.

Trials call the mechanisms that runs use, with a ledger of their own in memory, so that the claim is
what the ledger was charged and nothing is re-implemented. Where a mechanism adds independent noise
to each coordinate of an array, one release of N coordinates is N trials in one dimension.

Legend: N trials.
"""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import ALL

# Lower bounds on epsilon from what an attacker saw: with a stated confidence, or not at all.
#
# An attacker runs a mechanism many times on a data set and many times on its neighbour, and reduces
# each outcome to one number, larger where the first is more likely. An (epsilon, delta)-DP
# mechanism has P(A | first) <= e^epsilon P(A | second) + delta for every event A, and the same with
# the two exchanged. So for any event that was chosen without looking at the trials it is tested on,
#
#     epsilon >= log((P(A | first) - delta) / P(A | second)),
#
# where each probability is replaced by a one-sided Clopper–Pearson limit at half of the error that
# is allowed. The event, a threshold and which side of it, is chosen on the first half of the
# trials; the bound is computed on the second. So the confidence holds for whatever statistic was
# used; a poor one only makes the bound smaller.
#
# Two more ways, both marked where they are used:
#
# - *A Gaussian fit* (``gaussian_bound``): a mechanism that is mu-GDP has
#   Phi^-1(P(A | first)) - Phi^-1(P(A | second)) <= mu for every event (Dong et al. 2022). The bound
# on mu is as sound as the one above; the epsilon that it is translated to at a small delta is that
# of a Gaussian, and a bound on epsilon only where the mechanism is one. It needs far fewer trials.
# - *One run* (``one_run_bound``): many canaries, each put in by a fair coin, and guesses which of
#   them are in. Their outcomes need not be independent (Steinke, Nasr and Jagielski 2023, Theorem
#   5.2, as in the code that comes with it; guesses may be withheld).
# - *One run, by a Gaussian* (``one_run_gaussian_bound``): the same guesses, asked how likely they
#   are under mu-GDP. It proves more where the run is one, and is a fit elsewhere.
#
# Legend: N trials, K candidate thresholds.

_CANDIDATES = 400
_MOST_MU = 64.0  # which tells everything

#: How often an event was seen, for one event or several.
Counts = np.ndarray | int
#: A bound from counts: where the event is likely, of how many, where it is rare, of how many; and
#: the error of each limit.
Worth = Callable[[Counts, int, Counts, int, float], np.ndarray]


@dataclass(frozen=True, eq=False)
class Scores:
    """The attacker's numbers, (N,) each: on a data set and on its neighbour.

    Infinite scores are allowed, NaN is not: ValueError.
    """

    first_N: np.ndarray
    second_N: np.ndarray

    def __post_init__(self) -> None:
        if np.isnan(self.first_N).any() or np.isnan(self.second_N).any():
            raise ValueError("a score is not a number")
        if min(len(self.first_N), len(self.second_N)) < 4:
            raise ValueError("an audit needs at least four trials on each data set")

    @property
    def trials(self) -> int:
        """Return how many, on both data sets together."""
        return len(self.first_N) + len(self.second_N)

    def halves(self) -> tuple["Scores", "Scores"]:
        """Every other trial, and the rest."""
        return (
            Scores(self.first_N[::2], self.second_N[::2]),
            Scores(self.first_N[1::2], self.second_N[1::2]),
        )


def limits(successes: np.ndarray | int, trials: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """One-sided Clopper–Pearson limits (lower, upper), each wrong with probability <= ``error``."""
    successes = np.asarray(successes)
    with np.errstate(invalid="ignore"):
        low = stats.beta.ppf(error, successes, trials - successes + 1)
        high = stats.beta.isf(error, successes + 1, trials - successes)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)


@dataclass(frozen=True)
class _Event:
    """``score >= threshold``, likelier on the first data set; reversed: below, on the second."""

    threshold: float
    reverse: bool

    def counts(self, scores: Scores) -> tuple[int, int, int, int]:
        """Return how often where it is likely, of how many, and how often where it is not, of how
        many."""
        first = int((scores.first_N >= self.threshold).sum())
        second = int((scores.second_N >= self.threshold).sum())
        n, m = len(scores.first_N), len(scores.second_N)
        return (m - second, m, n - first, n) if self.reverse else (first, n, second, m)


def threshold_bound(scores: Scores, *, delta: float, confidence: float) -> float:
    """Epsilon is at least this, with ``confidence``; 0 where nothing can be said.

    Formal guarantee: if the trials are independent and the mechanism is (epsilon, ``delta``)-DP,
    the result exceeds epsilon with probability at most 1 − ``confidence``.
    """
    _check(delta, confidence)

    def worth(likely: Counts, n: int, rare: Counts, m: int, error: float) -> np.ndarray:
        low, high = limits(likely, n, error)[0] - delta, limits(rare, m, error)[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(low > 0, np.log(low / high), -np.inf)

    return _split(scores, worth, confidence)


def gaussian_bound(scores: Scores, *, delta: float, confidence: float) -> float:
    """The epsilon at ``delta`` of the least mu-GDP that the trials allow; see the module.

    Formal guarantee: if the mechanism is mu-GDP, the result exceeds the epsilon of a mu-GDP
    Gaussian with probability at most 1 − ``confidence``. Of any other mechanism it is an estimate.
    """
    _check(delta, confidence)

    def worth(likely: Counts, n: int, rare: Counts, m: int, error: float) -> np.ndarray:
        low, high = limits(likely, n, error)[0], limits(rare, m, error)[1]
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(stats.norm.ppf(low) - stats.norm.ppf(high), nan=-np.inf)

    return gaussian_epsilon(_split(scores, worth, confidence), delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon for which a mu-GDP Gaussian is (epsilon, ``delta``)-DP."""

    def excess(epsilon: float) -> float:
        upper = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))) - delta

    if mu == 0.0 or excess(0.0) <= 0.0:
        return 0.0
    if delta == 0.0:
        return math.inf
    result = optimize.brentq(excess, 0.0, mu * (mu / 2 - float(stats.norm.ppf(delta))) + 1.0)
    return float(result)  # type: ignore[arg-type]


def _split(scores: Scores, worth: Worth, confidence: float) -> float:
    """An event's worth on half of the trials, chosen as the best by its worth on the others."""
    choose, test = scores.halves()
    error = (1.0 - confidence) / 2.0
    # At a much smaller error the luckiest of many rare events does not look like the best.
    event = _chosen(choose, worth, error / _CANDIDATES)
    return max(0.0, float(worth(*event.counts(test), error)))


def _chosen(scores: Scores, worth: Worth, error: float) -> _Event:
    """The best event among thresholds at observed scores, deep in the tails too."""
    n, m = len(scores.first_N), len(scores.second_N)
    first_N, second_N = np.sort(scores.first_N), np.sort(scores.second_N)
    depths = np.unique(np.geomspace(1, max(n, m), _CANDIDATES // 4).astype(int))
    places = [
        part_N[np.clip(at, 0, len(part_N) - 1)]
        for part_N in (first_N, second_N)
        for at in (depths - 1, len(part_N) - depths)
    ]
    threshold_K = np.unique(np.concatenate(places))
    above_first_K = n - np.searchsorted(first_N, threshold_K)
    above_second_K = m - np.searchsorted(second_N, threshold_K)
    forward_K = worth(above_first_K, n, above_second_K, m, error)
    reverse_K = worth(m - above_second_K, m, n - above_first_K, n, error)
    reverse = bool(reverse_K.max() > forward_K.max())
    best = int(np.argmax(reverse_K if reverse else forward_K))
    return _Event(float(threshold_K[best]), reverse)


def one_run_bound(
    correct: int, guesses: int, canaries: int, *, delta: float, confidence: float
) -> float:
    """Epsilon is at least this, from one run with ``canaries`` of which ``guesses`` were guessed.

    Every canary was in or out by a fair coin of its own, and the number of guesses was fixed
    beforehand (which ones are made may depend on everything).

    Formal guarantee: if the run is (epsilon, ``delta``)-DP where one canary comes or goes, the
    result exceeds epsilon with probability at most 1 − ``confidence``.
    """
    _check(delta, confidence)
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(f"{correct} correct of {guesses} guesses about {canaries} canaries")
    allowed = 1.0 - confidence

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(correct, guesses, canaries, epsilon, delta) < allowed

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2.0 * high
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def one_run_p_value(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Return how likely so many correct guesses are at most, if the run is (epsilon, delta)-DP.

    P(Binomial(guesses, e^epsilon/(e^epsilon + 1)) >= correct) + 2·canaries·delta·alpha, where alpha
    is the largest average of the probabilities of the next lower counts.
    """
    share = 1.0 / (1.0 + math.exp(-epsilon))
    p = float(stats.binom.sf(correct - 1, guesses, share))
    if correct and delta:
        lower = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, share))
        alpha = float((lower / np.arange(1, correct + 1)).max())
        p += alpha * delta * 2 * canaries
    return min(1.0, p)


def one_run_gaussian_bound(
    correct: int, guesses: int, canaries: int, *, delta: float, confidence: float
) -> float:
    """As ``one_run_bound``, the epsilon at ``delta`` of the least mu-GDP that the guesses allow.

    Formal guarantee: if the run is mu-GDP where one canary comes or goes, the result exceeds the
    epsilon of a mu-GDP Gaussian with probability at most 1 − ``confidence``. Of any other run it is
    an estimate. Guesses need not be independent (Mahloujifar, Melis and Chaudhuri 2025,
    arXiv:2410.22235, Algorithm 2).
    """
    _check(delta, confidence)
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(f"{correct} correct of {guesses} guesses about {canaries} canaries")

    def refuted(mu: float) -> bool:
        return _too_right(correct, guesses, canaries, mu, 1.0 - confidence)

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < _MOST_MU:
        low, high = high, 2.0 * high
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return gaussian_epsilon(low, delta)


def _too_right(correct: int, guesses: int, canaries: int, mu: float, chance: float) -> bool:
    """Return whether a mu-GDP run has so many correct guesses with less than this ``chance``.

    For a canary drawn at random let right(i) be the probability that it is guessed, and rightly,
    and that i guesses are right in all, or more; wrong(i) the same of a wrong guess. Turning its
    coin round turns the one event, with i + 1 right, into the other, with i: so
    wrong(i) ≥ g(right(i + 1)), where g(x) = Φ(Φ⁻¹(x) − mu) is what is left of a probability x at
    least (convex, so means over canaries and coins obey it, too). With the probability p that
    exactly i are right, right(i) − right(i + 1) = p·i/M and wrong(i) − wrong(i + 1) =
    p·(guesses − i)/M. From ``chance`` at ``correct`` down these leave the least that right(0) +
    wrong(0) can be, which is guesses/M.
    """
    right, wrong = chance * correct / canaries, chance * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        least = float(special.ndtr(special.ndtri(right) - mu))
        if least <= wrong:
            break  # neither changes any more
        right = min(1.0, right + i / (guesses - i) * (least - wrong))
        wrong = least
    return right + wrong > guesses / canaries


def _check(delta: float, confidence: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be in [0, 1), got {delta}")
    if not 0.5 <= confidence < 1.0:
        raise ValueError(f"the confidence must be at least 0.5 and below 1, got {confidence}")


DELTA = 1e-5
CONFIDENCE = 0.99

_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Task:
    """The request for an audit.

    Attributes:
        adjacency: the relation between the two data sets.
        epsilon: what the mechanism is to be calibrated to.
        trials: how many, on each of the two.
        source: of all draws, the audited mechanism's included.
        confidence: that the lower bound is one.
        base: the language model of a target that takes one; empty: a tiny one of its own.
    """

    adjacency: Adjacency
    epsilon: float
    trials: int
    source: Randomness
    confidence: float = CONFIDENCE
    _: KW_ONLY
    base: str = ""

    def __post_init__(self) -> None:
        if self.trials < 8:
            raise ValueError(f"--trials must be at least 8, got {self.trials}")
        if not self.epsilon > 0:
            raise ValueError(f"--epsilon must be positive, got {self.epsilon}")

    def side(self, second: bool) -> Randomness:
        """Draws for one of the two data sets: never the other's."""
        return derived(self.source, "audit side", int(second))


def derived(source: Randomness, purpose: str, number: int) -> Randomness:
    """A source of its own for one of many trials; the operating system's stays what it is."""
    if not source.seeded:
        return source
    return Randomness(int.from_bytes(source.key(purpose, number)[:7], "little"))


@dataclass(frozen=True)
class Measured:
    """The outcome: claim and lower bound, at ``delta``; ``fit`` by a Gaussian, an estimate."""

    claimed: float
    lower: float
    trials: int
    delta: float
    fit: float | None = None

    @classmethod
    def from_scores(
        cls, scores: Scores, claimed: float, task: Task, *, delta: float = DELTA, fit: bool = False
    ) -> "Measured":
        """From an attacker's scores."""
        terms = {"delta": delta, "confidence": task.confidence}
        return cls(
            claimed=claimed,
            lower=threshold_bound(scores, **terms),
            trials=scores.trials,
            delta=delta,
            fit=gaussian_bound(scores, **terms) if fit else None,
        )


@dataclass(frozen=True)
class Target:
    """Something that can be audited.

    Attributes:
        about: what, in a line.
        measure: carries out a task.
        adjacencies: those under which it claims anything.
        trials: on each data set, if nothing else is asked for.
        epsilon: the claim, if nothing else is asked for.
        sound: whether the claim is ours; False for a paper's claim that is known not to hold.
        based: whether it is about a language model that can be named.
        needs: the optional library that it is made with, if any.
        power: the share of the claim that the bound is expected to reach, where the claim is known
            to be attained; 0 where it may not be.
    """

    about: str
    measure: Callable[[Task], Measured]
    _: KW_ONLY
    adjacencies: frozenset[Adjacency] = ALL
    trials: int = 100_000
    epsilon: float = 1.0
    sound: bool = True
    based: bool = False
    needs: str = ""
    power: float = 0.0

    @property
    def usual(self) -> Adjacency:
        """The adjacency, if none is asked for: the first one that it has a claim under."""
        return next(a for a in Adjacency if a in self.adjacencies)

    def verdict(self, measured: Measured) -> str:
        """``consistent``, ``violated``, or ``violated, as documented``."""
        if measured.lower <= measured.claimed:
            return "consistent"
        return "violated" if self.sound else "violated, as documented"


@contextlib.contextmanager
def scratch_ledger(adjacency: Adjacency, delta: float = DELTA) -> Iterator[Ledger]:
    """A real ledger, without a budget, in memory where the system has a place for that."""
    where = _MEMORY if _MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=where) as folder,
        Ledger(Path(folder) / "ledger.jsonl", adjacency=adjacency, delta=delta, budget=None) as it,
    ):
        yield it


@dataclass(frozen=True)
class Fault:
    """A fault, how it is audited, and what else stands in its way.

    ``test`` names the test that rejects it, ``construction`` what in the product stands in its way
    besides; empty where there is nothing. ``needs`` is the optional library that it is made with.
    """

    about: str
    measure: Callable[[Task], Measured]
    test: str
    construction: str = ""
    _: KW_ONLY
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    trials: int = 200_000
    epsilon: float = 1.0
    needs: str = ""


def fault_row(name: str, fault: Fault, seed: int, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """The audit of one seeded fault; ``caught`` or ``missed``."""
    started = time.monotonic()
    task = Task(fault.adjacency, fault.epsilon, fault.trials, Randomness(seed), confidence)
    measured = fault.measure(task)
    return {
        "fault": name,
        "about": fault.about,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "verdict": "caught" if measured.lower > measured.claimed else "missed",
        "test": fault.test,
        "construction": fault.construction,
        "seconds": round(time.monotonic() - started, 1),
    }
