"""Exponents: how a measured error goes with n, d or ε, beside what a theorem's rate says.

Every seed has errors at all points, and a slope of its own: of log error against log x, by least
squares. Seeds are independent, so their slopes give Student's interval of the mean slope.

The rule, fixed before the full runs, and amended after quick ones. A rate holds up to a constant,
so it speaks of where x leads: of large n, d or c(ε), or of small α. ``AGREES``: the interval comes
within 0.1 of the exponent of a bound. Where it does not, an error may be better or worse than an
upper bound's exponent: ``BELOW``, which the bound allows, or ``DIFFERS``. A lower bound is of the
hardest population and the best estimator: one estimator can reach its exponent (``REACHES``), which
does not prove it; an error that is worse is ``ABOVE``, which contradicts nothing, and one that is
better ``EASIER``: the population is not the hardest. ``UNCLEAR``: the interval comes that near, but
is wider than 0.5 in all, and would fit too much.

Legend: R seeds, X points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from murmuration.research.reproductions.alignment.claims import half_width
from murmuration.research.reproductions.entry import Row

MARGIN, WIDEST = 0.1, 0.5
AGREES, DIFFERS = "agrees", "differs"
REACHES = "reaches it"
UNCLEAR = "cannot be compared: interval too wide"
BELOW, ABOVE, EASIER = "better than it", "worse than it", "easier than its hardest case"


@dataclass(frozen=True)
class Slope:
    """The mean slope over seeds, and its 95 % interval; infinite of one seed."""

    mean: float
    low: float
    high: float

    @classmethod
    def fitted(cls, x: Sequence[float], error_RX: np.ndarray) -> "Slope":
        """Fit the slope of log error against log x.

        Raises:
            ValueError: fewer than two points, or an error that is not positive.
        """
        if len(x) < 2:
            raise ValueError("a slope needs two points")
        if not (error_RX > 0.0).all():
            raise ValueError("only positive errors have a logarithm")
        log_X = np.log(np.asarray(x, dtype=np.float64))
        off_X = log_X - log_X.mean()
        slope_R = np.log(error_RX) @ off_X / (off_X @ off_X)
        mean, half = float(slope_R.mean()), half_width(slope_R.tolist())
        return cls(mean, mean - half, mean + half)

    def verdict(
        self, exponent: float, side: Literal["upper", "lower"], *, towards_zero: bool = False
    ) -> str:
        """The rule's verdict on a bound with this exponent.

        Args:
            exponent: of x in the bound.
            side: of the bound.
            towards_zero: whether the bound is about small x; otherwise about large ones.
        """
        if self.low - MARGIN <= exponent <= self.high + MARGIN:
            if self.high - self.low > WIDEST:
                return UNCLEAR
            return AGREES if side == "upper" else REACHES
        worse = (self.mean > exponent) != towards_zero
        if side == "upper":
            return DIFFERS if worse else BELOW
        return ABOVE if worse else EASIER

    def columns(
        self, exponent: float, side: Literal["upper", "lower"], *, towards_zero: bool = False
    ) -> dict[str, Any]:
        """Columns with a bound's exponent, the slope, its interval, and the verdict."""
        verdict = self.verdict(exponent, side, towards_zero=towards_zero)
        ends = {"slope": self.mean, "low": self.low, "high": self.high}
        return {"exponent": exponent, **ends, "verdict": verdict}


def compared(row: Row, symbol: str) -> str:
    """In words: the power of a symbol with which an error goes, and the verdict on a bound's."""
    return (
        f"{symbol} to the {row['slope']:.2f} [{row['low']:.2f}, {row['high']:.2f}] against "
        f"{row['exponent']:g}: {row['verdict']}"
    )
