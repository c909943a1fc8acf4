"""Settings of the optimizer."""

from dataclasses import dataclass

from murmuration.preference.choices import OPTIMIZERS
from murmuration.strategies.settings.declaration import POSITIVE, TRAINING, settings_in

_setting = settings_in(TRAINING)


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of how the model steps."""

    optimizer: str = _setting(
        "",
        "Optimizer. sgd or adam. [default: the strategy's]",
        good=lambda value: value in ("", *OPTIMIZERS),
        expected=f"one of {', '.join(OPTIMIZERS)}",
        steps=True,
    )
    learning_rate: float = _setting(
        0.0, "Learning rate. [default: limited by the noise]", common=True, steps=True, **POSITIVE
    )
    momentum: float = _setting(
        0.9,
        "Momentum. [default: 0.9]",
        good=lambda value: 0.0 <= value < 1.0,
        expected="at least 0 and below 1",
    )
