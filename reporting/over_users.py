"""The distribution of a figure over users, in a line: the lowest tenth, the middle, and the highest
tenth.

It is a ``privacy.user_histogram.Spread``, as ``result.json`` has it.
"""

from collections.abc import Mapping
from typing import Any

from murmuration.privacy.figures import points_of_error, share_text


def tenths(spread: Mapping[str, Any] | None) -> str:
    """The accuracy for the tenth of users with the lowest, for those in the middle, and for the
    tenth with the highest; empty if unknown.
    """
    if not spread:
        return ""
    deciles = spread["deciles"]
    return (
        f"{share_text(deciles[0])}{_noise(spread, 0)} for the tenth of users whom it suits least, "
        f"{share_text((deciles[4] + deciles[5]) / 2)} in the middle, "
        f"{share_text(deciles[-1])}{_noise(spread, -1)} for the tenth whom it suits best"
    )


def _noise(spread: Mapping[str, Any], tenth: int) -> str:
    error = spread["errors"][tenth]
    return f" ± {points_of_error(error)}" if error else ""
