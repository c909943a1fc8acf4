"""Which noise a run draws: exact whole numbers where it can, floating point elsewhere.

``--noise discrete`` is discrete Gaussian noise on a grid (``privacy.discrete``), the default where
draws are not seeded, the library for it is installed and there are at most
``MOST_COORDINATES`` of them. ``--noise gaussian`` is floating-point Gaussian noise: seeded in a
simulation, from the operating system otherwise, where the report says why it was not the other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.discrete import MOST_COORDINATES, DiscreteNoise, installed

if TYPE_CHECKING:
    from server.config import RunConfig

NOISES = ("discrete", "gaussian")
#: Strategies whose noise is Gaussian on sums of clipped vectors, and accounted as such.
_DISCRETE_FOR = ("uls", "dp-fedavg", "els", "adaptive", "aup", "label-moment")
_HOW = "pip install 'murmuration[secure]'"


@dataclass(frozen=True)
class NoiseChoice:
    """``kind`` of the noise, and for the report a sentence that a reader must know, or none."""

    kind: str
    warning: str = ""

    def on(self, coordinates: int) -> DiscreteNoise | None:
        """Discrete noise on so many coordinates, if it is discrete."""
        return DiscreteNoise(coordinates) if self.kind == "discrete" else None


def check(config: "RunConfig") -> None:
    """ValueError, saying what to do, if discrete noise is asked for where there is none."""
    if config.noise != "discrete":
        return
    if why := _no_form(config):
        raise ValueError(f"--noise discrete is not for {why}; leave it out, or use gaussian")
    if config.seed >= 0:
        raise ValueError(
            "--noise discrete comes from the operating system and cannot be repeated: leave out "
            "--seed, or use --noise gaussian"
        )
    if not installed():
        raise ValueError(f"--noise discrete needs OpenDP: {_HOW}")


def choose(config: "RunConfig", dimension: int, *, seeded: bool) -> NoiseChoice:
    """The noise of a run with so many weights; ValueError if what is asked for is too much."""
    if config.strategy == "local-label":  # coins of whole numbers, and nothing is added to a sum
        return NoiseChoice("randomized-response")
    if config.noise == "discrete":
        if dimension > MOST_COORDINATES:
            raise ValueError(
                f"--noise discrete is for at most {MOST_COORDINATES:,} weights, a second of "
                f"drawing a round; there are {dimension:,}: use --noise gaussian"
            )
        return NoiseChoice("discrete")
    if seeded or config.strategy == "nonprivate":
        return NoiseChoice("gaussian")
    why = _no_form(config)
    if not why and dimension > MOST_COORDINATES:
        why = f"{dimension:,} weights, more than {MOST_COORDINATES:,}"
    if not why and not installed():
        why = f"an installation without OpenDP ({_HOW})"
    if not why and config.noise != "gaussian":
        return NoiseChoice("discrete")
    reason = f"there is no discrete noise for {why}" if why else "--noise gaussian was asked for"
    return NoiseChoice(
        "gaussian",
        "Noise was drawn in floating point, from the operating system's generator: "
        f"{reason}. The guarantee is that of real numbers; what the last bits of rounded ones may "
        "tell is not covered.",
    )


def _no_form(config: "RunConfig") -> str:
    """What there is no discrete noise for, if this is it."""
    if config.strategy not in _DISCRETE_FOR:
        return f"--strategy {config.strategy}"
    if config.strategy == "aup" and config.variant != "centred":
        return f"--strategy aup --variant {config.variant}"
    return ""
