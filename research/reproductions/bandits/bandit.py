"""A linear bandit with judges: what is learned from people's judgements, and what answering costs.

Rewards are φ·θ*, features have length one. People judge pairs of responses whose features favour
some directions over others (``skew``); the policy then answers prompts whose responses point
everywhere. With skew 0 everything is judged alike; with more, some directions are hardly ever
judged, and a high score there is a guess.

Every user gives one judgement, so a promise to users is one to labels, as in Chowdhury et al. 2024
("L"). Prompts and responses are public, labels are private: adjacency ``replace-labels``.

Legend: J judgements, S prompts, A responses to each, D dimensions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import chi2

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.objective_noise import LabelObjective
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.research.theory.policies import ConfidenceSet

#: ‖θ*‖, known to the estimators, as B of the papers.
BALL = 4.0
#: ‖φ(s, a) − φ(s, a′)‖ is at most this.
LENGTH = 2.0
_RIDGE = 0.1 / BALL**2


@dataclass(frozen=True, eq=False)
class Bandit:
    """Judged pairs, prompts to answer, and the truth."""

    x_JD: np.ndarray
    first_J: np.ndarray
    phi_SAD: np.ndarray
    truth_D: np.ndarray

    @classmethod
    def draw(
        cls,
        seed: int,
        *,
        users: int,
        dimension: int,
        skew: float = 0.0,
        matter: float = 0.0,
        prompts: int = 200,
        responses: int = 8,
    ) -> "Bandit":
        """Direction k of judged responses is k^−skew as wide as the first, and of θ* k^−matter."""
        generator = np.random.default_rng([2025, seed])

        def directions(*shape: int, scale_D: np.ndarray | float = 1.0) -> np.ndarray:
            drawn = generator.standard_normal((*shape, dimension)) * scale_D
            return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)

        order_D = np.arange(1.0, dimension + 1.0)
        truth_D = BALL * directions(scale_D=order_D**-matter)
        phi_SAD = directions(prompts, responses)
        pairs_J2D = directions(users, 2, scale_D=order_D**-skew)
        x_JD = pairs_J2D[:, 0] - pairs_J2D[:, 1]
        first_J = generator.random(users) < 1.0 / (1.0 + np.exp(-x_JD @ truth_D))
        return cls(x_JD, first_J, phi_SAD, truth_D)


@dataclass(frozen=True)
class Channel:
    """The protection of labels: ``none``, in the ``centre`` or ``local``; the last two at ε."""

    kind: str
    epsilon: float = math.inf
    delta: float = 1e-5


def learn(bandit: Bandit, channel: Channel, seed: int, failure: float = 0.05) -> ConfidenceSet:
    """θ̂ with the ellipsoid that should hold θ* with probability 1 − ``failure``.

    Centre: objective perturbation of the log loss (L Alg. 2, with the least noise). Local: the
    minimiser of the de-biased loss (L eq. 4). All in the ball of the papers' Θ_B.

    The constants of L's bounds are unknown, and their curvature γ is the worst in the ball. So the
    ellipsoid is the asymptotic one: P = H V⁻¹ H + λI, with the curvature H of the loss and the
    covariance V of its gradient at θ̂, randomized labels and noise included, and r² a quantile of
    χ² plus what λ adds between points of the ball, 4λB². It is made of public features and θ̂
    alone: it costs no privacy.
    """
    generator = np.random.default_rng([7, seed])
    x_JD, dimension = bandit.x_JD, bandit.x_JD.shape[1]
    x, flip, tilt_D, std = torch.from_numpy(x_JD), 0.0, None, 0.0
    first_J = bandit.first_J
    if channel.kind == "local":
        response = RandomizedResponse(channel.epsilon)
        flip = response.flip_probability
        words_J = generator.integers(0, 2**64, len(first_J), dtype=np.uint64)
        first_J = response.answer(first_J.astype(np.int64), words_J).astype(bool)
    elif channel.kind == "centre":
        std = LabelObjective(channel.epsilon, channel.delta, LENGTH).std
        tilt_D = torch.from_numpy(std * generator.standard_normal(dimension))
    contrast = 1.0 - 2.0 * flip
    labels = RandomizedLabels.of_pairs(x, torch.from_numpy(first_J), flip)
    result = fit(labels, "debiased", ball=BALL, tilt_D=tilt_D)
    theta_D = result.theta_D.numpy()
    chance_J = 1.0 / (1.0 + np.exp(-x_JD @ theta_D))
    told_J = contrast * chance_J + flip
    bend_DD = (x_JD * (chance_J * (1.0 - chance_J))[:, None]).T @ x_JD
    vary_DD = (x_JD * (told_J * (1.0 - told_J))[:, None]).T @ x_JD / contrast**2
    vary_DD += (std**2 + 1e-9) * np.eye(dimension)
    precision_DD = bend_DD @ np.linalg.solve(vary_DD, bend_DD) + _RIDGE * np.eye(dimension)
    radius = math.sqrt(float(chi2.isf(failure, dimension)) + 4.0 * _RIDGE * BALL**2)
    return ConfidenceSet(theta_D, (precision_DD + precision_DD.T) / 2.0, radius)
