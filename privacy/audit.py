"""An audit: what a mechanism claims to cost, beside what an attacker can show that it costs.

Trials call the mechanisms that runs use, with a ledger of their own in memory, so that the claim is
what the ledger was charged and nothing is re-implemented. Where a mechanism adds independent noise
to each coordinate of an array, one release of N coordinates is N trials in one dimension.

Legend: N trials.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from privacy.adjacency import Adjacency
from privacy.audit_bounds import Scores, gaussian_bound, threshold_bound
from privacy.ledger import Ledger
from privacy.randomness import Randomness

DELTA = 1e-5
CONFIDENCE = 0.99
ALL = frozenset(Adjacency)
COMES_OR_GOES = frozenset({Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT})
REPLACED = ALL - COMES_OR_GOES

_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Task:
    """What an audit is asked for.

    Attributes:
        adjacency: the relation between the two data sets.
        epsilon: what the mechanism is to be calibrated to.
        trials: how many, on each of the two.
        source: of all draws, the audited mechanism's included.
        confidence: that the lower bound is one.
    """

    adjacency: Adjacency
    epsilon: float
    trials: int
    source: Randomness
    confidence: float = CONFIDENCE

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
    def of(
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
        power: the share of the claim that the bound is expected to reach, where the claim is known
            to be attained; 0 where it may not be.
    """

    about: str
    measure: Callable[[Task], Measured]
    adjacencies: frozenset[Adjacency] = ALL
    trials: int = 100_000
    epsilon: float = 1.0
    sound: bool = True
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
