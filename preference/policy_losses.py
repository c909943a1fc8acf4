"""Losses of a policy on judgements: preferences straight into a policy, without a reward model.

For each response a policy π has a log-ratio to the reference that it began from: u = log π(response
| prompt) − log π_ref(response | prompt). That stands for a reward,

    r = β·u                  (DPO), or
    r = β·(exp(u) + u)       (χPO: φ(ratio) = ratio + log ratio, which holds π near its reference),

and a judgement is lost on as by any reward, by differences z = r(first) − r(other):

- `dpo`: −log P(judgement), by the preference model; of several responses by Plackett–Luce's.
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

Another package brings one by an entry point `murmuration.policy_losses`, which is named as the loss
and leads to its `PolicyObjective`.

Sources: Rafailov et al. 2023 (DPO); Azar et al. 2024 (IPO); Huang et al. 2024 (χPO), Algorithm 1;
Zhou et al. 2025, Algorithm 1 (Square-χPO); Chowdhury, Kini and Natarajan 2024 (rDPO), eq. 13.

Legend: J judgements, K responses, the first of which is stated to be preferred, W = K − 1 others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from murmuration.preference.data.errors import InputError
from murmuration.preference.models import PreferenceModel, preference_model
from murmuration.privacy.extensions import ExtensionError, Group

if TYPE_CHECKING:
    import torch

    #: From log-ratios and beta to rewards, in the shape of the log-ratios.
    Reward = Callable[[torch.Tensor, float], torch.Tensor]
    #: From differences of rewards (J,), statements y (J,) and beta to losses (J,).
    PairLoss = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]

_MOST = 30.0  # of log-ratios that are raised to powers of e


def dpo_reward(ratio_JK: torch.Tensor, beta: float) -> torch.Tensor:
    """beta·u."""
    return beta * ratio_JK


def chipo_reward(ratio_JK: torch.Tensor, beta: float) -> torch.Tensor:
    """beta·(exp(u) + u)."""
    return beta * (ratio_JK.clamp(max=_MOST).exp() + ratio_JK)


def _ipo(z_J: torch.Tensor, y_J: torch.Tensor, beta: float) -> torch.Tensor:
    margin_J, asked = z_J / beta, 0.5 / beta
    return y_J * (margin_J - asked) ** 2 + (1.0 - y_J) * (margin_J + asked) ** 2


def _square(z_J: torch.Tensor, y_J: torch.Tensor, beta: float) -> torch.Tensor:
    return ((0.5 * z_J).tanh() - (2.0 * y_J - 1.0)) ** 2


@dataclass(frozen=True)
class PolicyObjective:
    """A loss of a policy.

    Attributes:
        name: of `--loss`.
        pair_loss: the loss of pairs by the difference of their rewards; None: the likelihood under
            `--model`, of several responses too. By operations that can be differentiated.
        reward: what a log-ratio stands for.
        per_token: whether log-ratios are means over a response's tokens instead of sums.
        clips: whether differences of rewards are clipped at twice `--r-max`.
        unbiased: whether it takes any number for y, and is linear in it up to terms without
            parameters: with randomized labels it is then given unbiased estimates of them.
    """

    name: str
    pair_loss: PairLoss | None = None
    reward: Reward = dpo_reward
    _: KW_ONLY
    per_token: bool = False
    clips: bool = False
    unbiased: bool = False


_OURS = {
    objective.name: objective
    for objective in (
        PolicyObjective("dpo"),
        PolicyObjective("ipo", _ipo, per_token=True),
        PolicyObjective("chipo", reward=chipo_reward, clips=True),
        PolicyObjective("square-chipo", _square, chipo_reward, clips=True, unbiased=True),
        PolicyObjective("square-dpo", _square, clips=True, unbiased=True),
        PolicyObjective("robust-dpo", unbiased=True),
    )
}
#: Those of ours, and the one where nobody says.
POLICY_LOSSES = tuple(_OURS)
DEFAULT = POLICY_LOSSES[0]
#: Of ours, those of pairs alone, that clip, and that correct for randomized labels.
PAIR_LOSSES = tuple(name for name in POLICY_LOSSES if _OURS[name].pair_loss)
CLIPPED_LOSSES = tuple(name for name in POLICY_LOSSES if _OURS[name].clips)
UNBIASED_LOSSES = tuple(name for name in POLICY_LOSSES if _OURS[name].unbiased)


def _check_declared(name: str, loaded: object) -> str:
    if not isinstance(loaded, PolicyObjective):
        return "it is no PolicyObjective"
    return "" if loaded.name == name else f"it is called {loaded.name!r}"


#: Those that other packages bring.
OBJECTIVES = Group("murmuration.policy_losses", _check_declared, _OURS)


def objective(name: str) -> PolicyObjective:
    """The declaration of a loss.

    Raises:
        InputError: an unknown name, or another package's that cannot be used.
    """
    if name in _OURS:
        return _OURS[name]
    if name not in OBJECTIVES.names():
        known = ", ".join((*_OURS, *OBJECTIVES.names()))
        raise InputError(f"--loss must be one of {known}; got {name!r}")
    try:
        return OBJECTIVES.load(name)
    except ExtensionError as error:
        raise InputError(f"--loss {error}") from None


@dataclass(frozen=True)
class PolicyLoss:
    """A loss with its parameters.

    Attributes:
        name: one of `POLICY_LOSSES`, or of another package's.
        beta: the reward of a log-ratio of one; of `ipo` half the inverse of the target margin.
        r_max: half the bound on the difference of two rewards; of losses that clip.

    Raises:
        InputError: an unknown name, or a number that is not positive.
    """

    name: str = DEFAULT
    beta: float = 1.0
    r_max: float = 2.0

    def __post_init__(self) -> None:
        _ = self.objective
        for option, value in (("--beta", self.beta), ("--r-max", self.r_max)):
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(f"{option} must be a positive number; got {value!r}")

    @property
    def objective(self) -> PolicyObjective:
        """Its declaration."""
        return objective(self.name)

    @property
    def most(self) -> float:
        """The most that a difference of two rewards counts."""
        return 2.0 * self.r_max if self.objective.clips else math.inf

    def rewards(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """Turn log-ratios into rewards, in their shape."""
        return self.objective.reward(ratio_JK, self.beta)

    def logits(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """r(first) − r(other), not clipped, (J, W)."""
        reward_JK = self.rewards(ratio_JK)
        return reward_JK[:, :1] - reward_JK[:, 1:]

    def saturated(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """True for each difference that is clipped, and has no gradient, (J, W) bool."""
        return self.logits(ratio_JK).abs() > self.most

    def loss(
        self,
        ratio_JK: torch.Tensor,
        y_JW: torch.Tensor,
        flip_J: torch.Tensor | None = None,
        model: PreferenceModel | None = None,
    ) -> torch.Tensor:
        """The loss of each judgement, (J,), differentiable.

        Args:
            ratio_JK: log-ratios, float64; any number where there is no response.
            y_JW: what is stated, as `preference.models` has it.
            flip_J: how likely a statement is not the truth; None for true labels.
            model: of preferences, of losses that are one's likelihood; `btl` if not given.
        """
        there_JW = y_JW.isfinite()
        if flip_J is not None and self.objective.unbiased:
            y_JW = _unbiased(y_JW, flip_J)
        logits_JW = self.logits(ratio_JK)
        z_JW = logits_JW.where(there_JW, 0.0).clamp(-self.most, self.most)
        if self.objective.pair_loss is None:
            return (model or preference_model("btl")).loss(z_JW, y_JW)
        return self.objective.pair_loss(z_JW[:, 0], y_JW[:, 0], self.beta)


def _unbiased(y_JW: torch.Tensor, flip_J: torch.Tensor) -> torch.Tensor:
    """Statements that have the truth as their expectation; what is not there stays so."""
    others_J1 = y_JW.isfinite().sum(1, keepdim=True)
    each_J1 = flip_J[:, None] / others_J1
    contrast_J1 = 1.0 - flip_J[:, None] - each_J1
    return 1.0 - (1.0 - y_JW - each_J1) / contrast_J1
