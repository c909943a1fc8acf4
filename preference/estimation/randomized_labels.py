"""Judgements whose labels went through randomized response, as tensors for the estimators.

The flip rate travels with each judgement and is never an option: a loss that corrects for another
flip rate than the true one is biased (Chowdhury et al. 2024, eq. 2, 4 and 12; "L" below). With K
responses the true best one is stated with probability 1 − p and each other one with p/(K − 1). Then

q_j = (s_j − p/(K − 1)) / r,    r = 1 − p − p/(K − 1),

has the true label as its expectation, where s_j is one for the stated response and zero elsewhere.
r, the *contrast*, is the probability of stating the true response less that of any given other; for
pairs it is (e^ε − 1)/(e^ε + 1), one over the c(ε) of Zhou et al. 2025 ("S"). The q_j add up to one
and some are negative.

Everything may have leading axes, for many data sets of one size at once.

Legend: J judgements, W difference rows of each (padded), K = W + 1 responses, D dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from murmuration.preference import models
from murmuration.preference.data.errors import InputError

#: From logits (…, J, W) and which rows are present to probabilities (…, J, K) of each response
#: being best, and their derivatives by the logits (…, J, K, W).
Link = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class RandomizedLabels:
    """The server's data: public differences, stated labels, and the parameters of their
    randomization.

    Attributes:
        x_JWD: float64, φ(first) − φ(other).
        stated_JK: float64, one for the response that is stated to be best (first, then the others
            in order), zero elsewhere; halves for a tie of two.
        flip_J: float64, the probability that the stated response is not the true one.
        options_J: int64, K of each judgement; what is beyond is padding.
        weight_J: float64, the weight of each judgement.
    """

    x_JWD: torch.Tensor
    stated_JK: torch.Tensor
    flip_J: torch.Tensor
    options_J: torch.Tensor
    weight_J: torch.Tensor

    def __post_init__(self) -> None:
        leading = self.x_JWD.shape[:-2]
        if self.stated_JK.shape != (*leading, self.x_JWD.shape[-2] + 1):
            raise ValueError(
                f"labels of shape {tuple(self.stated_JK.shape)} do not fit differences of shape "
                f"{tuple(self.x_JWD.shape)}: there must be one more response than rows"
            )
        for name in ("flip_J", "options_J", "weight_J"):
            if getattr(self, name).shape != leading:
                raise ValueError(f"{name} must have shape {tuple(leading)}")
        if not ((self.flip_J >= 0) & (self.contrast_J > 0)).all():
            raise ValueError(
                "a flip probability is negative, or so large that labels say nothing; below 1/2 "
                "is right for pairs, and below (K − 1)/K for K responses"
            )
        if not torch.isfinite(self.x_JWD).all():
            raise ValueError("differences of features must be finite")

    @classmethod
    def of_pairs(
        cls, x_JD: torch.Tensor, first_J: torch.Tensor, flip_J: torch.Tensor | float
    ) -> "RandomizedLabels":
        """Pairs: ``first_J`` is 1 where the first response is stated, 0 for the other, ½ a tie."""
        first_J = first_J.double()
        flip_J = torch.as_tensor(flip_J, dtype=torch.float64).expand(first_J.shape)
        return cls(
            x_JD.double().unsqueeze(-2),
            torch.stack([first_J, 1.0 - first_J], dim=-1),
            flip_J,
            torch.full(first_J.shape, 2),
            torch.ones(first_J.shape, dtype=torch.float64),
        )

    @classmethod
    def of_choices(
        cls,
        x_JWD: torch.Tensor,
        choice_J: torch.Tensor,
        flip_J: torch.Tensor | float,
        options_J: torch.Tensor | None = None,
    ) -> "RandomizedLabels":
        """Choices among K = W + 1 responses, or ``options_J``: 0 for the first, k for other k.

        Raises ValueError for a choice that was not among the options.
        """
        most = x_JWD.shape[-2] + 1
        flip_J = torch.as_tensor(flip_J, dtype=torch.float64).expand(choice_J.shape)
        options_J = torch.full(choice_J.shape, most) if options_J is None else options_J
        if not ((choice_J >= 0) & (choice_J < options_J)).all():
            raise ValueError("a stated response is not among those that were shown")
        stated_JK = torch.nn.functional.one_hot(choice_J.long(), most).double()
        return cls(
            x_JWD.double(),
            stated_JK,
            flip_J,
            options_J,
            torch.ones(choice_J.shape, dtype=torch.float64),
        )

    @classmethod
    def joined(cls, parts: Sequence["RandomizedLabels"]) -> "RandomizedLabels":
        """All judgements of several, in order."""
        return cls(
            torch.cat([part.x_JWD for part in parts], dim=-3),
            torch.cat([part.stated_JK for part in parts], dim=-2),
            torch.cat([part.flip_J for part in parts], dim=-1),
            torch.cat([part.options_J for part in parts], dim=-1),
            torch.cat([part.weight_J for part in parts], dim=-1),
        )

    @property
    def dimension(self) -> int:
        """D."""
        return self.x_JWD.shape[-1]

    def __len__(self) -> int:
        """J."""
        return self.x_JWD.shape[-3]

    @cached_property
    def contrast_J(self) -> torch.Tensor:
        """r: one for clean labels, zero for pure noise."""
        return 1.0 - self.flip_J * self.options_J / (self.options_J - 1)

    @cached_property
    def noise_J(self) -> torch.Tensor:
        """p/(K − 1): how often a given wrong response is stated."""
        return self.flip_J / (self.options_J - 1)

    @cached_property
    def present_JW(self) -> torch.Tensor:
        """The mask of rows that are not padding."""
        places_W = torch.arange(self.x_JWD.shape[-2])
        return places_W < (self.options_J - 1).unsqueeze(-1)

    @cached_property
    def present_JK(self) -> torch.Tensor:
        """The mask of responses that are not padding."""
        return torch.nn.functional.pad(self.present_JW, (1, 0), value=True)

    @cached_property
    def unbiased_JK(self) -> torch.Tensor:
        """q: labels whose expectation over the randomization is the true one. Zero for padding."""
        q_JK = (self.stated_JK - self.noise_J.unsqueeze(-1)) / self.contrast_J.unsqueeze(-1)
        return q_JK * self.present_JK

    def logits(self, theta_D: torch.Tensor) -> torch.Tensor:
        """The reward of the first response minus that of each other one, (…, J, W)."""
        return (self.x_JWD @ theta_D[..., None, :, None]).squeeze(-1)

    def weighted_by_information(self) -> "RandomizedLabels":
        """Each judgement counts r² as much: what its label tells, near θ = 0, over a clean one's.

        The variance of q is proportional to 1/r² where all responses are equally likely, and the
        best estimating equation divides by it. With equal weights the labels of users with many
        judgements and a shared budget, which are almost pure noise, would drown the others.
        """
        return replace(self, weight_J=self.weight_J * self.contrast_J**2)

    def head(self, count: int) -> "RandomizedLabels":
        """The first ``count`` judgements."""
        return RandomizedLabels(
            self.x_JWD[..., :count, :, :],
            self.stated_JK[..., :count, :],
            self.flip_J[..., :count],
            self.options_J[..., :count],
            self.weight_J[..., :count],
        )


def logistic(
    logits_JW: torch.Tensor, present_JW: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bradley–Terry–Luce for pairs, Plackett–Luce top-1 for more responses."""
    if logits_JW.shape[-1] == 1:  # the same, several times as fast
        pi_JK = torch.sigmoid(torch.cat([logits_JW, -logits_JW], dim=-1)).clamp_min(_TINY)
        slope_J1 = pi_JK[..., :1] * pi_JK[..., 1:]
        return pi_JK, torch.stack([slope_J1, -slope_J1], dim=-2)
    utilities_JK = torch.nn.functional.pad(-logits_JW, (1, 0))
    present_JK = torch.nn.functional.pad(present_JW, (1, 0), value=True)
    pi_JK = torch.softmax(utilities_JK.masked_fill(~present_JK, -torch.inf), dim=-1)
    pi_JK = pi_JK.clamp_min(_TINY) * present_JK
    same_KW = torch.eye(pi_JK.shape[-1], dtype=pi_JK.dtype)[:, 1:]
    slopes_JKW = pi_JK.unsqueeze(-1) * (pi_JK[..., None, 1:] - same_KW)
    return pi_JK, slopes_JKW


def of_pairs(link: models.Link) -> Link:
    """Any model of pairs: P(first is best) = F(z)."""

    def probabilities(
        logits_JW: torch.Tensor, present_JW: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if logits_JW.shape[-1] != 1:
            raise ValueError("this model is for pairs, not for more responses; use plackett-luce")
        del present_JW
        log_first_J1 = link.log_cdf(logits_JW)
        pi_JK = torch.exp(torch.cat([log_first_J1, link.log_cdf(-logits_JW)], dim=-1))
        slope_J1 = torch.exp(log_first_J1) * link.log_slope(logits_JW)
        return pi_JK.clamp_min(_TINY), torch.stack([slope_J1, -slope_J1], dim=-2)

    return probabilities


def link_of(model: str) -> Link:
    """The link of a preference model, by its name.

    Raises:
        InputError: it is declared with no link.
    """
    loss = models.declared(model)
    if loss.logistic:
        return logistic
    if loss.link is None:
        raise InputError(f"--model {model}: labels that are randomized need a model with a link")
    return of_pairs(loss.link())
