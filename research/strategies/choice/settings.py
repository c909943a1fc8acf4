"""Settings of the choice among policies."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import AT_LEAST_ONE, setting
from murmuration.strategies.settings.own.shared import Leveled

#: Of one user at item level, where ``judgement_cap`` is left out.
DEFAULT_JUDGEMENT_CAP = 16


def _with_digest(file: str) -> str:
    from murmuration.research.strategies.choice.policy_class import with_digest

    return with_digest(file)


@dataclass(frozen=True)
class ExponentialSettings(Leveled):
    """Settings of exponential."""

    policies: str = setting(
        "",
        "A class of policies to choose from, written by `murmuration policies commit`; --base is "
        "the reference.",
        pinned=_with_digest,
    )
    judgement_cap: int = setting(
        0,
        "Item level: most judgements of a user that count (the first ones). "
        f"[default: {DEFAULT_JUDGEMENT_CAP}]",
        **AT_LEAST_ONE,
    )
    choice_rule: str = setting(
        "",
        "How a policy is drawn: exponential, by the exponential mechanism, or permute-and-flip, "
        "which at the same epsilon never loses more in expectation. [default: exponential]",
        choices=("exponential", "permute-and-flip"),
    )
