"""Gaussian noise that the nodes add, each a share, before anybody has seen their sum.

Source: Kairouz, Liu and Steinke 2021 (distributed discrete Gaussian under secure aggregation). Each
node draws discrete Gaussian noise of variance s²/h in whole numbers and adds it to its own sum,
which leaves under masks (``privacy.secure_aggregation.party``). So the server, which opens the
masks, sees a sum with the noise of all nodes that are in it. With ``parties`` h or more honest ones
among them its scale is s or more (``privacy.accounting.grid_noise`` has what a sum of shares costs
beyond one draw).

Two figures follow, and neither is the other:

- *What is published* costs the event of the plan, sampled with probability q, as with noise of the
  server's own.
- *What the server sees* costs the same noise with q = 1 (``against_server``): it draws the cohort,
  so it knows who is in a round. For that every registered node adds its share in every round, asked
  or not; otherwise the noise would depend on the sampling. Nodes' own sampling of examples (els)
  stays unknown to it, and still amplifies.

A share alone proves nothing: what holds is what ``parties`` honest nodes add. Noise that others add
beyond it, or in place of honest noise, is independent of the honest nodes' and changes nothing.

Legend: D dimensions.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.mechanisms import discrete_gaussian, grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Mechanism


@dataclass(frozen=True)
class DistributedNoise:
    """Noise on ``dimension`` coordinates of which each of ``parties`` nodes adds an equal share.

    In the place of ``discrete.DiscreteNoise``.
    """

    mechanism: ClassVar[Mechanism] = Mechanism.SHARES
    dimension: int
    parties: int

    def __post_init__(self) -> None:
        if self.parties < 2:
            raise ValueError(f"noise in shares is of at least two parties, got {self.parties}")

    def charged(self, event: PoissonGaussian | MixtureGaussian) -> Event:
        """The cost of a release that would cost ``event`` with continuous noise."""
        return DiscretizedGaussian(event, self.dimension, grid.PRECISION, self.parties)

    def add(
        self, sum_D: np.ndarray, std_D: np.ndarray, step_D: np.ndarray, source: Randomness
    ) -> np.ndarray:
        """``sum_D`` as it is, on the grid: the nodes added the noise before it was known.

        Raises:
            ValueError: as ``DiscreteNoise.add``.
        """
        del std_D
        if source.seeded:
            raise ValueError("noise in shares comes from the operating system and has no seed")
        if sum_D.shape != (self.dimension,):
            raise ValueError(f"noise for {self.dimension} coordinates, not {sum_D.shape}")
        for step in sorted(set(step_D.tolist())):
            grid.to_whole(sum_D[step_D == step], step)
        return sum_D


@dataclass(frozen=True)
class NoisySum:
    """One of the sums that nodes add noise to.

    ``std`` is that of the noise of all ``parties`` together, ``step`` the step of its grid, both in
    the units of the sum; ``length`` is how far one user's part can move it.
    """

    std: float
    step: float
    length: float

    def share(self, parties: int) -> float:
        """Standard deviation of one node's share; never less than its part of the whole."""
        return self.std / math.sqrt(parties) * (1.0 + 2.0**-50)


@dataclass(frozen=True)
class NodeNoise:
    """The noise of a round that nodes add in shares: on which ``sums``, and how many shares it is.

    A sum of everybody's that is not to be had, because too few nodes stayed, is a zero that the
    server adds noise to (``on_nothing``).
    """

    parties: int
    sums: Mapping[str, NoisySum]

    @property
    def shares(self) -> dict[str, float]:
        """Standard deviation of one node's share of the noise on each sum, in its units."""
        return {name: noisy.share(self.parties) for name, noisy in self.sums.items()}

    @property
    def noise_multiplier(self) -> float:
        """Return the noise of all sums together, in units of the most that one user moves them."""
        if not all(noisy.std > 0.0 for noisy in self.sums.values()):
            return 0.0
        return 1.0 / math.hypot(*(noisy.length / noisy.std for noisy in self.sums.values()))

    def on_nothing(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """The whole noise on sums of nobody, drawn here; float64, on the grid."""
        result = {}
        for name, noisy in self.sums.items():
            steps = discrete_gaussian.draw(noisy.std / noisy.step, int(np.prod(shapes[name])))
            result[name] = grid.from_whole(steps, noisy.step).reshape(shapes[name])
        return result

    def in_users(self, nodes: int, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """A bound on the length of the noise of these nodes, in users' clip norms, except with
        probability e^−50."""
        shares = math.sqrt(max(nodes, self.parties) / self.parties)
        return math.ceil(
            max(
                noisy.std * shares * (math.sqrt(np.prod(shapes[name])) + 10.0) / noisy.length
                for name, noisy in self.sums.items()
            )
        )


def node_noise(
    noise: "DistributedNoise | discrete_gaussian.DiscreteNoise | None", sums: Mapping[str, NoisySum]
) -> NodeNoise | None:
    """The noise that nodes add to these sums; None if they add none."""
    return NodeNoise(noise.parties, sums) if isinstance(noise, DistributedNoise) else None


def check_shares(steps: Mapping[str, float], shares: Mapping[str, float]) -> None:
    """ValueError where a share of noise on sums of these grids is missing, or cannot be drawn."""
    if set(steps) != set(shares):
        raise ValueError(f"noise is for {sorted(shares)}, and the sums are {sorted(steps)}")
    for name, share in shares.items():
        discrete_gaussian.check_scale(share / steps[name])


def with_share(
    whole: Mapping[str, np.ndarray], steps: Mapping[str, float], shares: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """Sums in whole ``steps`` (int64) with one node's share of the noise on each, by name.

    ``shares`` are standard deviations in the units of the sums.

    Raises:
        ValueError: as ``check_shares``.
    """
    check_shares(steps, shares)
    result = {}
    for name, number_L in whole.items():
        drawn_L = discrete_gaussian.draw(shares[name] / steps[name], number_L.size)
        result[name] = number_L + drawn_L.reshape(number_L.shape)
    return result


def against_server(
    charges: Mapping[Event, int], honest: int | None = None
) -> dict[Event, int] | None:
    """The events of a run as the server sees it; None where noise is not in shares.

    ``honest`` is how many nodes at least add their shares honestly and stay; None: as many as the
    noise is made for. More than those count for nothing.
    """
    result: dict[Event, int] = {}
    for event, count in charges.items():
        seen = _seen(event, honest)
        if seen is None:
            return None
        result[seen] = result.get(seen, 0) + count
    return result


def _seen(event: Event, honest: int | None) -> Event | None:
    if not isinstance(event, DiscretizedGaussian) or event.parties < 2:
        return None
    there = event.parties if honest is None else min(honest, event.parties)
    if there < 1:
        return None
    less = math.nextafter(math.sqrt(there / event.parties), 0.0) if there < event.parties else 1.0
    noise = event.event.noise_multiplier * less
    changed: dict[str, float] = {"noise_multiplier": noise}
    if isinstance(event.event, PoissonGaussian):
        changed["probability"] = 1.0  # the server drew this sample
    return dataclasses.replace(
        event, event=dataclasses.replace(event.event, **changed), parties=there
    )
