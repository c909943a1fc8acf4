"""Which noise a run draws: exact whole numbers where it can, floating point elsewhere.

``--noise discrete`` is discrete Gaussian noise on a grid
(``privacy.mechanisms.discrete_gaussian``), the default where draws are not seeded, the library
for it is installed and there are at most ``MOST_COORDINATES`` of them. ``--noise gaussian`` is
floating-point Gaussian noise: seeded in a simulation, from the operating system otherwise, where
the report says why it was not the other. ``--noise distributed`` is discrete Gaussian noise that
the nodes add in shares, before they mask their sums (``privacy.mechanisms.distributed``): the
server sees no sum without it.
"""

from dataclasses import dataclass
from typing import Protocol

from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.discrete_gaussian import (
    MOST_COORDINATES,
    DiscreteNoise,
    installed,
)
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.secure_aggregation import party
from murmuration.privacy.theorems import Mechanism
from murmuration.strategies.settings.run import Settings

_WITH_OPENDP = "pip install 'murmuration-rlhf[secure]'"


class Noisy(Protocol):
    """A strategy (``strategies.spec.Strategy``)."""

    def adds(self, mechanism: Mechanism, own: object) -> bool:
        """True where a theorem is about a run with such noise."""
        ...

    def as_set(self, own: object) -> str:
        """The strategy with those of its own settings that are not defaults, as options."""
        ...


@dataclass(frozen=True)
class NoiseChoice:
    """The ``kind`` of the noise, and a sentence for the report that its reader must know, or none.

    ``parties`` is the number of nodes' shares, if nodes add it.
    """

    kind: str
    warning: str = ""
    parties: int = 0

    def on(self, coordinates: int) -> DiscreteNoise | DistributedNoise | None:
        """The discrete noise on ``coordinates`` coordinates; None if it is not discrete."""
        if self.kind == "distributed":
            return DistributedNoise(coordinates, self.parties)
        return DiscreteNoise(coordinates) if self.kind == "discrete" else None


def check_installed(noise: str) -> None:
    """InputError if the library of the noise that is asked for is not installed."""
    if noise in ("discrete", "distributed") and not installed():
        raise InputError(f"--noise {noise} needs OpenDP: {_WITH_OPENDP}")


def choose_noise(
    config: Settings, strategy: Noisy, dimension: int, *, seeded: bool, nodes: int
) -> NoiseChoice:
    """The noise of a run with ``dimension`` weights, on ``nodes`` registered nodes.

    Raises ValueError if the noise cannot be drawn for these sizes.
    """
    for mechanism in (Mechanism.RANDOMIZED_RESPONSE, Mechanism.EXPONENTIAL):
        if strategy.adds(mechanism, config.own):
            return NoiseChoice(mechanism.value)
    if config.noise in ("discrete", "distributed"):
        if dimension > MOST_COORDINATES:
            raise ValueError(
                f"--noise {config.noise} is for at most {MOST_COORDINATES:,} weights, a second of "
                f"drawing a round; there are {dimension:,}: use --noise gaussian"
            )
        if config.noise == "distributed":
            return NoiseChoice("distributed", parties=_parties(config.honest_nodes, nodes))
        return NoiseChoice("discrete")
    if seeded or not config.private:
        return NoiseChoice("gaussian")
    why = ""
    if not strategy.adds(Mechanism.DISCRETE_GAUSSIAN, config.own):
        why = strategy.as_set(config.own)
    if not why and dimension > MOST_COORDINATES:
        why = f"{dimension:,} weights, more than {MOST_COORDINATES:,}"
    if not why and not installed():
        why = f"an installation without OpenDP ({_WITH_OPENDP})"
    if not why and config.noise != "gaussian":
        return NoiseChoice("discrete")
    reason = f"there is no discrete noise for {why}" if why else "--noise gaussian was asked for"
    return NoiseChoice(
        "gaussian",
        "Noise was drawn in floating point, from the operating system's generator: "
        f"{reason}. The guarantee is that of real numbers; what the last bits of rounded ones may "
        "tell is not covered.",
    )


def _parties(honest: int, nodes: int) -> int:
    """The number of shares of the noise: the number of honest nodes, or the protocol's minimum."""
    if nodes < party.LEAST_PARTIES:
        raise ValueError(
            f"--noise distributed needs {party.LEAST_PARTIES} nodes, and there are {nodes}"
        )
    if honest > nodes:
        raise ValueError(f"--honest-nodes {honest} is more than the {nodes} nodes that there are")
    return honest or party.threshold(nodes)
