"""One pass of projected stochastic gradients over randomized labels: SGD-RR and SGD-KRR.

Source: Chowdhury et al. 2024 ("L"), Algorithm 1 for pairs and §4.4 for choices among K. Each
judgement is used once, in the order in which it stands, by

    θ ← Π(θ − η_t · r · (gradient of the unbiased log loss)),

where r is the contrast of ``preference.estimation.randomized_labels``: that product is L's ĝ_t, so
the gradient is r times that on the true label in expectation. Π projects onto the ball ‖θ‖ ≤ B, and
first onto ⟨1, θ⟩ = 0 where that is asked for.

Steps: the default falls with 1/√t and the answer is an average of the path that forgets its
beginning (polynomial decay, Shamir & Zhang 2013, η = 3), at any time and without knowing n. Its
scale is a quarter of B over the root mean square of the first judgements' gradients at θ = 0. L's
theorem asks for 1/(γ_ε κ t), whose γ is exponentially small in the ball. L's simulations take
η = 0.1 throughout and the last iterate (``PUBLISHED``): its error does not go to zero, because the
noise of the last steps never averages out.

Legend: J judgements, W difference rows of each, D dimensions; leading axes as in ``randomized``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from murmuration.preference.estimation.randomized_labels import RandomizedLabels

_FORGETTING = 3.0
#: Of B over the gradients' size. B is larger than ‖θ*‖, often twice as large; chosen on synthetic
#: judgements in 3 to 10 dimensions, where a half and an eighth do worse.
_SHARE = 0.25
#: How many judgements at the beginning set the scale of the steps.
_GAUGED = 256


@dataclass(frozen=True)
class Steps:
    """Step t has length ``rate`` · t^−``power``; 0 as rate stands for the scale of the gradients.

    Raises ValueError for a rate or power that cannot be.
    """

    rate: float = 0.0
    power: float = 0.5
    averaging: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise ValueError(f"a step size must not be negative, got {self.rate}")
        if not 0.0 <= self.power <= 1.0:
            raise ValueError(f"steps must fall with a power of t between 0 and 1, not {self.power}")


DECAYING = Steps()
#: Steps of 0.1 and the last iterate, as in the simulations of L.
PUBLISHED = Steps(rate=0.1, power=0.0, averaging=False)


def one_pass(
    labels: RandomizedLabels,
    *,
    ball: float,
    steps: Steps = DECAYING,
    sum_zero: bool = False,
    at: Sequence[int] | None = None,
) -> torch.Tensor:
    """The estimate after all judgements, (…, D) float64; or after each of ``at``, (len(at), …, D).

    Weights multiply gradients, as r does; ``at`` holds numbers of judgements, ascending.

    Raises:
        ValueError: the ball is not positive and finite.
    """
    if not 0 < ball < math.inf:
        raise ValueError(f"the ball must be positive and finite, got {ball}")
    wanted = list(at) if at is not None else [len(labels)]
    scale = labels.contrast_J * labels.weight_J
    x_JWPD, q_JWP, scale_JP, present_JWP = _in_order(labels, scale)
    rate_P = (
        steps.rate if steps.rate else _SHARE * ball / _gauge(x_JWPD, q_JWP, scale_JP, present_JWP)
    )
    theta_PD = np.zeros(x_JWPD.shape[2:])
    mean_PD, kept = theta_PD.copy(), []
    for t in range(1, wanted[-1] + 1):
        x_WPD = x_JWPD[t - 1]
        utility_WP = np.exp(-np.einsum("wpd,pd->wp", x_WPD, theta_PD).clip(-700, 700))
        utility_WP *= present_JWP[t - 1]
        pi_WP = utility_WP / (1.0 + utility_WP.sum(0))
        # The slope by z_k, on the other response k, is q_k − π_k.
        pull_WP = (q_JWP[t - 1] - pi_WP) * (scale_JP[t - 1] * rate_P / t**steps.power)
        theta_PD = theta_PD - np.einsum("wp,wpd->pd", pull_WP, x_WPD)
        if sum_zero:
            theta_PD -= theta_PD.mean(-1, keepdims=True)
        length_P = np.sqrt(np.einsum("pd,pd->p", theta_PD, theta_PD))
        theta_PD *= np.minimum(1.0, ball / np.maximum(length_P, 1e-300))[:, None]
        if steps.averaging:
            share = (1.0 + _FORGETTING) / (t + _FORGETTING)
            mean_PD += share * (theta_PD - mean_PD)
        if t == wanted[len(kept)]:
            kept.append((mean_PD if steps.averaging else theta_PD).copy())
    shape = (*labels.x_JWD.shape[:-3], labels.dimension)
    result = torch.from_numpy(np.stack(kept)).reshape(len(kept), *shape)
    return result if at is not None else result[0]


def _in_order(labels: RandomizedLabels, scale: torch.Tensor) -> tuple[np.ndarray, ...]:
    """The labels as arrays whose first axis is time, with one axis P for all leading ones."""
    judgements, rows, dimension = labels.x_JWD.shape[-3:]
    x_PJWD = labels.x_JWD.reshape(-1, judgements, rows, dimension)
    q_PJW = labels.unbiased_JK[..., 1:].reshape(-1, judgements, rows)
    present_PJW = labels.present_JW.expand(labels.x_JWD.shape[:-1]).reshape(q_PJW.shape)
    return (
        x_PJWD.permute(1, 2, 0, 3).contiguous().numpy(),
        q_PJW.permute(1, 2, 0).contiguous().numpy(),
        scale.reshape(-1, judgements).T.contiguous().numpy(),
        present_PJW.permute(1, 2, 0).contiguous().numpy(),
    )


def _gauge(
    x_JWPD: np.ndarray, q_JWP: np.ndarray, scale_JP: np.ndarray, present_JWP: np.ndarray
) -> np.ndarray:
    """Root mean square, for each of P, of the first gradients where all options are as likely."""
    x_JWPD, present_JWP = x_JWPD[:_GAUGED], present_JWP[:_GAUGED]
    pi_JWP = present_JWP / (1.0 + present_JWP.sum(1, keepdims=True))
    pull_JWP = (q_JWP[:_GAUGED] - pi_JWP) * scale_JP[:_GAUGED, None]
    first_JPD = np.einsum("jwp,jwpd->jpd", pull_JWP, x_JWPD)
    return np.sqrt((first_JPD**2).sum(-1).mean(0)).clip(1e-300)
