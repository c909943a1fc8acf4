"""Settings of ELS and of group privacy."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import a_share, setting
from murmuration.strategies.settings.own.shared import Normalized


@dataclass(frozen=True)
class ElsSettings(Normalized):
    """Settings of els and group."""

    sampling_probability: float = setting(
        0.0,
        "Probability of each kept judgement to be in a round. [default: as much computing as "
        "uls with --cohort]",
        good=a_share,
        expected="between 0 and 1",
    )
