"""Settings of single strategies: a frozen dataclass for each, and what several share."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import (
    AT_LEAST_ONE,
    POSITIVE,
    a_share,
    not_negative,
    setting,
)


@dataclass(frozen=True)
class NoSettings:
    """A strategy without settings of its own."""


@dataclass(frozen=True)
class Sampled:
    """A setting of strategies whose rounds are one sum over a cohort of users."""

    sampling: str = setting(
        "poisson",
        "Who is in a round. poisson: each user by a coin of their own. all: everybody. banded: "
        "groups of users take turns, those of a group by coins, and each round takes back some of "
        "the noise before it. blt: so, too, with everybody of the group and no coins. "
        "[default: poisson]",
        choices=("poisson", "all", "banded", "blt"),
    )

    @property
    def everybody(self) -> bool:
        """True if everybody is in each round."""
        return self.sampling == "all"

    @property
    def correlated(self) -> bool:
        """True if groups of users take turns, and rounds share noise."""
        return self.sampling in ("banded", "blt")


@dataclass(frozen=True)
class Solved:
    """A setting of strategies that solve for the model."""

    ridge: float = setting(
        0.0,
        "Ridge penalty added to the likelihood. [default: from noise and public features]",
        **POSITIVE,
    )


@dataclass(frozen=True)
class FedAvgSettings(Sampled):
    """Settings of dp-fedavg."""

    local_steps: int = setting(0, "Local steps of each user. [default: 4]", **AT_LEAST_ONE)
    local_rate: float = setting(
        0.0, "Step size of the local steps; with --task policy give 0.1. [default: 1]", **POSITIVE
    )


@dataclass(frozen=True)
class ElsSettings:
    """A setting of els and group."""

    sampling_probability: float = setting(
        0.0,
        "Probability of each kept judgement to be in a round. [default: as much computing as "
        "uls with --cohort]",
        good=a_share,
        expected="between 0 and 1",
    )


@dataclass(frozen=True)
class AupSettings:
    """A setting of aup."""

    variant: str = setting(
        "centred",
        "Which form of it. centred: the radius follows a quantile. above-threshold: centred, too, "
        "and a sparse vector test shrinks the radius. published: Algorithm 1 to the letter, in one "
        "phase. published-as-run: as its authors can have run it, in one phase of all users, with "
        "exactly --cohort of them a round. published-theorem-4: phases, steps and radii by that "
        "theorem. "
        "[default: centred]",
        choices=(
            *("centred", "above-threshold"),
            *("published", "published-as-run", "published-theorem-4"),
        ),
    )

    @property
    def is_published(self) -> bool:
        """True for Algorithm 1 in any reading: its guarantee is not proven."""
        return self.variant.startswith("published")


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
    epochs: int = setting(
        0, "Passes over the data. policy: over all labels. [default: 1]", **AT_LEAST_ONE
    )
