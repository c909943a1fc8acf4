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


def check_noise(config: Settings, strategy: Noisy) -> None:
    """ValueError, saying what to do, if discrete noise is asked for where there is none."""
    if config.honest_nodes and config.noise != "distributed":
        raise ValueError("--honest-nodes is for --noise distributed: whose shares the noise is")
    if config.noise not in ("discrete", "distributed"):
        return
    noise = f"--noise {config.noise}"
    if not strategy.adds(Mechanism.DISCRETE_GAUSSIAN, config.own):
        raise ValueError(
            f"{noise} is not for {strategy.as_set(config.own)}; leave it out, or use gaussian"
        )
    if config.seed >= 0:
        raise ValueError(
            f"{noise} comes from the operating system and cannot be repeated: leave out "
            "--seed, or use --noise gaussian"
        )
    if not installed():
        raise ValueError(f"{noise} needs OpenDP: {_WITH_OPENDP}")
    if config.noise == "distributed":
        _check_distributed(config, strategy)


def _check_distributed(config: Settings, strategy: Noisy) -> None:
    """ValueError, saying what to do, if nodes could not add the noise."""
    if not config.secure_aggregation:
        raise ValueError(
            "--noise distributed is added by the nodes, and hides nothing if their sums arrive "
            "without masks: add --secure-aggregation"
        )
    if not strategy.adds(Mechanism.SHARES, config.own):
        raise ValueError(
            f"--noise distributed is not for {strategy.as_set(config.own)}, where the server is "
            "told exact numbers: use --noise discrete"
        )
    if not config.test and config.heldout:
        raise ValueError(
            "--noise distributed: figures of users who are held out would be summed exactly before "
            "the server adds noise; name a --test instead"
        )


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
