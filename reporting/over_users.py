"""How a figure differs over users, in a line: of the tenth at one end, the middle, and the other.

It is a ``privacy.user_histogram.Spread``, as ``result.json`` has it.
"""

from collections.abc import Mapping
from typing import Any

from murmuration.reporting.figures import points_of_error, share_text


def tenths(spread: Mapping[str, Any] | None) -> str:
    """Return how often a model is right for the tenth of users whom it suits least, for those in
    the middle and for the tenth whom it suits best; empty where that is not known."""
    if not spread:
        return ""
    deciles = spread["deciles"]
    return (
        f"{share_text(deciles[0])}{_noise(spread, 0)} for the tenth of users whom it suits least, "
        f"{share_text((deciles[4] + deciles[5]) / 2)} in the middle, "
        f"{share_text(deciles[-1])}{_noise(spread, -1)} for the tenth whom it suits best"
    )


def gains(spread: Mapping[str, Any] | None) -> str:
    """Return who gains and who loses by rewards of their own; empty where that is not known."""
    if not spread:
        return ""
    pairs = [*zip(spread["knots"], spread["shares"], strict=True)]
    lose, gain = (sum(share for knot, share in pairs if sign * knot > 0) for sign in (-1, 1))
    deciles = spread["deciles"]
    return (
        f"about {100 * gain:.0f} % of users gain and {100 * lose:.0f} % lose; the tenth that loses "
        f"most {100 * deciles[0]:+.1f} points{_noise(spread, 0)}, the tenth that gains most "
        f"{100 * deciles[-1]:+.1f}{_noise(spread, -1)}"
    )


def _noise(spread: Mapping[str, Any], tenth: int) -> str:
    error = spread["errors"][tenth]
    return f" ± {points_of_error(error)}" if error else ""
