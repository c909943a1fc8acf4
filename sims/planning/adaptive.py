"""``murmuration plan`` for strategies that release more than a sum a round: adaptive and AUP.

How the budget is shared among their releases follows from epsilon, so epsilon is what is given.
"""

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.planning.examples import Asked
from murmuration.strategies.adaptive import (
    DEFAULT_QUANTILE,
    DEFAULT_START,
    AdaptivePlan,
    QuantileRule,
)
from murmuration.strategies.aup import published as aup_published
from murmuration.strategies.aup import schedule
from murmuration.strategies.aup.corrected import CorrectedPlan
from murmuration.strategies.aup.published import PublishedPlan
from murmuration.strategies.aup.threshold import ThresholdPlan

STRATEGIES = ("adaptive", "aup")


def solve(
    strategy: str, variant: str, adaptation: str, asked: Asked, adjacency: Adjacency
) -> dict[str, float]:
    """The noise multiplier of the gradients from epsilon, and what else is released with it.

    Raises:
        InputError: something is missing or given too much.
        ValueError: sizes that cannot be, or a cohort that is too small for the filter.
    """
    if asked.noise_multiplier is not None or asked.epsilon is None:
        raise InputError(
            f"--strategy {strategy} divides its budget by itself: give --epsilon, not the noise"
        )
    for name in ("users", "cohort", "rounds", "delta"):
        if not (value := getattr(asked, name)) or value < 0:
            raise InputError(f"--strategy {strategy} needs --{name}, a positive number")
    sizes = {"users": asked.users, "cohort": asked.cohort, "rounds": asked.rounds}
    terms = {"delta": asked.delta, "adjacency": adjacency}
    others = {**terms, "hold_out": asked.hold_out}
    found: dict[str, float] = {"epsilon": asked.epsilon, **sizes, "delta": asked.delta}  # type: ignore[dict-item]
    if variant == "published" and strategy == "aup":
        if asked.hold_out:
            raise InputError(
                "--heldout saves --variant published nothing: its noise is the paper's"
            )
        phases = schedule.constant_schedule(
            asked.users or 0,
            1,
            cohort=asked.cohort or 0,
            rounds=asked.rounds or 0,
            rate=1.0,
            radius=aup_published.DEFAULT_RADIUS,
        )
        published = PublishedPlan.for_epsilon(asked.epsilon, phases=phases, **terms)
        return {**found, "noise_multiplier": published.noise_multipliers[-1]}
    if variant == "corrected" and strategy == "aup":
        corrected = CorrectedPlan.for_epsilon(asked.epsilon, **sizes, **others)
        return {
            **found,
            "noise_multiplier": corrected.noise_multiplier,
            "least_weight": corrected.mechanism.bar,
        }
    if adaptation == "above-threshold" and strategy == "aup":
        tested = ThresholdPlan.for_epsilon(asked.epsilon, start=DEFAULT_START, **sizes, **others)
        return {
            **found,
            "noise_multiplier": tested.noise_multiplier,
            "tests": tested.series,
            "test_epsilon": tested.test_epsilon,
        }
    rule = QuantileRule(DEFAULT_START, DEFAULT_QUANTILE)
    adaptive = AdaptivePlan.for_epsilon(asked.epsilon, rule=rule, **sizes, **others)
    return {
        **found,
        "noise_multiplier": adaptive.noise_multiplier,
        "count_noise": adaptive.count_noise,
    }
