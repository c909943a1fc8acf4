"""Bounds on all attacks on a run, from its whole privacy curve and not from one point.

A test of which of two neighbouring data sets a run was given says "in" with some probability where
the user is in (TPR) and where they are not (FPR). With H_α ≤ d at α ≥ 0, TPR ≤ d + α · FPR. A run's
δ(ε), in both orders of the neighbours, gives d = δ(ε) at α = e^ε and, seen from the other order,
d = 1 − e^−ε (1 − δ(ε)) at α = e^−ε (Kairouz et al. 2015). The least of these lines bounds every
attack at once, whatever it knows and computes.

**μ of Gaussian DP** (Dong, Roth and Su 2022) is here the least μ such that one Gaussian of
sensitivity μ in units of its noise has at least the run's δ(ε), as far as known, at every ε from 0
to that at which δ(ε) comes down to the δ of the run's promise. So every attack has

    TPR ≤ Φ(Φ⁻¹(FPR) + μ) + δ,

where δ is needed only below the first corner of the lines, at an FPR of f: there TPR ≤ e^ε FPR + δ,
and the Gaussian's TPR, concave and nothing at 0, lies above e^ε FPR. From f on it is enough to
compare the corners: between them the least of the lines is straight, and the Gaussian's TPR is
concave. Corners with α < 1 mirror the others. H_α is convex in α, so a line that lies above where
two others meet, or between whose neighbours the curve was not computed, is not missed.

Everything is rounded up. Of group privacy nothing but (ε, δ) is known; it is then the only line.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import special

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.adjacency import Adjacency

#: Values of epsilon at which the curve is looked at.
_POINTS = 160
#: More is no bound that says anything.
_MOST_EPSILON = 500.0
#: Where the curve is tight: attacks with few false positives happen where delta is about that.
_NEAR = 1e-2
#: The coarsest grid of losses, and what one may add to the variance of the composed loss.
_COARSEST, _COARSENESS = 1e-3, 1e-3


@dataclass(frozen=True)
class AttackBounds:
    """Upper bounds on every membership inference attack, rounded up to four digits.

    ``gdp_mu`` is None where no μ would do.
    """

    tpr_at_1_percent_fpr: float
    tpr_at_0_1_percent_fpr: float
    gdp_mu: float | None

    def __post_init__(self) -> None:
        for share in (self.tpr_at_1_percent_fpr, self.tpr_at_0_1_percent_fpr):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"a true-positive rate must be in [0, 1], got {share}")
        if self.gdp_mu is not None and not (math.isfinite(self.gdp_mu) and self.gdp_mu >= 0.0):
            raise ValueError(f"mu must be finite and at least 0, got {self.gdp_mu}")


#: (α, d): H_α ≤ d.
_Line = tuple[float, float]


def of_run(
    run: Iterable[tuple[Event, int]], *, adjacency: Adjacency, epsilon: float, delta: float
) -> AttackBounds:
    """The bounds on attacks on one run with these events.

    ``epsilon`` is what the run is known to cost at ``delta``.
    """
    if not epsilon <= _MOST_EPSILON:
        return of_point(epsilon, delta)
    charges, near = list(run), max(delta, _NEAR)
    curve = accountant.curve(
        charges, adjacency=adjacency, delta=near, interval=_interval(charges, epsilon)
    )
    if curve is None:
        return of_point(epsilon, delta)
    points = [(e, curve(e)) for e in (epsilon * i / _POINTS for i in range(_POINTS))]
    above = list(itertools.takewhile(lambda point: point[1] > delta, points))
    return _bounds([*above, (points[len(above)][0] if len(above) < _POINTS else epsilon, delta)])


def of_point(epsilon: float, delta: float) -> AttackBounds:
    """The bounds on attacks on any (``epsilon``, ``delta``)-DP release."""
    if not epsilon <= _MOST_EPSILON:
        return AttackBounds(1.0, 1.0, None)
    return _bounds([(epsilon, delta)])


def _interval(charges: Sequence[tuple[Event, int]], epsilon: float) -> float:
    """A grid that is fast, and errs upward by next to nothing: each release adds d²/6 to a variance
    of about (ε/5)²."""
    releases = max(1, sum(times for _, times in charges))
    enough = epsilon / 5.0 * math.sqrt(6.0 * _COARSENESS / releases)
    return min(_COARSEST, max(accountant.INTERVAL, enough))


def _bounds(points: Sequence[tuple[float, float]]) -> AttackBounds:
    """From (ε, δ)s, of which the last has the least δ."""
    lines = _hull(
        [(math.exp(-e), -math.expm1(-e) + math.exp(-e) * d) for e, d in reversed(points)]
        + [(math.exp(e), d) for e, d in points]
    )
    rates = [_up(min(d + a * fpr for a, d in lines)) for fpr in (0.01, 0.001)]
    mu = _mu(lines)
    return AttackBounds(
        min(1.0, rates[0]), min(1.0, rates[1]), _up(mu) if math.isfinite(mu) else None
    )


def _hull(lines: Sequence[_Line]) -> list[_Line]:
    """The corners of the largest convex function of α that is nowhere above these; α rises."""
    corners: list[_Line] = []
    for line in lines:
        if corners and line[0] <= corners[-1][0]:  # twice the same α
            line = (line[0], min(line[1], corners.pop()[1]))
        while len(corners) > 1 and _is_above(corners[-2], corners[-1], line):
            corners.pop()
        corners.append(line)
    return corners


def _is_above(first: _Line, middle: _Line, last: _Line) -> bool:
    """True if the middle line lies on or above the straight line between the others."""
    (a, at_a), (b, at_b), (c, at_c) = first, middle, last
    return (at_b - at_a) * (c - b) >= (at_c - at_b) * (b - a)


def _mu(lines: Sequence[_Line]) -> float:
    """The least μ whose Gaussian is at no corner below the lines that meet there; corners where
    both have α < 1 mirror others."""
    largest = 0.0
    for (a, at_a), (b, at_b) in itertools.pairwise(lines):
        if b <= 1.0:
            continue
        fpr = (at_a - at_b) / (b - a)
        tpr = at_a + a * fpr
        if fpr < tpr < 1.0:
            largest = max(largest, float(special.ndtri(tpr) - special.ndtri(max(fpr, 0.0))))
    return largest


def _up(value: float) -> float:
    """Four significant digits, rounded up."""
    if not (value > 0.0 and math.isfinite(value)):
        return value
    unit = 10.0 ** (3 - math.floor(math.log10(value)))
    return math.ceil(value * unit * (1.0 + 1e-9)) / unit


def sure_at_most(epsilon: float, prior: float = 0.5) -> float:
    """The largest posterior from this ``prior``: odds times e^ε, except with probability δ."""
    if math.isinf(epsilon):
        return 1.0
    odds = prior / (1.0 - prior) * math.exp(min(epsilon, 700.0))
    return 1.0 if math.isinf(odds) else odds / (1.0 + odds)
