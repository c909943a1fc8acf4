"""Minimising a likelihood whose labels are known only through their sum with the features.

With `btl` pairs and the best of K (`plackett-luce`, top-1) the gradient of the log loss is linear
in labels, with coefficients that do not depend on θ. So the loss of judgements whose labels are
hidden is that of the same judgements with any stand-in labels, plus an inner product ⟨c, θ⟩: it can
be minimised from public features and one vector.

Newton's method; each step by conjugate gradients, preconditioned with the curvature where the model
knows nothing (θ = 0), whose eigenvectors are computed once. Descent is along a line search.
Products with the features are taken in their own precision, sums in float64.

Legend: J judgements, W rows in each, R = J·W rows, U users, D dimensions.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.estimation.ball_newton import eigh_robust
from murmuration.preference.linear import numba_gradients
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.models import ABSENT, PreferenceModel, declared, preference_model

_MOST_STEPS, _MOST_PRODUCTS = 60, 200
_CHUNK_ROWS = 8192

#: From θ to a vector, both (D,) float64.
Product = Callable[[torch.Tensor], torch.Tensor]


def label_linear_model(name: str, examples: PairExamples) -> PreferenceModel:
    """The model ``--model`` names, for these judgements.

    Raises:
        InputError: with it the gradient is not linear in labels.
    """
    logistic = declared(name).logistic
    if examples.kind in ("ranking", "thumbs") or not logistic:
        what = f"--kind {examples.kind}" if logistic else f"--model {name}"
        raise InputError(
            f"{what}: labels enter this likelihood in more than their sum with the features, which "
            "is all that is released; use btl, or plackett-luce for the best of several"
        )
    return preference_model(name, examples.kind, examples.width)


class PublicLikelihood:
    """F(θ) = Σ_u weight_u · mean over user u's judgements of their log loss, and its derivatives.

    Args:
        examples: the judgements; their labels are not looked at, a stand-in says the first is best.
        model: from ``label_linear_model``.
        weight_U: of each user, ≥ 0; ones if not given.
    """

    def __init__(
        self,
        examples: PairExamples,
        model: PreferenceModel,
        weight_U: torch.Tensor | None = None,
    ) -> None:
        self.examples, self.model = examples, model
        self._x_RD, self._width = examples.x_RD, examples.width
        first_R = torch.where(torch.isinf(examples.y_R), ABSENT, 1.0).to(self._x_RD.dtype)
        self._first_JW = first_R.view(-1, self._width)
        counts_U = examples.counts_U
        self._user_J = torch.repeat_interleave(torch.arange(len(counts_U)), counts_U)
        self._counts_J = counts_U.double()[self._user_J]
        ones_U = torch.ones(len(counts_U), dtype=torch.float64)
        self.weight_U = ones_U if weight_U is None else weight_U.double()
        self._weight_J = self.weight_U[self._user_J] / self._counts_J

    def reweighted(self, weight_U: torch.Tensor) -> "PublicLikelihood":
        """The same judgements with other weights of users; ``axes``, if known, stay as they are."""
        result = PublicLikelihood(self.examples, self.model, weight_U)
        if "axes" in self.__dict__:
            result.__dict__["axes"] = self.axes
        return result

    def value(self, theta_D: torch.Tensor) -> float:
        """F(θ)."""
        losses_J = self.model.loss(self._logits(theta_D), self._first_JW)
        return float(self._weight_J @ losses_J.double())

    def gradient(self, theta_D: torch.Tensor) -> torch.Tensor:
        """∇F(θ), (D,) float64."""
        slopes_JW = self.model.residual(self._logits(theta_D), self._first_JW).double()
        return self._back(slopes_JW * self._weight_J[:, None])

    def hessian(self, theta_D: torch.Tensor) -> Product:
        """v ↦ ∇²F(θ) v."""
        # With the first as the best the slopes are the chances of the others, negated.
        p_JW = self.others(theta_D)

        def product(v_D: torch.Tensor) -> torch.Tensor:
            along_JW = self._logits(v_D).double()
            mean_J1 = (p_JW * along_JW).sum(1, keepdim=True)
            return self._back(p_JW * (along_JW - mean_J1) * self._weight_J[:, None])

        return product

    def others(self, theta_D: torch.Tensor) -> torch.Tensor:
        """The chance of each other response to be the best, (J, W) float64."""
        return -self.model.residual(self._logits(theta_D), self._first_JW).double()

    def spread_U(self, theta_D: torch.Tensor) -> torch.Tensor:
        """Root mean square length of each user's averaged gradient over labels drawn at θ, (U,).

        Of labels that are drawn from the model at θ the gradient there has mean zero, and
        judgements are independent. What the labels are is not looked at.
        """
        return spread(self.examples, self.others(theta_D))

    @cached_property
    def axes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Eigenvalues (D,) and vectors (D, D) of ∇²F(0)."""
        dimension, width = self._x_RD.shape[1], self._width
        p_JW = self.others(torch.zeros(dimension, dtype=torch.float64))
        gram_DD = torch.zeros(dimension, dimension, dtype=torch.float64)
        step = max(1, _CHUNK_ROWS // width)
        for low in range(0, len(p_JW), step):
            p, a_J = p_JW[low : low + step], self._weight_J[low : low + step]
            x_RD = self._x_RD[low * width : low * width + p.numel()]
            root_R = (p * a_J[:, None]).sqrt().reshape(-1, 1).to(x_RD.dtype)
            part_RD = x_RD * root_R
            gram_DD += (part_RD.T @ part_RD).double()
            mean_JD = torch.einsum("jw,jwd->jd", p.to(x_RD.dtype), x_RD.view(*p.shape, dimension))
            mean_JD *= a_J.sqrt()[:, None].to(x_RD.dtype)
            gram_DD -= (mean_JD.T @ mean_JD).double()
        bends_D, axes_DD = eigh_robust(gram_DD)
        return bends_D.clamp_min(0.0), axes_DD

    def _logits(self, theta_D: torch.Tensor) -> torch.Tensor:
        return (self._x_RD @ theta_D.to(self._x_RD.dtype)).view(-1, self._width)

    def _back(self, slopes_JW: torch.Tensor) -> torch.Tensor:
        return (slopes_JW.reshape(-1).to(self._x_RD.dtype) @ self._x_RD).double()


def spread(examples: PairExamples, p_JW: torch.Tensor) -> torch.Tensor:
    """Root mean square lengths of users' averaged gradients, (U,) float64; see ``spread_U``."""
    squared_R = examples.lengths_R**2
    own_J = _in_order(p_JW * squared_R.view(p_JW.shape))
    if examples.width == 1:
        own_J = own_J - (p_JW[:, 0] ** 2) * squared_R
    else:
        own_J = own_J - _mean_squares(examples, p_JW)
    counts_U = examples.counts_U
    user_J = torch.repeat_interleave(torch.arange(len(counts_U)), counts_U)
    total_U = torch.zeros(len(counts_U), dtype=torch.float64).index_add(0, user_J, own_J)
    return total_U.clamp_min(0.0).sqrt() / counts_U.clamp_min(1)


def reciprocal(length_U: torch.Tensor) -> torch.Tensor:
    """1 / length, and 0 where the length is 0: a user who was shown equal features has no
    information.
    """
    return torch.where(length_U > 0, 1.0 / length_U, 0.0)


def _mean_squares(examples: PairExamples, p_JW: torch.Tensor) -> torch.Tensor:
    """‖Σ_k p_k x_k‖² of each judgement, (J,)."""
    width, result = examples.width, []
    step = max(1, _CHUNK_ROWS // width)
    for low in range(0, len(p_JW), step):
        p = p_JW[low : low + step]
        x_RD = examples.x_RD[low * width : low * width + p.numel()].double()
        mean_JD = _in_order(p[:, :, None] * x_RD.view(*p.shape, -1))
        length_J = torch.empty(len(p), dtype=torch.float64)
        numba_gradients.lengths(mean_JD.numpy(), length_J.numpy())
        result.append(length_J**2)
    return torch.cat(result) if result else torch.zeros(0, dtype=torch.float64)


def _in_order(values_JW: torch.Tensor) -> torch.Tensor:
    """Sums over the second axis in a fixed order, so that no bit of a judgement's sum depends on
    the number of other judgements, as those of a tensor's reductions may.
    """
    total_J = torch.zeros_like(values_JW[:, 0])
    for w in range(values_JW.shape[1]):
        total_J += values_JW[:, w]
    return total_J


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of the search: the point, and the length of the gradient of the objective there."""

    theta_D: torch.Tensor
    residual: float


def minimise(
    loss: PublicLikelihood,
    linear_D: torch.Tensor,
    *,
    ridge: float,
    centre_D: torch.Tensor | None = None,
    start_D: torch.Tensor | None = None,
    tolerance: float = 1e-6,
) -> Solution:
    """argmin of F(θ) + ⟨linear, θ⟩ + ridge/2 ‖θ − centre‖²; the centre is zero if none is given.

    Stops where the gradient is at most ``tolerance`` long, or rounding allows no further descent.

    Raises:
        ValueError: no positive ridge; a noisy objective may have no minimum then.
    """
    if not (math.isfinite(ridge) and ridge > 0):
        raise ValueError(f"with noise there may be no minimum without a ridge, got {ridge}")
    theta_D = torch.zeros_like(linear_D) if start_D is None else start_D.clone()
    centre_D = torch.zeros_like(linear_D) if centre_D is None else centre_D

    def total(theta_D: torch.Tensor) -> float:
        away_D = theta_D - centre_D
        return loss.value(theta_D) + float(linear_D @ theta_D + 0.5 * ridge * (away_D @ away_D))

    def slope(theta_D: torch.Tensor) -> torch.Tensor:
        return loss.gradient(theta_D) + linear_D + ridge * (theta_D - centre_D)

    gradient_D, now = slope(theta_D), total(theta_D)
    for _ in range(_MOST_STEPS):
        length = float(gradient_D.norm())
        if length <= tolerance:
            break
        hessian = loss.hessian(theta_D)
        step_D = _conjugate(
            lambda v_D, hessian=hessian: hessian(v_D) + ridge * v_D,
            -gradient_D,
            _preconditioner(loss, ridge),
            min(0.1, 0.1 * length),
        )
        along, share = float(gradient_D @ step_D), 1.0
        for _ in range(30):
            then_D = theta_D + share * step_D
            after_D, then = slope(then_D), total(then_D)
            # Near the end values differ by rounding only, and the gradient decides.
            if then <= now + 1e-4 * share * along or float(after_D.norm()) < 0.5 * length:
                break
            share /= 2.0
        else:
            break
        theta_D, gradient_D, now = then_D, after_D, then
    return Solution(theta_D, float(gradient_D.norm()))


def _preconditioner(loss: PublicLikelihood, ridge: float) -> Product:
    bends_D, axes_DD = loss.axes
    inverse_D = 1.0 / (bends_D + ridge)
    return lambda v_D: axes_DD @ (inverse_D * (axes_DD.T @ v_D))


def _conjugate(
    product: Product, right_D: torch.Tensor, precondition: Product, share: float
) -> torch.Tensor:
    """The solution of product(v) = right, by conjugate gradients, to a share of its length."""
    v_D, rest_D = torch.zeros_like(right_D), right_D.clone()
    goal = share * float(right_D.norm())
    towards_D = precondition(rest_D)
    energy, direction_D = float(rest_D @ towards_D), towards_D.clone()
    for _ in range(_MOST_PRODUCTS):
        bent_D = product(direction_D)
        curvature = float(direction_D @ bent_D)
        if curvature <= 0:
            break
        length = energy / curvature
        v_D += length * direction_D
        rest_D -= length * bent_D
        if float(rest_D.norm()) <= goal:
            break
        towards_D = precondition(rest_D)
        before, energy = energy, float(rest_D @ towards_D)
        direction_D = towards_D + energy / before * direction_D
    return v_D


# Users' averaged rows: Σ slope·x over each user's judgements, divided by their number.
#
# Legend: J judgements, W rows in each, U users, B users in a chunk, D dimensions.

CHUNK_NUMBERS = 2**22


def averaged(
    examples: PairExamples, slopes_JW: torch.Tensor
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield chunks of users, in order, with their averaged rows (B, D) float64.

    Sums of products are float64, so they do not depend on how users are cut into chunks.
    """
    starts, width = examples.start_U.tolist(), examples.width
    users, first = len(starts) - 1, 0
    most = max(1, CHUNK_NUMBERS // (examples.dimension * width))
    while first < users:
        last = first + 1
        while last < users and starts[last + 1] - starts[first] <= most:
            last += 1
        judgements = slice(starts[first], starts[last])
        rows = slice(judgements.start * width, judgements.stop * width)
        counts_B = examples.start_U[first : last + 1].diff()
        user_R = torch.repeat_interleave(torch.arange(last - first), counts_B * width)
        weighted_RD = examples.x_RD[rows] * slopes_JW[judgements].double().reshape(-1, 1)
        sums_BD = torch.zeros(last - first, examples.dimension, dtype=torch.float64)
        sums_BD.index_add_(0, user_R, weighted_RD)
        yield slice(first, last), sums_BD / counts_B.clamp_min(1)[:, None]
        first = last
