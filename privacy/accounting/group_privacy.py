"""Group privacy: what an example-level guarantee says about a user with k examples.

The baseline of the literature, here so that it can be compared: example-level DP-SGD, accounted
for one example, converted as a black box. If one example is protected by (e, d) for every point of
the curve d(e), a user with at most k examples is protected by (k e, d(e) (exp(k e) - 1)/(exp(e) -
1)): Vadhan 2017, Lemma 2.2, and every point of the curve may be chosen, so the best one is.

The factor grows exponentially with the group, so the curve is needed at deltas of 1e-20 and less,
which only a tilted convolution knows (``privacy.accounting.convolution``); and distributions are
cut off (a mass of 1e-22 per release is counted as an infinite loss, whatever the noise). So for a
large group no point of the curve may do: the answer is then infinity, which says that this method
certifies nothing, not that there is no privacy. The mixture of Gaussians stays finite there.

k is a promise that somebody must keep: the caller has to enforce the cap on every user's examples.
"""

import math
from collections.abc import Iterable

import numpy as np

from murmuration.privacy.accounting.composition import (
    INTERVAL,
    Composition,
    composed_epsilon,
    composition,
)
from murmuration.privacy.accounting.events import Event, GroupGaussian, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency

_POINTS = 400


def group_epsilon(
    charges: Iterable[tuple[Event, int]],
    *,
    group_size: int,
    adjacency: Adjacency,
    delta: float,
    interval: float = INTERVAL,
) -> float:
    """User-level epsilon of example-level ``charges`` for users with ≤ ``group_size`` examples.

    ``adjacency`` is the user's. A user who comes or goes is ``group_size`` examples that come or
    go. A replaced user is either that many replaced examples (a user with fewer counts as padded
    with examples that contribute nothing), or twice as many that come or go: the better of the two.

    Formal guarantee: (result, ``delta``)-DP at the level of users, provided that every user's
    examples are capped at ``group_size`` independently of everybody else's. Infinity when the
    conversion diverges.
    """
    if group_size < 1:
        raise ValueError(f"the group size must be at least 1, got {group_size}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    charges = list(charges)
    paths = [(adjacency, group_size)]
    if adjacency.vectors_changed == 2:
        paths.append((Adjacency.ADD_REMOVE, 2 * group_size))
    best = math.inf
    for relation, steps in paths:
        total = composition(charges, adjacency=relation, interval=interval)
        best = min(best, 0.0 if total is None else _convert(total, steps, delta))
    return best


def epsilon_with_groups(
    events: Iterable[tuple[Event, int]], *, adjacency: Adjacency, delta: float, interval: float
) -> float:
    """Epsilon of ``events`` with ``GroupGaussian`` among them, which cannot be composed as PLDs.

    The rounds of each group size are converted together, everything else is composed as ever; if
    there are several such parts they share ``delta`` equally, and their epsilons add up.
    """
    rest, grouped = [], {}
    for event, times in events:
        if isinstance(event, GroupGaussian):
            example = PoissonGaussian(event.probability, event.noise_multiplier)
            grouped.setdefault(event.group_size, []).append((example, times))
        else:
            rest.append((event, times))
    share = delta / (len(grouped) + bool(rest))
    total = composed_epsilon(rest, adjacency=adjacency, delta=share, interval=interval)
    for group_size, charges in grouped.items():
        total += group_epsilon(
            charges, group_size=group_size, adjacency=adjacency, delta=share, interval=interval
        )
    return total


def _convert(total: Composition, steps: int, delta: float) -> float:
    """The least ``steps * e`` with ``total``'s d(e) (exp(steps e) - 1)/(exp(e) - 1) <= delta."""
    if steps == 1:
        return total.epsilon(delta)
    if any(way.infinite * steps > delta for way in total.ways):
        return math.inf
    losses = total.losses(delta, steps=steps)
    log_delta = math.log(delta)

    def excess(example_N: np.ndarray) -> np.ndarray:
        delta_N = np.max([loss.deltas(example_N) for loss in losses], axis=0)
        return np.log(delta_N) + _log_factor(example_N, steps) - log_delta

    # Beyond ``most`` even the mass at infinity, times exp((steps - 1) e), is over delta.
    most = (log_delta - math.log(max(loss.infinite for loss in losses))) / (steps - 1)
    if most <= 0.0:
        return math.inf
    low, high = 0.0, most
    for _ in range(4):  # to a ten-billionth: each time between the two points around the first
        example_N = np.linspace(low, high, _POINTS)
        enough_N = excess(example_N) <= 0.0
        if not enough_N.any():
            return math.inf
        first = int(np.argmax(enough_N))
        low, high = float(example_N[max(0, first - 1)]), float(example_N[first])
    return steps * high * (1.0 + 1e-12)


def _log_factor(example_N: np.ndarray, steps: int) -> np.ndarray:
    """log((exp(steps e) - 1)/(exp(e) - 1)), which is log(steps) at e = 0."""
    e_N = np.maximum(example_N, 1e-12)
    return (steps - 1) * e_N + np.log(np.expm1(-steps * e_N) / np.expm1(-e_N))
