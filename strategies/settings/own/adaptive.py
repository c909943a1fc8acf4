"""Settings of adaptive clipping."""

from dataclasses import dataclass

from murmuration.strategies.settings.own.shared import Quantile, Retained


@dataclass(frozen=True)
class AdaptiveSettings(Retained, Quantile):
    """Settings of adaptive."""
