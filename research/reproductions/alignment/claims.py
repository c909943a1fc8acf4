"""A paper's claims that something is more than something else, and the verdicts here.

The rule, fixed before anything was run: a claim is a difference that the paper says is positive.
It *agrees* if the 95 % interval of its mean over seeds (Student's t) is above zero, *does not
agree* if the interval is below zero, and *cannot be told* between. What is compared has the same
seed on both sides: the same users. Claims are not corrected for their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev

from murmuration.research.reproductions.entry import Row

_NOTHING = 1e-9  # roundings, where all seeds say the same
AGREES, DISAGREES, OPEN = "agrees", "DOES NOT AGREE", "cannot be told"


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean over seeds; infinite for one seed."""
    from scipy import stats

    if len(values) < 2:
        return inf
    return float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))


def mean_interval(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Columns for a mean and the half width of its interval; of one value there is none."""
    wide = half_width(values)
    return {f"{name}_mean": fmean(values), f"{name}_interval": None if wide == inf else wide}


def in_words(row: Row, name: str) -> str:
    """The columns of ``mean_interval`` in words."""
    wide = row[f"{name}_interval"]
    return f"{row[f'{name}_mean']:.4f}" + ("" if wide is None else f" ± {wide:.4f}")


def apart(more: Sequence[float], less: Sequence[float]) -> list[float]:
    """The differences of the same seeds."""
    return [one - other for one, other in zip(more, less, strict=True)]


@dataclass(frozen=True)
class Claim:
    """A claim that a difference is positive: the paper's statement, and the measurement of each
    seed.

    Claims are counted by ``about``.
    """

    about: str
    said: str
    differences: Sequence[float]

    @property
    def verdict(self) -> str:
        """The verdict by the rule above."""
        mean, wide = fmean(self.differences), half_width(self.differences)
        if mean - wide > _NOTHING:
            return AGREES
        return DISAGREES if mean + wide < -_NOTHING else OPEN

    def __str__(self) -> str:
        mean, wide = fmean(self.differences), half_width(self.differences)
        spread = "one seed" if wide == inf else f"± {wide:.3f}"
        return f"{self.verdict}: {self.said} (here by {mean:+.3f}, {spread})."


def told(claims: Sequence[Claim]) -> list[str]:
    """Remarks: the number of claims about the same that agree, then each."""
    result = []
    for about in dict.fromkeys(claim.about for claim in claims):
        same = [claim for claim in claims if claim.about == about]
        agree = sum(claim.verdict == AGREES for claim in same)
        result.append(f"{about}: {agree} of {len(same)} agree.")
        result += map(str, same)
    return result
