"""Losses of a policy on judgements: preferences straight into a policy, without a reward model.

A policy π says of each response how much likelier it has become than under the reference it began
from: u = log π(response | prompt) − log π_ref(response | prompt). That stands for a reward,

    r = β·u                  (DPO), or
    r = β·(exp(u) + u)       (χPO: φ(ratio) = ratio + log ratio, which holds π near its reference),

and a judgement is lost on as by any reward, by differences z = r(first) − r(other):

- `dpo`: −log P(judgement), by the model of preferences; of several responses by Plackett–Luce's.
- `ipo`: (u(first) − u(other) − 1/(2β))², where u is a mean over tokens, as TRL has it. Pairs.
- `chipo`: as `dpo`, of χPO's rewards, clipped: z in [−2·R_max, 2·R_max].
- `square-chipo`: (2·σ(z) − 1 − ȳ)², of χPO's rewards, clipped. Pairs.
- `square-dpo`: the same of DPO's rewards, clipped. Pairs.
- `robust-dpo`: `dpo` without the bias of randomized labels.

How labels were randomized comes with the judgements: `flip_J` is the probability that a statement
is not the truth. `robust-dpo`, `square-chipo` and `square-dpo` put in its place what has the truth
as its expectation, for pairs c·(±1) with c = 1/(1 − 2·flip); with true labels that is the label
itself, and `robust-dpo` is `dpo`. `dpo`, `ipo` and `chipo` take statements for true.

Clamps: exp(u) is exp(30) beyond u = 30, where u alone still counts; and the clip of z, beyond which
a judgement has no gradient at all (`saturated`). χPO's z passes 2·R_max where a response has become
about 1 + 2·R_max/β times as likely.

Sources: Rafailov et al. 2023 (DPO); Azar et al. 2024 (IPO); Huang et al. 2024 (χPO), Algorithm 1;
Zhou et al. 2025, Algorithm 1 (Square-χPO); Chowdhury, Kini and Natarajan 2024 (rDPO), eq. 13.

Legend: J judgements, K responses, the first of which is stated to be preferred, W = K − 1 others.
"""

import math
from dataclasses import dataclass

import torch

from murmuration.preference.choices import (
    CLIPPED_LOSSES,
    PAIR_LOSSES,
    POLICY_LOSSES,
    UNBIASED_LOSSES,
)
from murmuration.preference.data.rows import InputError
from murmuration.preference.models import PreferenceModel, preference_model

_BTL = preference_model("btl")
_MOST = 30.0  # of log-ratios that are raised to powers of e


@dataclass(frozen=True)
class PolicyLoss:
    """A loss, and what it is set by.

    Attributes:
        name: one of `preference.choices.POLICY_LOSSES`.
        beta: how much reward a log-ratio of one stands for; of `ipo` half the inverse of the margin
            that is asked for.
        r_max: what the difference of two rewards is at most is taken to be twice of; of losses
            that clip.

    Raises:
        InputError: an unknown name, or a number that is not positive.
    """

    name: str = "dpo"
    beta: float = 1.0
    r_max: float = 2.0

    def __post_init__(self) -> None:
        if self.name not in POLICY_LOSSES:
            said = ", ".join(POLICY_LOSSES)
            raise InputError(f"--loss must be one of {said}; got {self.name!r}")
        for option, value in (("--beta", self.beta), ("--r-max", self.r_max)):
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(f"{option} must be a positive number; got {value!r}")

    @property
    def per_token(self) -> bool:
        """Whether log-ratios are means over a response's tokens instead of sums."""
        return self.name == "ipo"

    @property
    def unbiased(self) -> bool:
        """Whether it is corrected for randomized labels."""
        return self.name in UNBIASED_LOSSES

    @property
    def most(self) -> float:
        """The most that a difference of two rewards counts."""
        return 2.0 * self.r_max if self.name in CLIPPED_LOSSES else math.inf

    def rewards(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """What log-ratios stand for, in their shape."""
        if self.name in ("chipo", "square-chipo"):
            return self.beta * (ratio_JK.clamp(max=_MOST).exp() + ratio_JK)
        return self.beta * ratio_JK

    def logits(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """r(first) − r(other), not clipped, (J, W)."""
        reward_JK = self.rewards(ratio_JK)
        return reward_JK[:, :1] - reward_JK[:, 1:]

    def saturated(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """Which differences are clipped, and have no gradient, (J, W) bool."""
        return self.logits(ratio_JK).abs() > self.most

    def loss(
        self,
        ratio_JK: torch.Tensor,
        y_JW: torch.Tensor,
        flip_J: torch.Tensor | None = None,
        model: PreferenceModel = _BTL,
    ) -> torch.Tensor:
        """The loss of each judgement, (J,), differentiable.

        Args:
            ratio_JK: log-ratios, float64; any number where there is no response.
            y_JW: what is stated, as `preference.models` has it.
            flip_J: how likely a statement is not the truth; None for true labels.
            model: of preferences, of losses that are one's likelihood.
        """
        there_JW = torch.isfinite(y_JW)
        if flip_J is not None and self.unbiased:
            y_JW = _unbiased(y_JW, flip_J)
        z_JW = torch.where(there_JW, self.logits(ratio_JK), 0.0).clamp(-self.most, self.most)
        if self.name not in PAIR_LOSSES:
            return model.loss(z_JW, y_JW)
        z_J, y_J = z_JW[:, 0], y_JW[:, 0]
        if self.name == "ipo":
            margin_J, asked = z_J / self.beta, 0.5 / self.beta
            return y_J * (margin_J - asked) ** 2 + (1.0 - y_J) * (margin_J + asked) ** 2
        return (torch.tanh(0.5 * z_J) - (2.0 * y_J - 1.0)) ** 2


def _unbiased(y_JW: torch.Tensor, flip_J: torch.Tensor) -> torch.Tensor:
    """Statements that have the truth as their expectation; what is not there stays so."""
    others_J1 = torch.isfinite(y_JW).sum(1, keepdim=True)
    each_J1 = flip_J[:, None] / others_J1
    contrast_J1 = 1.0 - flip_J[:, None] - each_J1
    return 1.0 - (1.0 - y_JW - each_J1) / contrast_J1
