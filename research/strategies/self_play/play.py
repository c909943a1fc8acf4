"""A policy that plays against itself, by a preference that need not come from a reward.

Source: Zhou et al. 2025 ("S"), Algorithm 3 (Iterative Square-χPO), its second step. ℓ̂ is an
estimate of how people prefer (`general_preference`); pairs (a, b) are written
by the reference π_ref. In each of T iterations the policy π_t writes an opponent b_t to each
prompt, and the next policy minimises, over all pairs (eqs. 8 and 11),

    (clip₄[(1 + 1/η)·H_π − H_πt/η] − [ℓ̂(a, b_t) − ℓ̂(b, b_t)])²,

H_π the difference of χPO's rewards of a and b, β·(exp(u) + u) of log-ratios u. Here steps of
Adam's, from π_t, stand for the minimiser: it is not exact. η = 1/T (Theorem D.3). The paper's
result is a policy drawn from π_1, …, π_T; the last is returned, which has no guarantee of its own.

Labels are looked at for ℓ̂ alone: what happens here is post-processing, and costs no privacy.

Legend: J pairs, N of a step, K = 2 responses, R texts in a batch, D trained parameters.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policies import PolicyExamples
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.preference.models import PreferenceModel
from murmuration.research.strategies.self_play.general_preference import GeneralPreference

#: What the regressed difference of rewards is clipped at (eq. 11).
CLIP = 4.0


@dataclass(frozen=True, eq=False)
class PlayedPairs(PolicyExamples):
    """Pairs of the reference's responses, and what one iteration asks of them.

    Attributes:
        gain_J: ℓ̂(a, b_t) − ℓ̂(b, b_t), in [−2, 2].
        former_J: H of the policy before.
        eta: η.
    """

    gain_J: torch.Tensor = field(kw_only=True)
    former_J: torch.Tensor = field(kw_only=True)
    eta: float = field(kw_only=True)

    @classmethod
    def from_pairs(
        cls, pairs: PolicyExamples, gain_J: np.ndarray, former_J: torch.Tensor, eta: float
    ) -> "PlayedPairs":
        """Pairs with the targets of an iteration."""
        known = {one.name: getattr(pairs, one.name) for one in fields(pairs)}
        return cls(**known, gain_J=torch.from_numpy(gain_J), former_J=former_J.double(), eta=eta)

    def loss_N(self, reward_N: torch.Tensor, taken_N: np.ndarray) -> torch.Tensor:
        """The loss of eq. 11 of some pairs, (N,), by the differences of their rewards H."""
        chosen_N = torch.from_numpy(taken_N)
        margin_N = (1.0 + 1.0 / self.eta) * reward_N - self.former_J[chosen_N] / self.eta
        return (margin_N.clamp(-CLIP, CLIP) - self.gain_J[chosen_N]) ** 2

    def slopes(
        self,
        texts_R: np.ndarray,
        score_R: np.ndarray,
        taken_N: np.ndarray,
        weight_N: np.ndarray,
        model: PreferenceModel,
    ) -> np.ndarray:
        """As in the base class, for this loss. In units of H: divided by (1 + 1/η)²."""
        del model
        ratio_NK = torch.from_numpy(score_R - self.reference_T[texts_R]).view(-1, 2)
        ratio_NK.requires_grad_(True)
        loss_N = self.loss_N(self.loss.logits(ratio_NK)[:, 0], taken_N)
        weighted = (loss_N * torch.from_numpy(weight_N)).sum() / (1.0 + 1.0 / self.eta) ** 2
        (slope_NK,) = torch.autograd.grad(weighted, ratio_NK)
        return slope_NK.numpy().ravel()


@dataclass(frozen=True)
class SelfPlay:
    """Self-play: its length, and the steps in which a policy learns.

    Attributes:
        iterations: T.
        pairs: the number that the reference generates.
        fit: of one iteration.

    Raises:
        InputError: a number that is not positive.
    """

    iterations: int = 8
    pairs: int = 512
    fit: PolicyFit = PolicyFit()  # noqa: RUF009  frozen

    def __post_init__(self) -> None:
        for name in ("iterations", "pairs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}")

    def __call__(
        self,
        preference: GeneralPreference,
        prompts: Sequence[str],
        base: LanguageBase,
        examples_of: Callable[[Judgements], PolicyExamples],
        longest: int,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> np.ndarray:
        """θ of the last policy, (D,) float32; otherwise as `iterates`."""
        played = self.iterates(preference, prompts, base, examples_of, longest, progress)
        return deque(played, maxlen=1).pop()  # one at a time: θ may be a whole model

    def iterates(
        self,
        preference: GeneralPreference,
        prompts: Sequence[str],
        base: LanguageBase,
        examples_of: Callable[[Judgements], PolicyExamples],
        longest: int,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> Iterator[np.ndarray]:
        """Yield θ of π_2, …, π_{T+1}, (D,) float32; π_1 is the reference.

        Args:
            preference: ℓ̂.
            prompts: public ones, at least one; pairs are about these, in turn.
            base: what is trained.
            examples_of: makes judgements into those of the policy.
            longest: the most tokens of a response.
            progress: is called with the number of iterations done, and of all.

        Raises:
            InputError: a step is not finite.
        """
        order: list[int] = np.random.default_rng(self.fit.seed).permutation(len(prompts)).tolist()
        repeated = [prompts[order[place % len(order)]] for place in range(self.pairs)]
        seed, sampling = self.fit.seed, Sampling(max_new_tokens=longest)

        def written(stream: int) -> list[str]:
            return Writer(base.model, base.texts).write(repeated, sampling, (seed, stream))

        base.put(torch.zeros(base.dimension))
        first, second = written(0), written(1)
        pairs = examples_of(_pairs(repeated, first, second)).in_public()
        theta_D = np.zeros(base.dimension, dtype=np.float32)
        for iteration in range(self.iterations):
            base.put(torch.from_numpy(theta_D))
            opponents = written(2 + iteration)
            gain_J = preference(first, opponents) - preference(second, opponents)
            former_J = pairs.logits_R(torch.from_numpy(theta_D))
            played = PlayedPairs.from_pairs(pairs, gain_J, former_J, 1.0 / self.iterations)
            theta_D = self.fit(played, start_D=theta_D)
            progress(iteration + 1, self.iterations)
            yield theta_D


def _pairs(prompts: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Judgements:
    """Responses as judgements of a nominal user, whose order is meaningless."""
    return Judgements(
        user_ids=("nobody",),
        start_U=np.array([0, len(prompts)]),
        prompts=list(prompts),
        responses=list(zip(first, second, strict=True)),
        y_R=np.ones(len(prompts), dtype=np.float32),
    )
