"""Models of a preference: how likely a judgement is, given the scores of what was shown.

A judgement over K responses enters as its W = K − 1 logits z_k = r(first) − r(other_k), where the
first is the preferred one (`preference.linear.examples`). A model gives the loss of a judgement and
the derivative of the loss by each logit, its slopes; a linear head's gradient is then the sum of
slopes times rows. Slopes are written out, not left to automatic differentiation: they are most of
the work of a round, and stable for logits of any size.

- `btl` (Bradley, Terry, Luce): P(first is preferred) = σ(z). Pairs.
- `thurstone`: P(first is preferred) = Φ(z), the Gaussian distribution function. Pairs.
- `plackett-luce`: P(j is the best) = exp(r_j) / Σ_i exp(r_i); a whole ranking is the product of
  such choices, each among what is left. For two responses it is `btl`.
  Of a ranking with ties each response is chosen among itself and all that is below its place. By
  Luce's axiom each of these chances is exact; their product is a composite likelihood, as a pairs'
  would be, and without ties the likelihood itself. What ties says nothing about each other; two
  responses that tie, or all of them, say nothing at all.
- `thumbs`: P(thumbs up) = σ(r + b), z = r, with an offset b of the user's own: see
  `preference.linear.offsets`. Not a judgement's loss but a user's; the model is given one user's
  judgements at a time, all that count.
- `pair_model(name, link)`: any link F of your own for pairs.

What is known of a judgement need not be one answer. For pairs y is the probability that the first
is preferred: 1, or ½ for a tie. For rankings y_k is 1, or ½ where other_k ties with the response
before it. For the best of K, 1 − y_k is the mass on other_k: a tie among
several divides it equally. The loss is then the mean over these answers, and nothing here asks
masses to lie in [0, 1]: unbiased estimates of labels behind randomized response do not.

Sources: Chowdhury et al. 2024 (label DP), §3 and §4.4; AUP-RLHF, App. B.4; Turner et al. 2020
(Luce's axiom); Varin, Reid and Firth 2011 (composite likelihoods).

Legend: J judgements, W logits of each, K = W + 1 responses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from murmuration.preference.choices import check_model
from murmuration.preference.data.rows import Kind
from murmuration.preference.linear import numba_gradients
from murmuration.preference.linear.offsets import VARIANCE, offset

#: The y of a logit that is not there: a judgement over fewer responses than its neighbours. No
#: number could stand for it, since an estimated mass may be any.
ABSENT = math.inf


_Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class PreferenceModel:
    """A loss over judgements and its derivative; both take logits (J, W) and y (J, W).

    Attributes:
        name: as in `MODELS`.
        residual: the slopes (J, W): derivatives of each judgement's loss by its logits. By tensor
            operations, whose last bits may depend on where in the tensor a judgement stands.
        loss: the loss of each judgement (J,).
        code: of its compiled slopes in `preference.linear.numba_gradients`; None where there are
            none.
        of_user: whether a judgement's slope depends on its user's other judgements: both functions
            then take those of one user and no others.
    """

    name: str
    residual: _Function
    loss: _Function
    code: int | None = None
    of_user: bool = False

    def each(self, logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
        """The slopes (J, W) float32, each judgement's by itself, to the last bit: they depend
        neither on the judgements beside it nor on the responses that it has not.

        Raises:
            ValueError: a model of users, not of judgements.
        """
        if self.of_user:
            raise ValueError(
                f"--model {self.name} is of a user's judgements, not of each by itself"
            )
        z_JW, y_JW = logits_JW.float().contiguous(), y_JW.float().contiguous()
        slope_JW = torch.zeros_like(z_JW)
        if self.code is not None:
            numba_gradients.residuals(z_JW.numpy(), y_JW.numpy(), self.code, slope_JW.numpy())
            return slope_JW
        for j, there in enumerate(torch.isfinite(y_JW).sum(1).tolist()):
            slope_JW[j, :there] = self.residual(z_JW[j : j + 1, :there], y_JW[j : j + 1, :there])
        return slope_JW


class Link(Protocol):
    """F of a pair model P(first is preferred) = F(z), by its logarithm, which is what stays exact.

    F is smooth and strictly increasing from 0 to 1, with F(z) = 1 − F(−z); where log F is concave
    the loss is convex. Both functions work element by element.
    """

    def log_cdf(self, z: torch.Tensor) -> torch.Tensor:
        """log F(z)."""
        ...

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """Its derivative F′(z) / F(z)."""
        ...


class Gaussian:
    """The standard normal distribution function, of the Thurstone model."""

    def log_cdf(self, z: torch.Tensor) -> torch.Tensor:
        """log Φ(z)."""
        return torch.special.log_ndtr(z)

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """The inverse Mills ratio; erfcx holds out where both density and Φ vanish."""
        return math.sqrt(2.0 / math.pi) / torch.special.erfcx(z * -math.sqrt(0.5))


def pair_model(name: str, link: Link, code: int | None = None) -> PreferenceModel:
    """The model of pairs with the loss −y·log F(z) − (1 − y)·log F(−z)."""

    def residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
        return (1.0 - y_J1) * link.log_slope(-logits_J1) - y_J1 * link.log_slope(logits_J1)

    def loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
        log_first, log_other = link.log_cdf(logits_J1), link.log_cdf(-logits_J1)
        return -(y_J1 * log_first + (1.0 - y_J1) * log_other).squeeze(-1)

    return PreferenceModel(name, residual, loss, code)


def _btl_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """σ(z) − y."""
    return torch.sigmoid(logits_J1).sub_(y_J1)


def _btl_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """−y·log σ(z) − (1 − y)·log σ(−z)."""
    log_first = torch.nn.functional.logsigmoid(logits_J1)
    return ((1.0 - y_J1) * logits_J1 - log_first).squeeze(-1)


def _thumbs_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """σ(z + b) − y, with the best b of all."""
    return torch.sigmoid(logits_J1 + _offset(logits_J1, y_J1)) - y_J1


def _thumbs_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """−log P(y) with the best b, and as much of its prior as makes the mean that of the user."""
    b = _offset(logits_J1, y_J1)
    prior = b**2 / (2.0 * VARIANCE * max(1, len(y_J1)))
    return _btl_loss(logits_J1 + b, y_J1) + prior


def _offset(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> float:
    z_J, y_J = (tensor.detach().double().reshape(-1).numpy() for tensor in (logits_J1, y_J1))
    return offset(z_J, y_J)


def _best_residual(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """Mass on each other response, less the model's probability that it is the best."""
    p_JW = torch.softmax(_scores(logits_JW, y_JW), dim=1)[:, 1:]
    return torch.where(torch.isinf(y_JW), 0.0, 1.0 - y_JW - p_JW)


def _best_loss(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """−Σ_j mass_j·log P(j is the best)."""
    mass_JW = torch.where(torch.isinf(y_JW), 0.0, 1.0 - y_JW)
    return torch.logsumexp(_scores(logits_JW, y_JW), dim=1) + (mass_JW * logits_JW).sum(dim=1)


def _ranked_pair_residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    """As of `btl`; two that tie say nothing."""
    return torch.where(y_J1 < 1.0, 0.0, _btl_residual(logits_J1, y_J1))


def _ranked_pair_loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
    return torch.where(y_J1[:, 0] < 1.0, 0.0, _btl_loss(logits_J1, y_J1))


def _ranking_residual(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
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


def _ranking_loss(logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
    """−Σ_j log P(j is the best of what is left at its place)."""
    scores_JK = _scores(logits_JW, y_JW)
    there_JK = torch.isfinite(scores_JK)
    among_JK, tied_J1 = _log_left(scores_JK), (y_JW < 1.0).any(dim=1, keepdim=True)
    among_JK = torch.where(tied_J1, _log_among(scores_JK, y_JW)[0], among_JK)
    return torch.where(there_JK, among_JK - scores_JK, 0.0).sum(dim=1)


def _log_among(scores_JK: torch.Tensor, y_JW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of rankings with ties: log Σ exp over a response and what is below its place, (J, K), and
    where its place begins, (J, K) int64."""
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


_BTL = PreferenceModel("btl", _btl_residual, _btl_loss, numba_gradients.BTL)
_THURSTONE = pair_model("thurstone", Gaussian(), numba_gradients.THURSTONE)
_PAIR = PreferenceModel("plackett-luce", _btl_residual, _btl_loss, numba_gradients.BTL)
_BEST = PreferenceModel("plackett-luce", _best_residual, _best_loss, numba_gradients.BEST)
_THUMBS = PreferenceModel(
    "thumbs", _thumbs_residual, _thumbs_loss, numba_gradients.THUMBS, of_user=True
)
_RANKED_PAIR = PreferenceModel(
    "plackett-luce", _ranked_pair_residual, _ranked_pair_loss, numba_gradients.RANKING
)
_RANKING = PreferenceModel(
    "plackett-luce", _ranking_residual, _ranking_loss, numba_gradients.RANKING
)


def preference_model(name: str, kind: Kind = "pairs", width: int = 1) -> PreferenceModel:
    """The model that `--model` names, for judgements of a kind and W = ``width``.

    Raises:
        InputError: an unknown name, or a model of pairs for judgements over more than two
            responses.
    """
    check_model(name, width, kind)
    if name == "thumbs":
        return _THUMBS
    if name == "plackett-luce":
        if kind == "ranking":
            return _RANKED_PAIR if width == 1 else _RANKING
        return _PAIR if width == 1 else _BEST
    return _BTL if name == "btl" else _THURSTONE
