"""Settings of AUP."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import AT_LEAST_ONE, setting
from murmuration.strategies.settings.own.shared import Quantile, Retained


@dataclass(frozen=True)
class AupSettings(Retained, Quantile):
    """Settings of aup."""

    variant: str = setting(
        "centred",
        "Which form of it. [default: centred]",
        choices=("centred", "published"),
    )
    adaptation: str = setting(
        "quantile",
        "centred: how the radius adapts. [default: quantile]",
        choices=("quantile", "above-threshold"),
    )
    reading: str = setting(
        "to-the-letter",
        "published: Algorithm 1 as printed, or as its authors can have run it: one phase of "
        "all users, and exactly --cohort of them a round. [default: to-the-letter]",
        choices=("to-the-letter", "as-run"),
    )
    phases: int = setting(
        0, "published: phases on disjoint halves of the users. [default: 1]", **AT_LEAST_ONE
    )
    schedule: str = setting(
        "constant",
        "published: phases, steps and radii as given, or by the paper's theorem. "
        "[default: constant]",
        choices=("constant", "theorem-4"),
    )
