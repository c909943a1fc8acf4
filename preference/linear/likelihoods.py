"""Likelihoods of judgements under each preference model of ours, and their slopes.

Of what a model is, and what `residual` and `loss` mean, see `preference.models`, whose models are
made of these. Slopes are written out, not left to automatic differentiation: they are most of the
work of a round, and stable for logits of any size.

Legend: J judgements, W logits of each, K = W + 1 responses.
"""

import math

import torch

from murmuration.preference.linear.offsets import VARIANCE, offset


class Gaussian:
    """The standard normal distribution function, of the Thurstone model."""

    def log_cdf(self, z: torch.Tensor) -> torch.Tensor:
        """log Φ(z)."""
        return torch.special.log_ndtr(z)

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """The inverse Mills ratio; erfcx holds out where both density and Φ vanish."""
        return math.sqrt(2.0 / math.pi) / torch.special.erfcx(z * -math.sqrt(0.5))


def btl_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """σ(z) − y."""
    return torch.sigmoid(logits_J1).sub_(y_J1)


def btl_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """−y·log σ(z) − (1 − y)·log σ(−z)."""
    log_first = torch.nn.functional.logsigmoid(logits_J1)
    return ((1.0 - y_J1) * logits_J1 - log_first).squeeze(-1)


def thumbs_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """σ(z + b) − y, with the best b of all."""
    return torch.sigmoid(logits_J1 + _offset(logits_J1, y_J1)) - y_J1


def thumbs_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """−log P(y) with the best b, and as much of its prior as makes the mean that of the user."""
    b = _offset(logits_J1, y_J1)
    prior = b**2 / (2.0 * VARIANCE * max(1, len(y_J1)))
    return btl_loss(logits_J1 + b, y_J1) + prior


def _offset(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> float:
    z_J, y_J = (tensor.detach().double().reshape(-1).numpy() for tensor in (logits_J1, y_J1))
    return offset(z_J, y_J)


def best_residual(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """Mass on each other response, less the model's probability that it is the best."""
    p_JW = torch.softmax(_scores(logits_JW, y_JW), dim=1)[:, 1:]
    return torch.where(torch.isinf(y_JW), 0.0, 1.0 - y_JW - p_JW)


def best_loss(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """−Σ_j mass_j·log P(j is the best)."""
    mass_JW = torch.where(torch.isinf(y_JW), 0.0, 1.0 - y_JW)
    return torch.logsumexp(_scores(logits_JW, y_JW), dim=1) + (mass_JW * logits_JW).sum(dim=1)


def ranked_pair_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """The residual of `btl`; zero for a tie."""
    return torch.where(y_J1 < 1.0, 0.0, btl_residual(logits_J1, y_J1))


def ranked_pair_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """The loss of `btl`; zero for a tie."""
    return torch.where(y_J1[:, 0] < 1.0, 0.0, btl_loss(logits_J1, y_J1))


def ranking_residual(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """One less the model's chances that a response is chosen too early, summed over places."""
    scores_JK = _scores(logits_JW, y_JW)
    chosen_JK = torch.exp(scores_JK + torch.logcumsumexp(-_log_left(scores_JK), dim=1))
    tied_J1 = (y_JW < 1.0).any(dim=1, keepdim=True)  # without a look: it may be on a GPU
    chosen_JK = torch.where(tied_J1, _chosen_among_places(scores_JK, y_JW), chosen_JK)
    return torch.where(torch.isinf(y_JW), 0.0, 1.0 - chosen_JK[:, 1:])


def _chosen_among_places(scores_JK: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """The model's chances of each response, summed over the choices that it is among; with ties."""
    log_among_JK, begin_JK = _log_among(scores_JK, y_JW)
    own_JK = torch.exp(scores_JK - log_among_JK)
    # Of the choices of all responses before a place.
    before_JK = torch.nn.functional.pad(
        torch.logcumsumexp(-log_among_JK, dim=1), (1, 0), value=-math.inf
    ).gather(1, begin_JK)
    return own_JK + torch.exp(scores_JK + before_JK)


def ranking_loss(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """−Σ_j log P(j is the best of what is left at its place)."""
    scores_JK = _scores(logits_JW, y_JW)
    there_JK = torch.isfinite(scores_JK)
    among_JK, tied_J1 = _log_left(scores_JK), (y_JW < 1.0).any(dim=1, keepdim=True)
    among_JK = torch.where(tied_J1, _log_among(scores_JK, y_JW)[0], among_JK)
    return torch.where(there_JK, among_JK - scores_JK, 0.0).sum(dim=1)


def _log_among(scores_JK: torch.Tensor, y_JW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For rankings with ties: log Σ exp over a response and those below its place, (J, K), and the
    index where its place begins, (J, K) int64.
    """
    first_JK = torch.nn.functional.pad(~(y_JW < 1.0), (1, 0), value=True)
    at_JK = torch.arange(scores_JK.shape[1], device=scores_JK.device).expand(first_JK.shape)
    begin_JK = torch.where(first_JK, at_JK, 0).cummax(dim=1).values
    least_JK = torch.where(first_JK, at_JK, scores_JK.shape[1]).flip(1).cummin(dim=1).values.flip(1)
    next_JK = torch.nn.functional.pad(least_JK[:, 1:], (0, 1), value=scores_JK.shape[1])
    left_JK = torch.nn.functional.pad(_log_left(scores_JK), (0, 1), value=-math.inf)
    own_JK = torch.where(torch.isfinite(scores_JK), scores_JK, 0.0)  # of what is not there: any
    return torch.logaddexp(own_JK, left_JK.gather(1, next_JK)), begin_JK


def _scores(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """Rewards less that of the first, (J, K); −∞ for what is not there."""
    others_JW = torch.where(torch.isinf(y_JW), -math.inf, -logits_JW)
    return torch.nn.functional.pad(others_JW, (1, 0))


def _log_left(scores_JK: torch.Tensor) -> torch.Tensor:
    """log Σ exp over what is left at each place, (J, K)."""
    return torch.logcumsumexp(scores_JK.flip(1), dim=1).flip(1)
