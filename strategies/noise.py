"""Which noise a run draws: exact whole numbers where it can, floating point elsewhere.

``--noise discrete`` is discrete Gaussian noise on a grid
(``privacy.mechanisms.discrete_gaussian``), the default where draws are not seeded, the library for
it is installed and there are at most ``MOST_COORDINATES`` of them. ``--noise gaussian`` is
floating-point Gaussian noise: seeded in a simulation, from the operating system otherwise, where
the report says why it was not the other. ``--noise distributed`` is discrete Gaussian noise that
the nodes add in shares, before they mask their sums (``privacy.mechanisms.distributed``): the
server sees no sum without it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmuration.privacy.mechanisms.discrete_gaussian import (
    MOST_COORDINATES,
    DiscreteNoise,
    installed,
)
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.secure_aggregation import party

if TYPE_CHECKING:
    from murmuration.server.config import RunConfig

NOISES = ("discrete", "gaussian", "distributed")
#: Strategies whose noise is Gaussian on sums of clipped vectors, and accounted as such.
_DISCRETE_FOR = ("uls", "dp-fedavg", "els", "adaptive", "aup", "label-moment")
_HOW = "pip install 'murmuration[secure]'"


@dataclass(frozen=True)
class NoiseChoice:
    """``kind`` of the noise, and for the report a sentence that a reader must know, or none.

    ``parties`` is of how many nodes' shares it is, where nodes add it.
    """

    kind: str
    warning: str = ""
    parties: int = 0

    def on(self, coordinates: int) -> DiscreteNoise | DistributedNoise | None:
        """Discrete noise on so many coordinates, if it is discrete."""
        if self.kind == "distributed":
            return DistributedNoise(coordinates, self.parties)
        return DiscreteNoise(coordinates) if self.kind == "discrete" else None


def check(config: "RunConfig") -> None:
    """ValueError, saying what to do, if discrete noise is asked for where there is none."""
    if config.honest_nodes and config.noise != "distributed":
        raise ValueError("--honest-nodes is for --noise distributed: whose shares the noise is")
    if config.noise not in ("discrete", "distributed"):
        return
    asked = f"--noise {config.noise}"
    if why := _no_form(config):
        raise ValueError(f"{asked} is not for {why}; leave it out, or use gaussian")
    if config.seed >= 0:
        raise ValueError(
            f"{asked} comes from the operating system and cannot be repeated: leave out "
            "--seed, or use --noise gaussian"
        )
    if not installed():
        raise ValueError(f"{asked} needs OpenDP: {_HOW}")
    if config.noise == "distributed":
        _check_distributed(config)


def _check_distributed(config: "RunConfig") -> None:
    """ValueError, saying what to do, if nodes could not add the noise."""
    if not config.secure_aggregation:
        raise ValueError(
            "--noise distributed is added by the nodes, and hides nothing where their sums arrive "
            "without masks: add --secure-aggregation"
        )
    if config.strategy == "aup" and config.adaptation != "quantile":
        raise ValueError(
            "--noise distributed is not for the sparse vector tests of --strategy aup, which ask "
            "the server for exact counts: use --adaptation quantile"
        )
    if config.strategy == "els" and not config.group_size:
        raise ValueError(
            "--noise distributed: choosing a group size would show the server exact counts of "
            "judgements; state --group-size"
        )
    if not config.test:
        raise ValueError(
            "--noise distributed: figures of users who are held out would be summed exactly before "
            "the server adds noise; name a --test instead"
        )


def choose(config: "RunConfig", dimension: int, *, seeded: bool, nodes: int) -> NoiseChoice:
    """The noise of a run with so many weights, on so many registered ``nodes``.

    Raises ValueError if what is asked for is too much.
    """
    if config.strategy == "local-label":  # coins of whole numbers, and nothing is added to a sum
        return NoiseChoice("randomized-response")
    if config.noise in ("discrete", "distributed"):
        if dimension > MOST_COORDINATES:
            raise ValueError(
                f"--noise {config.noise} is for at most {MOST_COORDINATES:,} weights, a second of "
                f"drawing a round; there are {dimension:,}: use --noise gaussian"
            )
        if config.noise == "distributed":
            return NoiseChoice("distributed", parties=_parties(config.honest_nodes, nodes))
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


def _parties(honest: int, nodes: int) -> int:
    """Of how many shares the noise is: as many as are honest, or as the protocol needs to stay."""
    if nodes < party.LEAST_PARTIES:
        raise ValueError(
            f"--noise distributed needs {party.LEAST_PARTIES} nodes, and there are {nodes}"
        )
    if honest > nodes:
        raise ValueError(f"--honest-nodes {honest} is more than the {nodes} nodes that there are")
    return honest or party.threshold(nodes)


def _no_form(config: "RunConfig") -> str:
    """What there is no discrete noise for, if this is it."""
    if config.strategy not in _DISCRETE_FOR:
        return f"--strategy {config.strategy}"
    if config.strategy == "aup" and config.variant != "centred":
        return f"--strategy aup --variant {config.variant}"
    return ""
