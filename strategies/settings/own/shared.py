"""Settings that several strategies have, each with the same meaning in all of them."""

from dataclasses import dataclass

from murmuration.strategies.settings.declaration import AT_LEAST_ONE, POSITIVE, setting


@dataclass(frozen=True)
class NoSettings:
    """A strategy without settings of its own."""


@dataclass(frozen=True)
class Retained:
    """A setting of strategies that sample users, round by round."""

    retain: int = setting(
        0, "Most judgements of a user in the whole run. [default: all]", **AT_LEAST_ONE
    )


@dataclass(frozen=True)
class Sampled(Retained):
    """A setting of strategies whose rounds are one sum over a cohort of users."""

    sampling: str = setting(
        "poisson",
        "Who is in a round. poisson: each user by a coin of their own. cyclic: users / --cohort "
        "groups in turn, everybody of each, with --noise-correlation blt. all: everybody, in each "
        "round. [default: poisson]",
        choices=("poisson", "cyclic", "all"),
    )
    noise_correlation: str = setting(
        "none",
        "Noise of several rounds. none: independent. banded: each round takes back some of the "
        "noise before it, and groups of users take turns. blt: so, too, with --sampling cyclic and "
        "no coins. [default: none]",
        choices=("none", "banded", "blt"),
    )
    bands: int = setting(
        0,
        "--noise-correlation banded: how many rounds share noise, and groups take turns. "
        "[default: one of 2 to 32, by the least error]",
        good=lambda value: value == 0 or 2 <= value <= 60,
        expected="2 to 60",
    )

    @property
    def everybody(self) -> bool:
        """True if all users are in each round."""
        return self.sampling == "all"


@dataclass(frozen=True)
class Normalized:
    """A setting of strategies whose clip norm is fixed."""

    normalized: bool = setting(
        False, "Divide by the clip norm, so that step sizes do not depend on it."
    )


@dataclass(frozen=True)
class Quantile:
    """A setting of strategies whose bound follows a quantile."""

    quantile: float = setting(
        0.0,
        "Share of users within the radius. [default: 0.15]",
        good=lambda value: 0.0 <= value < 1.0,
        expected="between 0 and 1",
    )


@dataclass(frozen=True)
class Solved:
    """Settings of strategies that solve for the model."""

    ridge: float = setting(
        0.0,
        "Ridge penalty added to the likelihood. [default: from noise and public features]",
        **POSITIVE,
    )
    max_norm: float = setting(
        0.0, "Largest norm of the weights. [default: the strategy's]", **POSITIVE
    )
