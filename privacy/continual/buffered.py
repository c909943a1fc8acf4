"""Noise that later rounds cancel in part, without secret sampling: buffered linear Toeplitz.

C has c_0 on its diagonal and c_k = c_0 Σ_i ω_i θ_i^(k−1) on the k-th below it, with a few scales ω
and decays θ (Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024). Round t gets the noise
w_t = z_t / c_0 − Σ_i ω_i s_i, where the buffers s_i ← θ_i s_i + w_t are all that is remembered of
the rounds before: as many vectors as there are decays, however long it reaches back.

**Who takes part.** Users are divided once into b groups by their own name alone, which take turns,
and of the group whose turn it is everybody takes part: at most k = ⌈T/b⌉ times, in rounds that are
at least b apart (McMahan, Xu and Zhang 2024). Nothing is random, and nothing has to stay secret.

**The guarantee.** The releases are C⁻¹ (C x + z), row by row, so they reveal what C x + z reveals:
one Gaussian release, spread over time, also where later sums depend on earlier releases (Denisov,
McMahan, Rush, Smith and Thakurta 2022, Theorem 2.1). A user who adds v_1 … v_k in rounds
p_1 < … < p_k, each of at most the clip norm, moves C x by a square of at most
Σ_ij ⟨C_p_i, C_p_j⟩⟨v_i, v_j⟩, where C_p are columns of C. As C has no negative entry, that is
largest if all v are equal.
**The worst rounds are 1, b + 1, 2b + 1, …** if no c_k is negative and none larger than the one
before (Kalinin and Lampert 2024, Theorem 2): with p < p′ ≤ T, ⟨C_p, C_p′⟩ = Σ_s c_s c_(s+p′−p) over
s = 0 … T − p′, which grows neither with p′ nor with p′ − p, and the i-th round of a user is at
least round (i − 1)b + 1, at least (j − i)b before the j-th; and further rounds only add. C is
scaled so that those worst columns add up to length 1. So the whole run costs one Gaussian release
with the noise multiplier of z.

**Adjacency.** All four. Who is in a round is a function of names, so the others stay where they
are when somebody comes or goes: then C x moves by at most 1 clip norm. If a user is replaced, it
moves by what the one added and the other adds, each at most 1 clip norm, whatever group the other
is in: by 2 at most, as for any Gaussian sum.

C is chosen by minimising ‖A C⁻¹‖_F (``toeplitz``) times that length, over scales and decays.

Legend: T rounds, I buffers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.events import BufferedGaussian, BufferedLater
from murmuration.privacy.continual.toeplitz import GRID, ToeplitzFactor, Workload
from murmuration.privacy.mechanisms.sampling import CyclicSampler, whole_groups
from murmuration.privacy.theorems import Mechanism, Participation

#: Buffers where nobody chose: more gain next to nothing in up to thousands of rounds.
BUFFERS = 3


@dataclass(frozen=True)
class BufferedToeplitz(ToeplitzFactor):
    """C for so many ``rounds``, ``separation`` b; ``first`` is c_0, and there is a buffer for each
    of ``scales`` ω and ``decays`` θ.

    Raises:
        ValueError: a coefficient is negative or larger than the one before, a number that cannot
            be, or what a user adds in all their rounds can be longer than 1.
    """

    participation: ClassVar[Participation] = Participation.TURNS
    mechanism: ClassVar[Mechanism] = Mechanism.BUFFERED
    first: float
    scales: tuple[float, ...]
    decays: tuple[float, ...]
    rounds: int
    separation: int

    def __post_init__(self) -> None:
        for number in (self.rounds, self.separation):
            if not (type(number) is int and number >= 1):
                raise ValueError(f"rounds and separation are whole numbers ≥ 1, got {number!r}")
        if not (self.scales and len(self.scales) == len(self.decays)):
            raise ValueError("a buffer has a scale and a decay")
        falling = all(s >= 0.0 for s in self.scales) and math.fsum(self.scales) <= 1.0
        if not (falling and all(0.0 <= decay <= 1.0 for decay in self.decays)):
            raise ValueError("a coefficient is negative, or larger than the one before")
        if not (self.first > 0.0 and self.sensitivity <= 1.0):
            raise ValueError("what a user adds in all their rounds is longer than 1")

    @classmethod
    def scaled(
        cls, scales_I: np.ndarray, decays_I: np.ndarray, rounds: int, separation: int
    ) -> "BufferedToeplitz":
        """The factor with these scales and decays whose worst rounds have length 1, up to a grid
        step."""
        row_T = _row_T(scales_I, decays_I, rounds)
        first = math.floor((1.0 - 1e-12) / _sensitivity(row_T, separation) / GRID) * GRID
        return cls(first, tuple(scales_I.tolist()), tuple(decays_I.tolist()), rounds, separation)

    @classmethod
    def chosen(cls, added: Workload, separation: int, buffers: int = BUFFERS) -> "BufferedToeplitz":
        """The factor that has the least error, as far as the search finds it; never more than that
        of independent noise."""
        from scipy import optimize  # slow to import, only for this

        rounds, powers_T = added.rounds, np.arange(added.rounds - 1)

        def log_error(free: np.ndarray) -> tuple[float, np.ndarray]:
            """The logarithm of sens(C)² dᵀ H d, and its slope, where c_0 = 1."""
            scales_I, decays_I = _constrained(free)
            row_T = _row_T(scales_I, decays_I, rounds)
            if (noise := added.log_noise(row_T)) is None:
                return 1e3, np.zeros(len(free))
            worst_T = _worst_T(row_T, separation)
            square = float(worst_T @ worst_T)
            slope_T = noise[1]
            for at in range(0, rounds, separation):
                slope_T[: rounds - at] += 2.0 * worst_T[at:] / square
            power_IT = decays_I[:, None] ** powers_T
            by_scale_I = power_IT @ slope_T[1:]
            falls_IT = powers_T[1:] * power_IT[:, :-1]
            by_decay_I = scales_I * (falls_IT @ slope_T[2:])
            slope = np.concatenate(
                [
                    scales_I * (by_scale_I - float(scales_I @ by_scale_I)),
                    decays_I * (1.0 - decays_I) * by_decay_I,
                ]
            )
            return math.log(square) + noise[0], slope

        # A start that falls about like the square root of prefix sums, c_k ≈ k^(−1/2).
        away_I = float(max(2, rounds)) ** -((np.arange(buffers) + 0.5) / buffers)
        share_I = 0.5 * np.sqrt(away_I) / np.sqrt(away_I).sum()
        start = np.concatenate([np.log(share_I / (1.0 - share_I.sum())), np.log(1 / away_I - 1)])
        tried = optimize.minimize(
            log_error, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}
        )
        independent = (np.zeros(buffers), np.zeros(buffers))
        candidates = [_constrained(tried.x), _constrained(start), independent]
        made = [cls.scaled(s_I, d_I, rounds, separation) for s_I, d_I in candidates]
        return min(made, key=added.error)

    @property
    def sensitivity(self) -> float:
        """The ℓ2 sensitivity to all rounds of one user together, for vectors of length 1."""
        return _sensitivity(self.row_T(self.rounds), self.separation)

    @property
    def groups(self) -> int:
        """Return b."""
        return self.separation

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return all fields, one after the other."""
        return (self.first, *self.scales, *self.decays, self.rounds, self.separation)

    def sampler(self, users: int, cohort: int) -> CyclicSampler:
        """Everybody in their turn."""
        groups = whole_groups(users, cohort)
        if groups != self.separation:
            raise ValueError(f"{groups} groups, and noise for {self.separation}")
        return CyclicSampler(1.0 / groups, groups)

    def row_T(self, rounds: int) -> np.ndarray:
        """Return c_0 … c_(T−1)."""
        return self.first * _row_T(np.array(self.scales), np.array(self.decays), rounds)

    @property
    def weights(self) -> tuple[float, ...]:
        """Return c_0 ω, one for each buffer."""
        return tuple(self.first * scale for scale in self.scales)

    def remember(self, before: Sequence[np.ndarray], noise_D: np.ndarray) -> list[np.ndarray]:
        """The buffers after a round."""
        if not before:
            return [noise_D] * len(self.decays)
        return [decay * s_D + noise_D for decay, s_D in zip(self.decays, before, strict=True)]

    def event(
        self, round_: int, probability: float, noise_multiplier: float, *, begins: bool
    ) -> BufferedGaussian | BufferedLater:
        """The whole run's, with the first; ValueError beyond the rounds that it is for."""
        del probability  # everybody of the group; fewer would not cost less
        if round_ > self.rounds:
            raise ValueError(f"round {round_} of a factor for {self.rounds}")
        kind = BufferedGaussian if begins else BufferedLater
        return kind(self.rounds, self.separation, noise_multiplier)


def _constrained(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales that add up to less than 1, and decays below 1, from any numbers."""
    scales_I, decays_I = np.split(free, 2)
    most = max(0.0, scales_I.max())
    exp_I = np.exp(scales_I - most)
    return exp_I / (np.exp(-most) + exp_I.sum()), 1.0 / (1.0 + np.exp(-decays_I))


def _row_T(scales_I: np.ndarray, decays_I: np.ndarray, rounds: int) -> np.ndarray:
    """The coefficients where c_0 = 1."""
    power_IT = decays_I[:, None] ** np.arange(rounds - 1)
    return np.append(1.0, scales_I @ power_IT)


def _worst_T(row_T: np.ndarray, separation: int) -> np.ndarray:
    """The sum of columns 1, b + 1, 2b + 1, …"""
    worst_T = np.zeros(len(row_T))
    for at in range(0, len(row_T), separation):
        worst_T[at:] += row_T[: len(row_T) - at]
    return worst_T


def _sensitivity(row_T: np.ndarray, separation: int) -> float:
    return float(np.linalg.norm(_worst_T(row_T, separation)))
