"""How much noise each candidate needs, for the whole search to cost what it may."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.privacy.selection.stopping_time import StoppingTime

#: Candidates of a smaller part of epsilon than this are not looked for.
_LEAST_PART = 1.0 / 64.0
_HALVINGS = 10


@dataclass(frozen=True)
class CalibratedSearch:
    """A search that costs at most what it may.

    Attributes:
        event: what it is charged.
        candidate_epsilon: what each candidate alone costs, at the same delta.
        epsilon: what the search costs.
    """

    event: RandomStopping
    candidate_epsilon: float
    epsilon: float


def calibrated(
    epsilon: float,
    *,
    delta: float,
    adjacency: Adjacency,
    stopping: StoppingTime,
    candidates: Callable[[float], Iterable[CandidateCost]],
) -> CalibratedSearch:
    """Return the search with the least noise that costs at most ``epsilon``.

    ``candidates`` gives what each setting of the grid costs where a candidate alone may cost so
    much at ``delta``. Met from below, within a few parts in a thousand.

    Raises:
        ValueError: not even candidates with very much noise are cheap enough.
        Unsupported: there is no guarantee under the adjacency.
    """

    def tried(part: float) -> CalibratedSearch:
        costs = tuple(candidates(part * epsilon))
        event = RandomStopping(stopping.eta, stopping.gamma, costs)
        spent = accountant.epsilon([(event, 1)], adjacency=adjacency, delta=delta)
        return CalibratedSearch(event, part * epsilon, spent)

    low, high = _LEAST_PART, 1.0
    best = tried(low)
    if best.epsilon > epsilon:
        raise ValueError(
            f"epsilon = {epsilon:g} is too little for a search with {stopping.mean:.3g} expected "
            f"runs at delta = {delta:g}: candidates of epsilon = {low * epsilon:.3g} still come to "
            f"{best.epsilon:.3g}; expect fewer runs, or allow more"
        )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if (there := tried(middle)).epsilon <= epsilon:
            low, best = middle, there
        else:
            high = middle
    return best
