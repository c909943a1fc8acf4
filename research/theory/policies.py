"""The choice of a response, from an estimate of the reward and its uncertainty.

A reward model scores φ·θ. The greedy policy takes the response with the best score. The pessimistic
one is the best under the worst θ that the data allow: where few judgements distinguish good from
bad, a high score may be noise, and privacy adds noise.

Source: Chowdhury et al. 2024 (label DP), eq. 9 (pessimistic) and §4.3 (greedy), after Zhu et al.
2023. Decisions:
- A confidence set is an ellipsoid {θ : ‖θ − θ̂‖_P ≤ r}. The paper also cuts it with the ball of
  known ‖θ‖; leaving that out makes the set larger, so what holds for all of it still holds.
- Eq. 9 takes the worst θ of the whole policy, not of each prompt. Among policies that may choose at
  random this is a convex problem, solved here by Frank–Wolfe steps with a certificate of how far
  the value can be from the best. `safest` is the simpler and more timid rule that takes the worst θ
  of each response by itself.
- Judgements compare responses to one prompt, so they say nothing about a reward that all of them
  share; pass features relative to a reference response where prompts differ much.

The sub-optimality gap of eq. 9's policy is at most 2·r·‖E φ(s, π*(s))‖_{P⁻¹} whenever θ* is in the
set: the policy only has to be sure about what the best one does.

Legend: S prompts, A responses to each, D dimensions.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """The ellipsoid of θ with ‖θ − ``theta_D``‖_P ≤ ``radius``, P = ``precision_DD``.

    Raises ValueError for shapes that disagree, a negative radius, or a precision that is not
    symmetric and positive definite: give it a ridge.
    """

    theta_D: np.ndarray
    precision_DD: np.ndarray
    radius: float

    def __post_init__(self) -> None:
        if self.theta_D.ndim != 1 or self.precision_DD.shape != 2 * self.theta_D.shape:
            raise ValueError(
                f"an estimate of shape {self.theta_D.shape} and a precision of shape "
                f"{self.precision_DD.shape} do not belong together"
            )
        if not (np.isfinite(self.radius) and self.radius >= 0.0):
            raise ValueError(f"a radius must be a number that is not negative, got {self.radius}")
        if not np.allclose(self.precision_DD, self.precision_DD.T):
            raise ValueError("the precision of a confidence set must be symmetric")
        try:
            _ = self._factor
        except np.linalg.LinAlgError:
            raise ValueError(
                "the precision of a confidence set must be positive definite; add a ridge"
            ) from None

    def contains(self, theta_D: np.ndarray) -> bool:
        """Is θ in it?"""
        return semi_norm(theta_D - self.theta_D, self.precision_DD) <= self.radius

    def lowest(self, phi_KD: np.ndarray) -> np.ndarray:
        """min over θ of φ·θ, for each row: φ·θ̂ − r‖φ‖_{P⁻¹}, (K,)."""
        spread_K = np.einsum("kd,kd->k", phi_KD, self._inverse_times(phi_KD))
        return phi_KD @ self.theta_D - self.radius * np.sqrt(np.maximum(spread_K, 0.0))

    def worst(self, phi_D: np.ndarray) -> np.ndarray:
        """The θ at which ``lowest`` is attained, (D,); θ̂ for φ = 0, where all are alike."""
        moved_D = self._inverse_times(phi_D[None])[0]
        length = float(np.sqrt(max(0.0, phi_D @ moved_D)))
        return self.theta_D - (self.radius / length) * moved_D if length else self.theta_D

    def whitened(self, phi_SAD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features and θ̂ in coordinates in which the set is a ball; products stay as they are."""
        root_DD = np.linalg.cholesky(self.precision_DD).T
        psi_KD = solve_triangular(root_DD, phi_SAD.reshape(-1, len(root_DD)).T, trans=1).T
        return psi_KD.reshape(phi_SAD.shape), root_DD @ self.theta_D

    @cached_property
    def _factor(self) -> tuple[np.ndarray, bool]:
        return cho_factor(self.precision_DD)

    def _inverse_times(self, phi_KD: np.ndarray) -> np.ndarray:
        return cho_solve(self._factor, phi_KD.T).T


@dataclass(frozen=True, eq=False)
class Pessimistic:
    """The solution of eq. 9.

    Attributes:
        chance_SA: the probability of each response to each prompt.
        value: its expected reward under the worst θ of the set.
        slack: no policy's value is more than this above it.
    """

    chance_SA: np.ndarray
    value: float
    slack: float


def semi_norm(vector_D: np.ndarray, matrix_DD: np.ndarray) -> float:
    """‖v‖_Σ = √(vᵀΣv) of a positive semi-definite Σ."""
    return float(np.sqrt(max(0.0, vector_D @ matrix_DD @ vector_D)))


def greedy(phi_SAD: np.ndarray, theta_D: np.ndarray) -> np.ndarray:
    """The response with the best score for each prompt, as probabilities (S, A)."""
    return _always(np.argmax(phi_SAD @ theta_D, axis=1), phi_SAD.shape[1])


def safest(phi_SAD: np.ndarray, known: ConfidenceSet) -> np.ndarray:
    """The response whose own lowest reward is best, for each prompt, (S, A)."""
    prompts, responses, dimension = phi_SAD.shape
    lowest_SA = known.lowest(phi_SAD.reshape(-1, dimension)).reshape(prompts, responses)
    return _always(np.argmax(lowest_SA, axis=1), responses)


def pessimistic(
    phi_SAD: np.ndarray, known: ConfidenceSet, *, steps: int = 1000, tolerance: float = 1e-3
) -> Pessimistic:
    """Eq. 9: the policy with the best expected reward under the worst θ of the set.

    Prompts count equally: they stand for the distribution they are drawn from. Steps end when the
    slack is below ``tolerance`` of the spread of scores, or after ``steps``.
    """
    # In coordinates in which the set is a ball around u: φ·θ = ψ·(Rθ), P = RᵀR.
    psi_SAD, u_D = known.whitened(phi_SAD)
    chance_SA = safest(phi_SAD, known)
    mean_D = _mean(psi_SAD, chance_SA)
    enough = tolerance * float(np.std(psi_SAD @ u_D)) + 1e-12
    # If all scores may be zero, no policy is surely better than that.
    most = 0.0 if np.linalg.norm(u_D) <= known.radius else np.inf
    slack = np.inf
    for _ in range(steps):
        length = float(np.linalg.norm(mean_D))
        worst_D = u_D - (known.radius / length) * mean_D if length else u_D
        answer_SA = greedy(psi_SAD, worst_D)
        towards_D = _mean(psi_SAD, answer_SA) - mean_D
        value = float(worst_D @ mean_D)
        slack = max(0.0, min(float(worst_D @ towards_D), most - value))
        if slack <= enough:
            break
        share = _best_share(mean_D, towards_D, float(u_D @ towards_D), known.radius)
        chance_SA = (1.0 - share) * chance_SA + share * answer_SA
        mean_D = mean_D + share * towards_D
    value = float(u_D @ mean_D - known.radius * np.linalg.norm(mean_D))
    return Pessimistic(chance_SA, value, slack)


def gap(phi_SAD: np.ndarray, chance_SA: np.ndarray, truth_D: np.ndarray) -> float:
    """Sub-optimality: the expected true reward that a policy misses, prompts counted equally."""
    reward_SA = phi_SAD @ truth_D
    return float(np.mean(reward_SA.max(axis=1) - (chance_SA * reward_SA).sum(axis=1)))


def _always(chosen_S: np.ndarray, responses: int) -> np.ndarray:
    return np.eye(responses)[chosen_S]


def _mean(phi_SAD: np.ndarray, chance_SA: np.ndarray) -> np.ndarray:
    return np.einsum("sad,sa->d", phi_SAD, chance_SA) / len(phi_SAD)


def _best_share(from_D: np.ndarray, towards_D: np.ndarray, gain: float, radius: float) -> float:
    """The share in [0, 1] that maximizes share·gain − radius·‖from + share·towards‖, which is
    concave.
    """
    squared = float(towards_D @ towards_D)
    if squared * radius**2 <= gain**2:
        return 1.0  # only ever rises: the way was chosen to rise at its start
    nearest = -float(from_D @ towards_D) / squared
    apart = max(0.0, float(from_D @ from_D) - squared * nearest**2)
    past = gain * np.sqrt(apart / (squared * (squared * radius**2 - gain**2)))
    return float(np.clip(nearest + past, 0.0, 1.0))
