"""Settings of the users in a round, and of their judgements."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import (
    AT_LEAST_ONE,
    POSITIVE,
    TRAINING,
    settings_in,
)

_setting = settings_in(TRAINING)

#: Where a strategy takes any number.
ROUNDS = 200
#: The cohort where nobody chose one: a share of the users, between these two.
COHORT_SHARE, LEAST_COHORT, MOST_COHORT = 5, 100, 500


def usual_cohort(users: int) -> int:
    """A fifth of a public number of users, at least 100 (or all) and at most 500."""
    return max(1, min(users, max(LEAST_COHORT, min(MOST_COHORT, users // COHORT_SHARE))))


def cohort_of_turns(users: int, cohort: int) -> int:
    """The cohort size nearest to this one that divides ``users`` into a whole number of rounds."""
    return round(users / max(1, round(users / cohort)))


@dataclass(frozen=True)
class SamplingConfig:
    """Settings of the users in a round, and of their judgements."""

    strategy: str = _setting("uls", "Algorithm. [default: uls]", common=True)
    rounds: int = _setting(
        0,
        f"Rounds of training. [default: {ROUNDS}, or 1 if the strategy takes one round]",
        common=True,
        good=lambda value: value >= 1,
        expected="at least 1",
    )
    cohort: int = _setting(
        0,
        "Expected users in a round. [default: a fifth of --users, at least 100 (or all) and at "
        f"most {MOST_COHORT}; {MOST_COHORT} if their number is private and --users is left out]",
        common=True,
        **AT_LEAST_ONE,
    )
    clip_norm: float = _setting(
        0.0,
        "Clip norm of a user's gradient. els, group: of one judgement's; aup: the radius. "
        "[default: the strategy's]",
        common=True,
        **POSITIVE,
    )
    group_size: int = _setting(
        0,
        "Most judgements, texts or votes of a user in a round. [default: the strategy's]",
        common=True,
        steps=True,
        **AT_LEAST_ONE,
    )
