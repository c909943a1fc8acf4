"""The accuracy of a model on judgements, from its logits.

Taken on differences of what a model says, where two equal texts tie exactly.

Legend: R rows of examples, U users, J judgements, W others in each, K = W + 1 responses, D numbers
of a model.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from murmuration.preference.choices import Kind

_SAME = 1e-4  # shares of an answer closer than this are equal: y is float32


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How often the preferred response scores higher; ties among the judgements are left out.

    Attributes:
        pooled: mean over judgements; NaN without any.
        by_user: mean over users of each user's mean; NaN without any.
        users: users with a judgement that is not a tie.
        judgements: judgements that are not ties.
        chance: the accuracy of guessing, as a mean over judgements; NaN without any.
        loss: of causal language models, for which `judgements` are tokens: the mean cross-entropy
            in nats; NaN for a reward.
        share_U: each user's share, of which ``by_user`` is the mean.
        judged_U: the number of judgements (or tokens) that each of these shares is of.
    """

    pooled: float
    by_user: float
    users: int
    judgements: int
    chance: float
    loss: float = math.nan
    share_U: np.ndarray = field(default_factory=lambda: np.empty(0), compare=False, repr=False)
    judged_U: np.ndarray = field(default_factory=lambda: np.empty(0), compare=False, repr=False)

    @classmethod
    def of_users(
        cls, right_U: Any, judged_U: Any, chance: float, loss: float = math.nan
    ) -> "Accuracy":
        """From each user's number of correct judgements (or tokens) and number of all: two arrays,
        or two tensors, (U,).
        """
        there_U = judged_U > 0
        judged = int(judged_U.sum())
        if not judged:
            return cls(pooled=math.nan, by_user=math.nan, users=0, judgements=0, chance=math.nan)
        share_U = right_U[there_U] / judged_U[there_U]
        return cls(
            pooled=float(right_U.sum()) / judged,
            by_user=float(share_U.mean()),
            users=int(there_U.sum()),
            judgements=judged,
            chance=chance,
            loss=loss,
            share_U=np.asarray(share_U),
            judged_U=np.asarray(judged_U[there_U]),
        )


def float32_of(theta_D: np.ndarray | torch.Tensor) -> np.ndarray:
    """A float32 copy, which the caller may change: arrays from a network buffer are read-only."""
    if torch.is_tensor(theta_D):
        theta_D = theta_D.detach().cpu().numpy()
    return np.array(theta_D, dtype=np.float32)


def accuracy_by(
    logits_R: torch.Tensor, y_R: torch.Tensor, start_U: torch.Tensor, kind: Kind, width: int
) -> Accuracy:
    """Accuracy of logits: for pairs and best-of-several of the preferred response, for rankings of
    the first place, for thumbs as in `_accuracy_of_thumbs`.

    A judgement is right when the preferred response scores highest, and right in part, one over
    their number, when several score exactly the same. Judgements in which several responses are
    preferred equally are left out. Without any other, the means are NaN and the counts 0.

    ``y_R``, ``start_U``, ``kind`` and ``width`` are as of `preference.linear.examples`.
    """
    if kind == "thumbs":
        return _accuracy_of_thumbs(logits_R.numpy(), y_R.numpy(), start_U.numpy())
    right_J, decided_J, chance_J = _marks(logits_R, y_R, kind, width)
    right_U, decided_U = (_by_user(one_J, start_U) for one_J in (right_J, decided_J.double()))
    return Accuracy.of_users(right_U, decided_U, float(chance_J[decided_J].mean()))


def right_by_user(
    logits_R: torch.Tensor, y_R: torch.Tensor, start_U: torch.Tensor, kind: Kind, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each user's number of correct judgements and number of judgements without a tie.

    Both are (U,) float64. Arguments, and which judgements count as correct, are as of
    `accuracy_by`; thumbs are not taken.
    """
    right_J, decided_J, _ = _marks(logits_R, y_R, kind, width)
    return _by_user(right_J, start_U), _by_user(decided_J.double(), start_U)


def _by_user(figure_J: torch.Tensor, start_U: torch.Tensor) -> torch.Tensor:
    counts_U = start_U.diff()
    user_J = torch.repeat_interleave(torch.arange(len(counts_U)), counts_U)
    zeros_U = torch.zeros(len(counts_U), dtype=torch.float64)
    return zeros_U.index_add(0, user_J, figure_J)


def _marks(
    logits_R: torch.Tensor, y_R: torch.Tensor, kind: Kind, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each judgement: its correctness (0 for a tie), whether it has no tie, and the accuracy of
    guessing.
    """
    logits_JW, y_JW = logits_R.view(-1, width), y_R.view(-1, width)
    there_JW = torch.isfinite(y_JW)
    if kind == "ranking":
        y_JW = _of_first_place(y_JW)
    mass_JW = torch.where(there_JW, 1.0 - y_JW, 0.0)  # of the answer, on each of the others
    mass_JK = torch.cat([1.0 - mass_JW.sum(1, keepdim=True), mass_JW], dim=1)
    scores_JW = torch.where(there_JW, -logits_JW, -math.inf)
    scores_JK = torch.nn.functional.pad(scores_JW, (1, 0))
    preferred_J = mass_JK.argmax(1, keepdim=True)
    preferred = mass_JK.gather(1, preferred_J)
    decided_J = (mass_JK > preferred - _SAME).sum(1) == 1
    highest_JK = scores_JK == scores_JK.amax(1, keepdim=True)
    right_J = highest_JK.gather(1, preferred_J).squeeze(1) / highest_JK.sum(1).clamp(min=1)
    chance_J = 1.0 / (1.0 + there_JW.sum(1).double())
    return torch.where(decided_J, right_J.double(), 0.0), decided_J, chance_J


def _accuracy_of_thumbs(reward_J: np.ndarray, y_J: np.ndarray, start_U: np.ndarray) -> Accuracy:
    """Accuracy of thumbs: how often a response that a user liked scores above one that the same
    user disliked.

    The mean is over all such pairs of a user, with equal scores counted half. So no per-user offset
    enters, which would be unknown for users who were not trained on. Users without thumbs of both
    kinds are left out, and the pooled mean weights users by their number of thumbs.
    """
    share_U, thumbs_U = [], []
    for first, end in pairwise(start_U.tolist()):
        up = y_J[first:end] > 0.5
        liked, disliked = reward_J[first:end][up], np.sort(reward_J[first:end][~up])
        if not (len(liked) and len(disliked)):
            continue
        below = np.searchsorted(disliked, liked) + np.searchsorted(disliked, liked, side="right")
        share_U.append(float(below.mean()) / (2.0 * len(disliked)))
        thumbs_U.append(end - first)
    if not share_U:
        return Accuracy(pooled=math.nan, by_user=math.nan, users=0, judgements=0, chance=math.nan)
    return Accuracy(
        pooled=float(np.average(share_U, weights=thumbs_U)),
        by_user=float(np.mean(share_U)),
        users=len(share_U),
        judgements=sum(thumbs_U),
        chance=0.5,
        share_U=np.array(share_U),
        judged_U=np.array(thumbs_U),
    )


def _of_first_place(y_JW: torch.Tensor) -> torch.Tensor:
    """The y of rankings as if only the first place had been given: 1, or 1 − 1/t for those that t
    share."""
    shares_JW = (y_JW < 1.0).cumprod(dim=1)
    mass_J1 = 1.0 / (1.0 + shares_JW.sum(dim=1, keepdim=True))
    first_JW = torch.where(shares_JW > 0, 1.0 - mass_J1, 1.0)
    return torch.where(torch.isfinite(y_JW), first_JW, y_JW)
