"""Settings of ULS."""

from dataclasses import dataclass

from murmuration.strategies.settings.own.shared import Normalized, Retained


@dataclass(frozen=True)
class UlsSettings(Retained, Normalized):
    """Settings of uls."""
