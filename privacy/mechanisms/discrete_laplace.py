"""Discrete Laplace noise, exact in whole numbers and in its probabilities.

P(z) is proportional to exp(−|z|/t) on the whole numbers, for a scale t that is a fraction. Drawn by
Algorithm 2 of Canonne, Kamath and Steinke 2020 with whole numbers only: no logarithm, no rounding,
so nothing can be told from last digits (Mironov 2012). A sum of whole numbers that moves by at most
Δ in total, with noise of scale Δ/ε on each, is (ε, 0)-DP. Meant for a few thousand draws.

``LocalLaplace`` is the mechanism for one user's own short vector, before anybody sees it.

Legend: B users in a chunk, D dimensions, V numbers of one user.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ROUNDING

if TYPE_CHECKING:
    import torch


def draw(scale: Fraction, coins: np.random.Generator) -> int:
    """One draw of the discrete Laplace distribution of this ``scale``; ValueError if it is not > 0.

    ``coins`` gives uniform bytes; nothing else about it matters.
    """
    if scale <= 0:
        raise ValueError(f"the scale of noise must be positive, got {scale}")
    t, s = scale.numerator, scale.denominator
    while True:
        low = below(t, coins)
        if not flip_exp(low, t, coins):
            continue
        high = 0
        while flip_exp(1, 1, coins):
            high += 1
        size = (low + t * high) // s
        if below(2, coins):
            return size
        if size:  # zero has one sign only
            return -size


def std(scale: Fraction) -> float:
    """Standard deviation of the noise."""
    ratio = 1.0 / float(scale)
    return math.sqrt(2.0 * math.exp(-ratio)) / -math.expm1(-ratio)


def flip_exp(part: int, whole: int, coins: np.random.Generator) -> bool:
    """True with probability exp(−part/whole), exactly, for 0 ≤ part ≤ whole."""
    tries = 1
    while below(whole * tries, coins) < part:
        tries += 1
    return tries % 2 == 1


def below(bound: int, coins: np.random.Generator) -> int:
    """A uniform whole number from 0 to ``bound`` − 1, however large."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        result = int.from_bytes(coins.bytes(size), "little") & ((1 << bits) - 1) if bits else 0
        if result < bound:
            return result


@dataclass(frozen=True)
class AbsoluteClip:
    """Scales each user's vector into the ℓ1 ball of radius ``norm``.

    It is then rounded toward zero onto the grid of ``step``.

    Formal guarantee: for any input, finite or not, each user's term in ``clip_sum`` is a function
    of that user's vector alone, has ℓ1 norm at most ``norm`` and consists of whole steps, and the
    sum is exact, in any order, for as many users as ``grid.check_room`` admits.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.norm) and self.norm > 0.0):
            raise ValueError(f"the clip norm must be a positive finite number, got {self.norm}")
        _ = self.step  # refuses a norm that has no grid

    @property
    def step(self) -> float:
        """That of the grid on which sums are."""
        return grid.step_for(self.norm)

    def clip_sum(self, vectors_BD: "torch.Tensor") -> "torch.Tensor":
        """The sum of users' clipped vectors, float64, (D,); a user who is not finite is zero."""
        import torch

        vectors_BD = vectors_BD.double()
        vectors_BD = vectors_BD[torch.isfinite(vectors_BD).all(dim=1)]
        norm, length_B = self.norm * ROUNDING, vectors_BD.abs().sum(dim=1)
        finite_B = torch.isfinite(length_B)
        vectors_BD, length_B = vectors_BD[finite_B], length_B[finite_B]
        factor_B = norm / length_B.clamp(min=norm) / self.step
        return torch.trunc(vectors_BD * factor_B[:, None]).sum(dim=0) * self.step

    def is_valid(self, sum_D: np.ndarray, users: int) -> bool:
        """Return whether ``sum_D`` can be a sum of ``users`` clipped vectors: finite and short
        enough."""
        with np.errstate(over="ignore"):
            length = float(np.abs(sum_D.astype(np.float64)).sum())
        return math.isfinite(length) and length <= self.norm * users * (1.0 + 1e-5)


@dataclass(frozen=True)
class LocalLaplace:
    """The Laplace mechanism on one user's vector, clipped in ℓ1.

    Formal guarantee: ``randomized`` is (``epsilon``, 0)-locally DP for any two vectors, finite or
    not, and so for anything that one user can have judged (Dwork and Roth 2014). It holds as
    computed: vector, noise and its probabilities are exact. Whatever is computed from the result
    later costs nothing more.
    """

    clip: AbsoluteClip
    epsilon: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise ValueError(f"epsilon must be a positive finite number, got {self.epsilon}")

    @property
    def scale(self) -> Fraction:
        """That of the noise, in steps of the grid: of the longest way from one vector to another,
        over ε."""
        return 2 * math.ceil(self.clip.norm / self.clip.step) / Fraction(self.epsilon)

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each number."""
        return std(self.scale) * self.clip.step

    def randomized(self, vector_V: np.ndarray, coins: np.random.Generator) -> np.ndarray:
        """The vector, clipped and with noise, (V,) float64; one that is not finite is zero."""
        import torch

        clipped_V = self.clip.clip_sum(torch.from_numpy(np.array([vector_V], dtype=np.float64)))
        return _with_noise(clipped_V.numpy(), self.clip.step, self.scale, coins)

    def shrunk(self, randomized_V: np.ndarray) -> np.ndarray:
        """The best linear guess of a vector that is as long as it may be, in any direction: what is
        left of a randomized one is the less, the more of it is noise."""
        signal = self.clip.norm**2 / max(len(randomized_V), 1)
        return randomized_V * (signal / (signal + self.std**2))


def _with_noise(
    values_D: np.ndarray, step: float, scale: Fraction, coins: np.random.Generator
) -> np.ndarray:
    """Values on a grid with noise on each, float64: added as whole numbers, however large, so only
    what is released already is rounded."""
    steps = [int(whole) + draw(scale, coins) for whole in (values_D / step).tolist()]
    return np.array([float(whole * Fraction(step)) for whole in steps])
