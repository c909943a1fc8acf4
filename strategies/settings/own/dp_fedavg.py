"""Settings of DP-FedAvg."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import AT_LEAST_ONE, POSITIVE, setting
from murmuration.strategies.settings.own.shared import Normalized, Sampled


@dataclass(frozen=True)
class FedAvgSettings(Sampled, Normalized):
    """Settings of dp-fedavg."""

    local_steps: int = setting(0, "Local steps of each user. [default: 4]", **AT_LEAST_ONE)
    local_rate: float = setting(
        0.0, "Step size of the local steps; with --task policy give 0.1. [default: 1]", **POSITIVE
    )
