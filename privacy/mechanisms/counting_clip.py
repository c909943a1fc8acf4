"""A bound on users' vectors that also counts who was within it.

Each user contributes, beside their clipped vector, a bit b = 1[norm ≤ C], sent as b − ½ so that it
moves the count by no more than ½ either way (Andrew et al. 2021).

Legend: B users in a chunk, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from murmuration.privacy.mechanisms.clipping import ROUNDING, UserClip, add_there, shortening
from murmuration.privacy.mechanisms.numba_jit import kernel
from murmuration.privacy.mechanisms.parallel import each_stretch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class CountingClip:
    """Clips users' vectors, less a common centre, to ``norm`` and counts who was within it.

    ``middle`` is subtracted from each user's bit: ½, or 0 for a plain count. ``centre_D`` (float64)
    is the centre, none for zero. Vectors are rounded onto the grid of ``UserClip``; bits need none.

    Formal guarantee: for any input, finite or not, each user adds to ``clip_sum`` a vector of ℓ2
    norm at most ``norm`` and a number of magnitude at most max(``middle``, 1 − ``middle``), both
    functions of that user's vector and the centre alone; a user who is not finite adds zero to
    both. The sums are exact.
    """

    norm: float
    middle: float = 0.5
    centre_D: torch.Tensor | None = None
    _centres: dict[torch.device, torch.Tensor] = field(default_factory=dict, init=False)

    def clip_sum(self, vectors_BD: torch.Tensor) -> torch.Tensor:
        """Over B users: the sum of clipped vectors and, last, of centred bits; float64 (D + 1,).

        Vectors that are on another device are clipped there; the sums are in this machine's memory.
        """
        import torch

        norm, step = self.norm * ROUNDING, UserClip(self.norm).step
        sum_D1 = np.zeros(vectors_BD.shape[1] + 1)
        if vectors_BD.device.type == "cpu":
            length_B = self._add_here(vectors_BD.numpy(), norm, step, sum_D1[:-1])
        else:
            centre_D = self._centre_on(vectors_BD.device)
            sum_D = vectors_BD.new_zeros(vectors_BD.shape[1], dtype=torch.float64)
            length_B = add_there(sum_D, vectors_BD, norm, step, centre_D).numpy()
            sum_D1[:-1] = sum_D.cpu().numpy()
        bits_B = (length_B <= self.norm) - self.middle
        sum_D1[-1] = bits_B[np.isfinite(length_B)].sum()
        return torch.from_numpy(sum_D1)

    def _add_here(
        self, vectors_BD: np.ndarray, norm: float, step: float, sum_D: np.ndarray
    ) -> np.ndarray:
        """Add the clipped rows to ``sum_D``; how long they were, (B,)."""
        centre_D = np.empty(0) if self.centre_D is None else self.centre_D.numpy()

        def squares(stretch: slice) -> np.ndarray:
            return _squares_apart(vectors_BD, centre_D, stretch.start, stretch.stop)

        def add(stretch: slice) -> None:
            _add_scaled_apart(
                vectors_BD, centre_D, factor_B, step, sum_D, stretch.start, stretch.stop
            )

        dimension = vectors_BD.shape[1]
        length_B = np.sqrt(sum(each_stretch(squares, dimension), np.zeros(len(vectors_BD))))
        factor_B = np.array([shortening(length, norm, step) for length in length_B])
        each_stretch(add, dimension)
        return length_B

    def _centre_on(self, device: torch.device) -> torch.Tensor | None:
        """The centre there, where it is brought once."""
        if self.centre_D is None:
            return None
        if device not in self._centres:
            self._centres[device] = self.centre_D.to(device)
        return self._centres[device]


@kernel(fastmath={"reassoc", "contract"})
def _squares_apart(
    vectors_BD: np.ndarray, centre_D: np.ndarray, start: int, stop: int
) -> np.ndarray:
    """Each row's squared distance from the centre, or without one (0,) its squared length, (B,), in
    these columns; the terms may be added in any order, which is the same whatever B."""
    square_B = np.zeros(len(vectors_BD))
    centred = len(centre_D) > 0
    for b in range(len(vectors_BD)):
        # Cut here: columns of a single row lie side by side, and those of several do not, which
        # would be another type, compiled to another order.
        vector_D, square = vectors_BD[b][start:stop], 0.0
        for d in range(len(vector_D)):
            apart = np.float64(vector_D[d]) - (centre_D[start + d] if centred else 0.0)
            square += apart * apart
        square_B[b] = square
    return square_B


@kernel()
def _add_scaled_apart(
    vectors_BD: np.ndarray,
    centre_D: np.ndarray,
    factor_B: np.ndarray,
    step: float,
    sum_D: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Add these columns of each row less the centre, if there is one, times its factor, in whole
    steps; leave out those of which that is not positive: they are not finite."""
    centred = len(centre_D) > 0
    for b in range(len(vectors_BD)):
        vector_D, factor = vectors_BD[b], factor_B[b]
        if factor > 0.0:
            for d in range(start, stop):
                apart = vector_D[d] - (centre_D[d] if centred else 0.0)
                sum_D[d] += np.trunc(factor * apart) * step
