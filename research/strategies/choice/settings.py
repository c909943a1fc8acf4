"""Settings of the choice among policies."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import setting


def _with_digest(file: str) -> str:
    from murmuration.research.strategies.choice.policy_class import with_digest

    return with_digest(file)


@dataclass(frozen=True)
class ExponentialSettings:
    """A setting of exponential."""

    policies: str = setting(
        "",
        "A class of policies to choose from, written by `murmuration policies commit`; --base is "
        "the reference.",
        pinned=_with_digest,
    )
