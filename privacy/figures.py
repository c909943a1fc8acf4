"""Figures as a reader should see them: no more digits than they carry.

The exact values stand in ``result.json``; epsilon and delta are ``privacy.promise``'s.
"""

import math
from statistics import NormalDist

#: Of all intervals.
CONFIDENCE = 0.95


def counted(number: int, noun: str) -> str:
    """A number with what is counted: ``1 round``, ``2,178 rounds``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def share_text(share: float | None, users: int = 1000) -> str:
    """A share as a percentage; without a decimal where so few users were asked that it is luck."""
    if share is None or not math.isfinite(share):
        return "not measured"
    return f"{100 * share:.{1 if users >= 30 else 0}f} %"


def points_of_error(error: float | None) -> str:
    """A standard error of a share in percentage points, rounded up."""
    if error is None or not math.isfinite(error):
        return "unknown"
    points = 100 * error
    return f"{math.ceil(points * 10) / 10:.1f}" if points < 5 else f"{math.ceil(points)}"


def interval(std: float) -> float:
    """The half-width of the interval of a number with noise of this standard deviation, at
    ``CONFIDENCE``."""
    return NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * std


def round_digits(value: float, digits: int = 2) -> str:
    """Round to significant digits, with thousands separated: 43219 → ``43,000``."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    if places <= 0 or rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:.{digits}g}" if abs(rounded) < 1e-3 else f"{rounded:,.{places}f}"


def duration(seconds: float) -> str:
    """``0.8 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"
