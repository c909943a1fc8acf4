"""Settings of objective perturbation."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import setting
from murmuration.strategies.settings.own.shared import Solved


@dataclass(frozen=True)
class ObjectiveSettings(Solved):
    """Settings of objective-perturbation."""

    calibration: str = setting(
        "",
        "The accountant's noise, or the paper's. [default: analytic]",
        choices=("analytic", "paper"),
    )
