"""Estimating a reward from labels that went through randomized response, on the server.

Four losses of a judgement, of the probabilities π that the model gives to its responses; s, q, r
and p as in ``preference.estimation.randomized_labels``:

- ``debiased``: −Σ q_j log π_j. Its expectation over the randomized labels is the log loss on true
  labels, so gradients are unbiased. For pairs it is 1/r times the loss of L eq. 4 and 5 and of A
  eq. 1.
- ``mle``: −Σ s_j log(r π_j + p/(K − 1)), the likelihood of what was stated (L eq. 3).
- ``square``: ½ Σ (π_j − q_j)². For pairs it is a quarter of the square in S eq. 6,
  (2σ(z) − 1 − c(ε) z̄)², in linear form; the ball bounds z, where the paper clips it.
- ``plain``: −Σ s_j log π_j, which takes stated labels for true ones. Biased towards zero; it is
  what training without knowledge of the randomization does, and only here for comparison.

The de-biased log loss is convex under the logistic link, because q enters linearly, but at
small ε it is *unbounded below*: q may point where no probability can follow. ``mle``, ``square``
and every loss under other links are not even convex. So all are minimised over the ball ‖θ‖ ≤ B
(Θ_B of the papers), where a minimum exists, or with a ridge; the answer is the minimum where the
loss is convex, and elsewhere a stationary point reached by descent from the starting point.

Processing privatized labels has no privacy cost: it is post-processing.

Legend: J judgements, W difference rows of each, K responses, D dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from murmuration.preference.estimation.ball_newton import Minimum, minimise
from murmuration.preference.estimation.randomized_labels import Link, RandomizedLabels, logistic

_CHUNK, _MANY = 16384, 64


@dataclass(frozen=True)
class Loss:
    """A loss of one judgement as a function of π: its value (…, J), and by each π_j its derivative
    and a curvature that is never negative, (…, J, K).

    The curvature is that of Gauss and Newton, or Fisher's: the exact Hessian where q or s is
    replaced by what the model expects. For ``debiased`` under the logistic link it is exact.
    """

    value: Callable[[RandomizedLabels, torch.Tensor], torch.Tensor]
    slope: Callable[[RandomizedLabels, torch.Tensor], torch.Tensor]
    curvature: Callable[[RandomizedLabels, torch.Tensor], torch.Tensor]


def _log(pi_JK: torch.Tensor) -> torch.Tensor:
    return torch.log(pi_JK.clamp_min(1e-300))  # padding has π = 0, and weight zero


def _over(a_JK: torch.Tensor | float, pi_JK: torch.Tensor) -> torch.Tensor:
    return a_JK / pi_JK.clamp_min(1e-300)


def _stated(labels: RandomizedLabels, pi_JK: torch.Tensor) -> torch.Tensor:
    """The probability of each response being stated; one for padding."""
    stated_JK = labels.contrast_J.unsqueeze(-1) * pi_JK + labels.noise_J.unsqueeze(-1)
    return torch.where(labels.present_JK, stated_JK, 1.0)


LOSSES: dict[str, Loss] = {
    "debiased": Loss(
        lambda labels, pi_JK: -(labels.unbiased_JK * _log(pi_JK)).sum(-1),
        lambda labels, pi_JK: -_over(labels.unbiased_JK, pi_JK),
        lambda labels, pi_JK: _over(labels.present_JK.double(), pi_JK),
    ),
    "mle": Loss(
        lambda labels, pi_JK: -(labels.stated_JK * _log(_stated(labels, pi_JK))).sum(-1),
        lambda labels, pi_JK: (
            -_over(labels.stated_JK, _stated(labels, pi_JK)) * labels.contrast_J.unsqueeze(-1)
        ),
        lambda labels, pi_JK: (
            _over(labels.present_JK.double(), _stated(labels, pi_JK))
            * labels.contrast_J.unsqueeze(-1) ** 2
        ),
    ),
    "square": Loss(
        lambda labels, pi_JK: 0.5 * ((pi_JK - labels.unbiased_JK) ** 2).sum(-1),
        lambda labels, pi_JK: pi_JK - labels.unbiased_JK,
        lambda labels, pi_JK: labels.present_JK.double(),
    ),
    "plain": Loss(
        lambda labels, pi_JK: -(labels.stated_JK * _log(pi_JK)).sum(-1),
        lambda labels, pi_JK: -_over(labels.stated_JK, pi_JK),
        lambda labels, pi_JK: _over(labels.present_JK.double(), pi_JK),
    ),
}


def fit(
    labels: RandomizedLabels,
    loss: str = "debiased",
    *,
    ball: float,
    ridge: float = 0.0,
    link: Link = logistic,
    sum_zero: bool = False,
    start_D: torch.Tensor | None = None,
    tilt_D: torch.Tensor | None = None,
    flat: float = 1e-10,
) -> Minimum:
    """θ in the ball ‖θ‖ ≤ ``ball`` that minimises Σ weight · loss + ridge/2 ‖θ‖² + ⟨tilt, θ⟩.

    Args:
        ball: B, positive; may be infinite where a ridge or enough information is there.
        ridge: added curvature, in units of the weighted sum. With information weights that is the
            scale of a log-likelihood, and the answer that under a prior N(0, I/ridge).
        sum_zero: only θ with ⟨1, θ⟩ = 0, as in the papers' Θ_B.
        start_D: where to start; by default at zero.
        tilt_D: a linear term, such as the noise of objective perturbation; by default none.
        flat: as in ``minimise``.

    Raises:
        ValueError: a ball or ridge that cannot be.
    """
    if sum_zero:  # x·θ is the same for these θ, and nothing pulls θ out of their plane
        x_JWD = labels.x_JWD - labels.x_JWD.mean(-1, keepdim=True)
        labels = replace(labels, x_JWD=x_JWD)
    weight_J, chosen = labels.weight_J, LOSSES[loss]

    def value(theta_D: torch.Tensor) -> torch.Tensor:
        pi_JK, _ = link(labels.logits(theta_D), labels.present_JW)
        result = (weight_J * chosen.value(labels, pi_JK)).sum(-1)
        return result if tilt_D is None else result + (tilt_D * theta_D).sum(-1)

    def expand(theta_D: torch.Tensor) -> tuple[torch.Tensor, Callable[[], torch.Tensor]]:
        pi_JK, slopes_JKW = link(labels.logits(theta_D), labels.present_JW)
        slopes_JKW = slopes_JKW * labels.present_JW.unsqueeze(-2)
        by_pi_JK = chosen.slope(labels, pi_JK)
        slopes_JW = (by_pi_JK.unsqueeze(-1) * slopes_JKW).sum(-2) * weight_J.unsqueeze(-1)
        gradient_D = _combine(labels.x_JWD, slopes_JW)

        def curvature() -> torch.Tensor:
            bent_JK = chosen.curvature(labels, pi_JK) * weight_J.unsqueeze(-1)
            return _curvature(labels.x_JWD, slopes_JKW, bent_JK)

        return gradient_D if tilt_D is None else gradient_D + tilt_D, curvature

    leading = labels.x_JWD.shape[:-3]
    if start_D is None:
        start_D = torch.zeros(*leading, labels.dimension, dtype=torch.float64)
    return minimise(value, expand, start_D, ball=ball, ridge=ridge, flat=flat)


def _combine(x_JWD: torch.Tensor, slopes_JW: torch.Tensor) -> torch.Tensor:
    rows_RD = x_JWD.flatten(-3, -2)
    return (slopes_JW.flatten(-2, -1).unsqueeze(-2) @ rows_RD).squeeze(-2)


def _curvature(
    x_JWD: torch.Tensor, slopes_JKW: torch.Tensor, bent_JK: torch.Tensor
) -> torch.Tensor:
    """Σ_j bent · ∇π_j ∇π_jᵀ in θ, (…, D, D)."""
    judgements, dimension = x_JWD.shape[-3], x_JWD.shape[-1]
    # Rounded, it costs half, and the steps it gives are no worse; in few dimensions nothing is won.
    kind = torch.float32 if dimension > _MANY else torch.float64
    sum_DD = torch.zeros(*x_JWD.shape[:-3], dimension, dimension, dtype=torch.float64)
    for low in range(0, judgements, _CHUNK):
        part = slice(low, low + _CHUNK)
        x_PWD, slopes_PKW = x_JWD[..., part, :, :].to(kind), slopes_JKW[..., part, :, :]
        bent_PKW = bent_JK[..., part, :].unsqueeze(-1) * slopes_PKW
        if x_JWD.shape[-2] == 1:
            bent_PWD = (slopes_PKW * bent_PKW).sum(-2, keepdim=True).to(kind) * x_PWD
        else:
            bent_PWD = (slopes_PKW.transpose(-1, -2) @ bent_PKW).to(kind) @ x_PWD
        sum_DD += bent_PWD.flatten(-3, -2).transpose(-1, -2) @ x_PWD.flatten(-3, -2)
    return sum_DD
