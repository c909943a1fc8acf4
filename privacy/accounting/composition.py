"""Many releases as one privacy loss distribution, certified.

The distributions of single releases are discretized so that they err towards a larger epsilon; how
they add up is ``privacy.accounting.convolution``, with a bound on its rounding.
"""

import math
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

from murmuration.privacy.accounting.convolution import (
    ALLOWANCE,
    Parts,
    Uncertified,
    convolve,
)
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import Event
from murmuration.privacy.accounting.privacy_loss import PrivacyLossDistribution
from murmuration.privacy.accounting.tilting import REACH, Outline
from murmuration.privacy.adjacency import Adjacency

#: Spacing of the discretized privacy loss; coarser is faster and errs towards a larger epsilon.
INTERVAL = 1e-4
#: Losses that span more cells are put on a coarser grid: 16 MiB an array.
MOST_CELLS = 2**21
#: What the grid may add to the variance of the composed loss before it is halved, ...
_COARSENESS = 1e-3
#: ... as long as no loss spans more cells than this already.
_FINEST = 20_000
#: ... and as long as rounding adds no more than this to all masses of a release.
_NOISE = 1e-6
#: Infinite mass of one release that only says where its distribution was cut off.
_CUT = 1e-20


def _span(masses: DiscretePMF) -> int:
    return int(masses.index_N[-1]) - int(masses.index_N[0])


class OneWay:
    """A composition for neighbours in one order, of ``(masses, times)`` in steps of a length."""

    def __init__(self, parts: Parts, interval: float) -> None:
        self.parts, self.interval = parts, interval

    def loss_at_delta(self, delta: float, *, steps: int = 1) -> PrivacyLossDistribution:
        """The distribution, tight where ``delta``, or that of ``steps`` neighbours, is decided."""
        return self._loss(self._outline.order_for_delta(delta, steps))

    def loss_at_epsilon(self, epsilon: float) -> PrivacyLossDistribution:
        """The distribution, tight at ``epsilon``."""
        return self._loss(self._outline.order_for_epsilon(epsilon))

    @property
    def infinite(self) -> float:
        """Mass at infinity; one where nothing is protected."""
        if any(masses.infinite >= 1.0 or not len(masses.mass_N) for masses, _ in self.parts):
            return 1.0
        return -math.expm1(sum(t * math.log1p(-masses.infinite) for masses, t in self.parts))

    @property
    def too_coarse(self) -> bool:
        """True if the grid adds too much to the variance of the loss, and could be finer.

        Every release of many is spread over two cells, which adds d²/6 to its variance. Losses
        that span many cells are left as they are: they would take long.
        """
        if self.infinite >= 1.0 or any(_span(masses) > _FINEST for masses, _ in self.parts):
            return False
        grid = sum(times for _, times in self.parts) / 6.0  # in squared steps
        spread = sum(times * masses.variance for masses, times in self.parts)
        return grid > _COARSENESS * spread > 0.0

    @property
    def too_fine(self) -> bool:
        """True if rounding is noticeable on this grid; see ``DiscretePMF.surplus``."""
        return any(masses.surplus > _NOISE for masses, _ in self.parts)

    @cached_property
    def _outline(self) -> Outline:
        return Outline.of(self.parts, self.interval)

    def _end(self, order: float, other: float) -> float:
        """The end, on the side of ``other``, of all but e⁻⁴⁰ of the distribution tilted by
        ``order``.

        Markov's inequality for e^((other − order) · loss).
        """
        at, here = (
            math.fsum(
                times * masses.log_moment(each * self.interval) for masses, times in self.parts
            )
            for each in (other, order)
        )
        return (at - here + REACH) / (other - order)

    def _loss(self, order: float) -> PrivacyLossDistribution:
        below, beyond = self._outline.reach(order)
        # From the masses themselves: an outline rounds away the end of what is bounded.
        low, high = self._end(order, below), self._end(order, beyond)
        lowest = sum(times * int(masses.index_N[0]) for masses, times in self.parts)
        last = sum(times * int(masses.index_N[-1]) for masses, times in self.parts)
        first = max(lowest, math.floor(low / self.interval))
        wanted = max(1, min(last, math.ceil(high / self.interval)) - first + 1)
        if wanted > MOST_CELLS:
            factor = 2 ** math.ceil(math.log2(wanted / MOST_CELLS))
            merged = [(m.merged(factor, self.interval), times) for m, times in self.parts]
            return OneWay(merged, factor * self.interval)._loss(order)
        return convolve(
            self.parts,
            interval=self.interval,
            tilt=order * self.interval,
            lowest=first,
            cells=2 ** max(4, math.ceil(math.log2(wanted))),
            beyond=beyond * self.interval,
        )


class Composition:
    """Releases taken together, for neighbours in either order.

    Formal guarantee: whatever is said of epsilon and delta, and every ``PrivacyLossDistribution``
    that is handed out, bounds the composition of the releases' discretized distributions, all
    rounding included.
    """

    def __init__(self, removed: OneWay, added: OneWay) -> None:
        self.removed, self.added = removed, added

    @property
    def ways(self) -> tuple[OneWay, ...]:
        """Both orders, or the one that they have in common."""
        return (self.removed,) if self.removed is self.added else (self.removed, self.added)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at ``delta``, rounded up; infinite where there is none.

        Raises:
            Uncertified: ``delta`` is smaller than what is certain about so many releases.
        """
        return max(_epsilon(way, delta) for way in self.ways)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at ``epsilon``, rounded up; at most 1."""
        if any(way.infinite >= 1.0 for way in self.ways):
            return 1.0
        return max(way.loss_at_epsilon(epsilon).delta(epsilon) for way in self.ways)

    def near(self, delta: float) -> Callable[[float], float]:
        """``delta`` as a function of epsilon, from one convolution: exact around ``delta``.

        Elsewhere it errs upward: by next to nothing within a factor of a million or so, and up to
        what ``privacy_loss`` says further off.
        """
        if any(way.infinite >= 1.0 for way in self.ways):
            return lambda epsilon: 1.0
        losses = self.losses(delta)
        return lambda epsilon: max(loss.delta(epsilon) for loss in losses)

    def losses(self, delta: float, *, steps: int = 1) -> tuple[PrivacyLossDistribution, ...]:
        """A distribution for each of ``ways`` that dominates at every epsilon, and is tight at
        ``delta``.

        That is: (1) each dominates for *all* α ≥ 0, so that it may be mixed, post-processed and
        composed with others like any dominating pair; (2) within about nine standard deviations of
        the loss at which ``delta`` is decided its masses are those of the composition, except for
        the grid's own pessimism and a relative error that ``convolution`` bounds (a few parts in a
        million at most, by T = 1e6); (3) what lies lower is in its lowest cell, what lies higher at
        infinity. With ``steps`` it is tight where group privacy for as many decides. Nothing is
        protected where a loss is infinite with probability one: there is none then, ValueError.
        """
        if any(way.infinite >= 1.0 for way in self.ways):
            raise ValueError("a release without protection has no finite loss")
        return tuple(way.loss_at_delta(delta, steps=steps) for way in self.ways)


def _epsilon(way: OneWay, delta: float) -> float:
    loss = None if way.infinite > delta else way.loss_at_delta(delta)
    result = math.inf if loss is None else loss.epsilon(delta)
    cut_off = max(masses.infinite for masses, _ in way.parts) <= _CUT
    if math.isinf(result) and cut_off:
        raise Uncertified(_refusal(way, delta, way.infinite if loss is None else loss.infinite))
    return result


def _refusal(way: OneWay, delta: float, least: float) -> str:
    return (
        f"delta = {delta:g} cannot be certified for {sum(t for _, t in way.parts):,} releases: "
        f"what is cut off their tails may add up to {least:.2g}; choose at least {10 * least:.0e}"
    )


def composition(
    events: Iterable[tuple[Event, int]], *, adjacency: Adjacency, interval: float = INTERVAL
) -> Composition | None:
    """All of ``(event, times)`` taken together; None if nothing is released.

    At ``INTERVAL``, the grid is made finer where its own pessimism would show: where many releases
    add up whose losses are small beside it (``OneWay.too_coarse``), as far as rounding allows. A
    coarser one stays as it is.

    Raises:
        Unsupported: an event has no guarantee under ``adjacency``.
    """
    charged = [(event, times) for event, times in events if times > 0]
    if not charged:
        return None
    total = _composed(charged, adjacency, interval)
    while ALLOWANCE < interval <= INTERVAL and total.removed.too_coarse:
        interval /= 2.0
        finer = _composed(charged, adjacency, interval)
        if any(way.too_fine for way in finer.ways):
            break
        total = finer
    return total


def _composed(
    charged: list[tuple[Event, int]], adjacency: Adjacency, interval: float
) -> Composition:
    """On a grid of this ``interval``."""
    result = [(_masses(event, adjacency, interval), times) for event, times in charged]
    removed = OneWay([(of_both[0], times) for of_both, times in result], interval)
    if all(len(of_both) == 1 for of_both, _ in result):
        return Composition(removed, removed)
    added = OneWay([(of_both[-1], times) for of_both, times in result], interval)
    return Composition(removed, added)


@lru_cache(maxsize=8)
def _masses(event: Event, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
    """Remembered: a run that shows what it has spent asks for the same few again and again."""
    return event.loss(adjacency, interval)


def composed_epsilon(
    events: Iterable[tuple[Event, int]], *, adjacency: Adjacency, delta: float, interval: float
) -> float:
    """The smallest epsilon at ``delta`` of the composition: 0 for nothing, inf for unprotected.

    Raises:
        Uncertified: ``delta`` is smaller than what is certain about so many releases.
    """
    total = composition(events, adjacency=adjacency, interval=interval)
    return 0.0 if total is None else total.epsilon(delta)
