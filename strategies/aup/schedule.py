"""The phases of AUP-RLHF: their users, step sizes, radii and rounds.

Source: AUP-RLHF, Algorithm 1 and Theorem 4. Users are partitioned once: phase i of k works on
n_i = n/2^(k+1−i) of them, each phase on twice as many as the one before, and a share of 2^−k of all
users is never used (with one phase, half of them). Here each user's phase is drawn independently,
so that adding or removing one user moves no other; n_i is the nominal number.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Phase:
    """Public constants of one phase: n_i, ñ_i, T_i, η_i and τ_i."""

    users: int
    cohort: int
    rounds: int
    rate: float
    radius: float


def doubling(users: int, phases: int) -> list[int]:
    """n_1, …, n_k of Algorithm 1.

    Raises:
        ValueError: not all phases have a user.
    """
    if phases < 1:
        raise ValueError(f"there must be at least one of the phases, got {phases}")
    sizes = [users // 2 ** (phases + 1 - i) for i in range(1, phases + 1)]
    if sizes[0] < 1:
        raise ValueError(f"{users} users cannot be halved {phases} times, as there are phases")
    return sizes


def phase_of(keys_N: np.ndarray, phases: int) -> np.ndarray:
    """The phase of each user, 1 … k, or 0 for the share that is never used; int64 (N,).

    ``keys_N`` are the users' random 64-bit names. A user's phase depends on their name alone.
    """
    # Phase k takes the names from ½ on, k − 1 those from ¼ to ½, and so on; 0 what is left.
    ends = np.array([2.0 ** -(phases + 1 - i) for i in range(1, phases + 1)])
    return np.searchsorted(ends, keys_N.astype(np.float64) / 2.0**64, side="right")


def theorem_4(
    users: int,
    judgements: int,
    dimension: int,
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    lipschitz: float,
    norm_bound: float,
) -> tuple[Phase, ...]:
    """The schedules of Theorem 4: k, ñ_i, η_i, τ_i as written, T_i up to its constant.

    k = ⌈log₂ log₂ mn⌉; ñ_i = n_i: all users of the phase, in every round; τ_i = 4L log(n_i d m e^ε
    T_i/δ)/√m; η_i = B/(4L) · min{√m n_i ε/(T_i √(d log²(m n_i d/δ))), T_i^−¾, √(n_i m)/T_i}. T_i is
    only given as O(m² n_i² + m n_i √d), which is hundreds of millions at ordinary sizes; here the
    constant is chosen so that they add up to ``rounds``.

    Args:
        users: n.
        judgements: m, of each user.
        dimension: d.
        epsilon: of the whole run.
        delta: of the whole run.
        rounds: Σ T_i.
        lipschitz: L, a bound on the features of a response.
        norm_bound: B, a bound on ‖θ‖.
    """
    n, m, d = users, judgements, dimension
    phases = max(1, math.ceil(math.log2(max(2.0, math.log2(max(4, m * n))))))
    sizes = doubling(n, phases)
    wanted = np.array([float(m * size) ** 2 + m * size * math.sqrt(d) for size in sizes])
    result = []
    for size, count in zip(sizes, _allocate(rounds, wanted), strict=True):
        log_terms = math.log(size * d * m) + epsilon + math.log(count / delta)
        rate = min(
            math.sqrt(m) * size * epsilon / (count * math.sqrt(d) * math.log(m * size * d / delta)),
            count**-0.75,
            math.sqrt(size * m) / count,
        )
        radius = 4.0 * lipschitz * log_terms / math.sqrt(m)
        result.append(Phase(size, size, count, rate * norm_bound / (4.0 * lipschitz), radius))
    return tuple(result)


def _allocate(rounds: int, wanted: np.ndarray) -> list[int]:
    """Whole numbers in proportion to ``wanted``, at least 1 each, that add up to ``rounds``."""
    if rounds < len(wanted):
        raise ValueError(
            f"--rounds {rounds} is less than one round for each of {len(wanted)} phases"
        )
    spare = rounds - len(wanted)
    ends = np.round(np.cumsum(wanted) / wanted.sum() * spare).astype(int)
    return (1 + np.diff(ends, prepend=0)).tolist()
