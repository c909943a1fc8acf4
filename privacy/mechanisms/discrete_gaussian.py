"""Discrete Gaussian noise, exact in whole numbers, drawn by OpenDP from the operating system.

Noise in floating point is not quite the noise that is accounted for: which of the numbers of a
float64 can come out depends on what the noise was added to (Mironov 2012). Sums on a grid
(``privacy.mechanisms.grid``) are whole numbers, and so is this noise: nothing is rounded and the
result reveals nothing else (Canonne, Kamath and Steinke 2020). Its privacy loss is in
``privacy.accounting.grid_noise``.

The sampler (OpenDP's ``make_gaussian``) works with exact fractions, at about 100,000 coordinates a
second and core; several threads draw at once, as the library does not hold Python's lock. It cannot
be seeded, so it is for deployments, up to ``MOST_COORDINATES``.

Legend: D dimensions.
"""

import functools
import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Mechanism

#: What can be drawn in about a second on one core; beyond it rounds would wait for noise.
MOST_COORDINATES = 100_000
_PIECE = 5_000
#: Far inside 64 bits, where the library would cut off.
_LARGEST_SCALE = 2.0**55


def installed() -> bool:
    """True if the library that draws the noise is installed (the extra ``secure``)."""
    return importlib.util.find_spec("opendp") is not None


@dataclass(frozen=True)
class DiscreteNoise:
    """Discrete Gaussian noise on ``dimension`` coordinates instead of floating-point noise."""

    mechanism: ClassVar[Mechanism] = Mechanism.DISCRETE_GAUSSIAN
    dimension: int

    def charged(self, event: PoissonGaussian | MixtureGaussian) -> Event:
        """The cost of a release that would cost ``event`` with continuous noise."""
        return DiscretizedGaussian(event, self.dimension, grid.PRECISION)

    def add(
        self, sum_D: np.ndarray, std_D: np.ndarray, step_D: np.ndarray, source: Randomness
    ) -> np.ndarray:
        """``sum_D`` with noise, both on the grid; float64, shape (D,).

        ``std_D`` are the standard deviations, in the units of the sum, ``step_D`` the steps of each
        coordinate's grid.

        Raises:
            ValueError: the source is seeded, a value is not on its grid, or the number of
                coordinates is another than what is accounted for.
        """
        if source.seeded:
            raise ValueError("discrete noise comes from the operating system and has no seed")
        if sum_D.shape != (self.dimension,):
            raise ValueError(f"noise for {self.dimension} coordinates, not {sum_D.shape}")
        noisy_D = np.empty(self.dimension)
        # One scale for almost all coordinates; a count beside them has another.
        for std, step in sorted({*zip(std_D.tolist(), step_D.tolist(), strict=True)}):
            here_D = (std_D == std) & (step_D == step)
            steps = grid.to_whole(sum_D[here_D], step)
            noisy_D[here_D] = grid.from_whole(steps + draw(std / step, len(steps)), step)
        return noisy_D


def check_scale(scale: float) -> None:
    """ValueError for a scale that cannot be drawn."""
    if not 1.0 <= scale <= _LARGEST_SCALE:
        raise ValueError(f"noise of {scale:g} steps cannot be drawn")


def draw(scale: float, count: int) -> np.ndarray:
    """``count`` independent draws of the discrete Gaussian of this ``scale``, int64.

    Raises:
        ValueError: the scale is out of range.
        ImportError: OpenDP is not installed.
    """
    check_scale(scale)
    # Up, never down: a step of float64 more than what is accounted for.
    sample = _sampler(math.nextafter(scale, math.inf))
    pieces = [min(_PIECE, count - first) for first in range(0, count, _PIECE)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        result = list(threads.map(sample, pieces))
    return np.concatenate(result) if result else np.empty(0, dtype=np.int64)


@functools.lru_cache(maxsize=8)
def _sampler(scale: float) -> Callable[[int], np.ndarray]:
    dp: Any = importlib.import_module("opendp.prelude")  # optional, and slow to import
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement = dp.m.make_gaussian(*space, scale)

    def sample(count: int) -> np.ndarray:
        return np.array(measurement([0] * count), dtype=np.int64)

    return sample
