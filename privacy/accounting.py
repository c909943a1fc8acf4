"""From events to (epsilon, delta), and back from a target to the parameter that meets it.

Composition is by privacy loss distributions (``dp_accounting``, connect-the-dots discretization,
which errs on the safe side). Nothing here looks at data.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from privacy.adjacency import Adjacency
from privacy.events import Event, PoissonGaussian, Unprotected

#: Spacing of the discretized privacy loss; coarser is faster and errs towards a larger epsilon.
INTERVAL = 1e-4
_COARSE = 1e-3


def epsilon(
    events: Iterable[tuple[Event, int]],
    *,
    adjacency: Adjacency,
    delta: float,
    interval: float = INTERVAL,
) -> float:
    """The smallest epsilon for which the composition of ``(event, times)`` is (epsilon, delta)-DP.

    Returns 0 for nothing released and infinity for an unprotected release.
    """
    _check_delta(delta)
    total = None
    for event, times in events:
        if times == 0:
            continue
        if isinstance(event, Unprotected):
            return math.inf
        loss = event.loss(adjacency, interval)
        loss = loss.self_compose(times) if times > 1 else loss
        total = loss if total is None else total.compose(loss)
    return 0.0 if total is None else max(0.0, float(total.get_epsilon_for_delta(delta)))


def calibrate(
    cost: Callable[[float, float], float], target: float, *, low: float, high: float
) -> float:
    """The smallest ``x`` in [low, high] with ``cost(x, interval) <= target``; cost must fall in x.

    Finds the neighbourhood at a coarse discretization and finishes at the fine one, so the promise
    rests on the fine one: the result costs at most ``target``, and at least 0.9999 of it unless
    ``low`` already meets it. Raises ValueError when ``high`` is not enough.
    """

    def gap(log_x: float, interval: float) -> float:
        value = cost(math.exp(log_x), interval)
        return math.log(max(value, 1e-12) / target)

    bottom, top = math.log(low), math.log(high)
    # A small target may drown in the coarse discretization's own error.
    coarse = _COARSE if gap(top, _COARSE) <= 0 else INTERVAL
    if gap(top, coarse) > 0:
        raise ValueError(f"epsilon = {target:g} is out of reach at {high:g}")
    # From above: a cost far over the target is also the slowest to compute.
    below, above = top, top
    while below > bottom and gap(below, coarse) <= 0:
        below, above = max(bottom, below - math.log(2)), below
    if gap(below, coarse) <= 0:
        return low
    x = _solve(lambda log_x: gap(log_x, coarse), below, above, start=(below + above) / 2)
    return math.exp(_solve(lambda log_x: gap(log_x, INTERVAL), bottom, top, start=x))


def _solve(gap: Callable[[float], float], low: float, high: float, *, start: float) -> float:
    """Where ``gap``, falling from above 0 at ``low`` to 0 or less at ``high``, is in [-1e-4, 0].

    Secant steps that aim just inside, and halves the bracket when one leaves it. At a cliff, where
    no such point exists, the end of the bracket that meets the target.
    """
    x, value, slope = start, gap(start), -1.5
    for _ in range(60):
        if -1e-4 <= value <= 0:
            return x
        low, high = (x, high) if value > 0 else (low, x)
        if high - low < 1e-9:
            break
        step = x - (value + 0.5e-4) / slope
        if not low < step < high:
            step = (low + high) / 2
        stepped = gap(step)
        slope = min(-0.2, (stepped - value) / (step - x))
        x, value = step, stepped
    return high


def noise_multiplier_for(
    target: float, *, delta: float, probability: float, rounds: int, adjacency: Adjacency
) -> float:
    """The smallest noise multiplier with which ``rounds`` Poisson-Gaussian rounds cost ``target``.

    Met from below: the composed epsilon is at most ``target`` and within a few parts in 10,000.
    """
    _check_delta(delta)
    if not (math.isfinite(target) and target > 0):
        raise ValueError(f"epsilon must be a positive finite number, got {target}")
    if rounds < 1:
        raise ValueError(f"there must be at least one round, got {rounds}")

    def cost(sigma: float, interval: float) -> float:
        return epsilon(
            [(PoissonGaussian(probability, sigma), rounds)],
            adjacency=adjacency,
            delta=delta,
            interval=interval,
        )

    # One Gaussian without sampling bounds the search from above, up to the swap's factor of two.
    high = 2.0 * adjacency.vectors_changed * math.sqrt(rounds * 2 * math.log(2 / delta))
    return calibrate(cost, target, low=0.05, high=max(1.0, high * (1 + 1 / target)))


def rounds_for(
    target: float, *, delta: float, event: Event, adjacency: Adjacency, most: int = 1_000_000
) -> int:
    """The largest number of rounds of ``event`` that costs at most ``target``; 0 if none does.

    The answer is never more than ``most``.
    """
    low, high = 0, 1
    while high <= most and _cost(event, high, adjacency, delta) <= target:
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if _cost(event, middle, adjacency, delta) <= target else (low, middle)
        )
    return low


def _cost(event: Event, rounds: int, adjacency: Adjacency, delta: float) -> float:
    return epsilon([(event, rounds)], adjacency=adjacency, delta=delta)


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")


class SpendingCurve:
    """How epsilon grows while a plan is carried out, for display.

    Computed, at a coarse discretization that errs upward, at a few points of the run; between them
    it is interpolated along the square root of the share that is done. What counts in the end is
    the ledger's own exact figure.
    """

    _POINTS = 12

    def __init__(self, planned: Mapping[Event, int], *, adjacency: Adjacency, delta: float) -> None:
        shares = {0.0, 1.0, *(2.0**-k for k in range(1, self._POINTS - 1))}
        self._shares = np.sqrt(sorted(shares))
        self._epsilons = [
            epsilon(
                [(event, math.ceil(times * share)) for event, times in planned.items()],
                adjacency=adjacency,
                delta=delta,
                interval=_COARSE,
            )
            for share in sorted(shares)
        ]

    def __call__(self, share: float) -> float:
        """Epsilon when ``share`` of the plan, in [0, 1], has been carried out."""
        return float(np.interp(math.sqrt(share), self._shares, self._epsilons))


def delta_for(
    target: float, *, event: Event, rounds: int, adjacency: Adjacency, interval: float = INTERVAL
) -> float:
    """The smallest delta at which ``rounds`` of ``event`` cost at most epsilon = ``target``."""
    loss = event.loss(adjacency, interval).self_compose(rounds)
    return float(loss.get_delta_for_epsilon(target))
