"""Figures as a reader should see them: no more digits than they carry, and never a smaller epsilon.

The exact values stand in ``result.json``.
"""

import math
from decimal import ROUND_CEILING, Decimal


def epsilon_text(epsilon: float) -> str:
    """Three significant digits, two decimals at most from 1 on, rounded up: 2.991 → ``3.00``."""
    if not math.isfinite(epsilon):
        return "∞"
    exact = Decimal(f"{epsilon:.10g}")  # else 0.1 + 0.2 would be rounded up to 0.301
    if exact <= 0:
        return "0"
    places = 2 if exact >= 1 else 2 - exact.adjusted()
    if exact >= 10:
        places = max(0, 3 - exact.adjusted() - 1)
    return str(exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING))


def delta_text(delta: float) -> str:
    """As it is typed on the command line: ``1e-5``, ``0.02``."""
    if not 0 < delta < 1e-3:
        return f"{delta:g}"
    mantissa, exponent = f"{delta:.5e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


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


def round_digits(value: float, digits: int = 2) -> str:
    """So many significant digits, with thousands separated: 43219 → ``43,000``."""
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
