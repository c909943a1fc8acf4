"""Settings of labels that are randomized where they lie."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import AT_LEAST_ONE, not_negative, setting
from murmuration.strategies.settings.own.shared import Solved


@dataclass(frozen=True)
class LocalLabelSettings(Solved):
    """Settings of local-label."""

    estimator: str = setting(
        "",
        "How the model is fitted to randomized labels. [default: debiased]",
        choices=("debiased", "mle", "sgd", "square"),
    )
    label_cap: int = setting(
        0, "Most labels that a user ever releases. [default: all they have]", **AT_LEAST_ONE
    )
    label_delta: float = setting(
        0.0,
        "The part of delta that is spent on labels.",
        good=not_negative,
        expected="between 0 and --delta, which it is part of",
    )
    label_weights: str = setting(
        "",
        "Weight judgements by the information in their labels, or equally. [default: information]",
        choices=("information", "equal"),
    )
    sgd_steps: str = setting(
        "",
        "sgd: decaying steps and averages, or as published. [default: decaying]",
        choices=("decaying", "published"),
    )
    sum_zero: bool = setting(False, "Only allow weights that sum to zero.")
    epochs: int = setting(
        0, "Passes over the data. policy: over all labels. [default: 1]", **AT_LEAST_ONE
    )
    batch_size: int = setting(
        0, "Batch size of a step. policy: in labels. [default: 64]", **AT_LEAST_ONE
    )
