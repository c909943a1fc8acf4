"""Settings of ULS."""

from dataclasses import dataclass

from murmuration.strategies.settings.own.shared import Normalized, Sampled


@dataclass(frozen=True)
class UlsSettings(Sampled, Normalized):
    """Settings of uls."""
