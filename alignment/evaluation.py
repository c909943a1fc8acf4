"""Evaluation of a policy's answers: their reward, and the divergence from the reference.

Of the same public prompts each time, by draws that depend on seed and step alone: the reward that
is climbed (the proxy), a true reward that was not, and the divergence from the reference.

Legend: P prompts, L tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import nan, sqrt
from typing import Any, Protocol

import numpy as np
import torch

from murmuration.alignment.comparisons.win_rate import worth
from murmuration.alignment.likelihoods import AnswerLikelihoods
from murmuration.alignment.rewards import AnswerReward, Scores
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.words import words_of
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import (
    NotFiniteError,
    Sampling,
    Writer,
    read_responses,
)
from murmuration.preference.language.tokens import length_batches
from murmuration.privacy.strict_json import finite
from murmuration.sims.population.population import Population, true_reward
from murmuration.sims.population.wording import STRENGTHS

POPULATION = "population"
#: Why training may end before its last step.
PARTED, BUDGET = "parted", "kl"
_NORMAL = 1.959964


class Truth(Protocol):
    """The true reward of answers, or a stand-in for it."""

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """(P,) float64; NaN of an answer that has no worth because it cannot be read."""
        ...

    @property
    def worst(self) -> float:
        """The worth of an answer that cannot be read."""
        ...


class PopulationTruth:
    """The embedded population's mean reward over users, at the axes in an answer's words."""

    def __init__(self) -> None:
        most = max(strength for strength, _ in STRENGTHS)
        corners = [(a, b, c) for a in (-most, most) for b in (-1.0, 1.0) for c in (0.0, 1.0)]
        #: The least that any answer of the population can be worth.
        self.worst = min(true_reward(Population.crowd, corner) for corner in corners)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """As `Truth`; raises InputError for a prompt that is not the population's."""
        return worth(prompts, responses, Population.crowd).rewards_P


class ModelTruth:
    """A reward model that the policy was not trained on: an opinion, and none that is proven."""

    worst = nan  # every answer has a reward

    def __init__(self, folder: str) -> None:
        self._reward = AnswerReward.load(folder)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """As `Truth`, for all answers."""
        return self._reward(prompts, responses)


def truth_of(named: str) -> Truth:
    """The truth that ``population`` or the folder of a reward model names; raises InputError if it
    is neither.
    """
    return PopulationTruth() if named == POPULATION else ModelTruth(named)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation of a policy's answers.

    Attributes:
        step: of training; 0 of the reference.
        proxy: mean reward by the model that is optimized, less that of the reference's answers to
            the same prompts.
        kl: mean log-ratio of the policy to the reference over the policy's answers, in nats, at the
            sampling temperature; `kl_is` names what it estimates.
        kl_error: the standard error of that.
        truth: mean true reward, unread answers at the worst; None without a truth.
        truth_error: its standard error.
        unreadable: share of answers that have no true reward.
        words: mean number of words.
        cut_off: share of answers that were truncated.
    """

    step: int
    proxy: float
    kl: float
    kl_error: float
    truth: float | None
    truth_error: float | None
    unreadable: float | None
    words: float
    cut_off: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Figures for a line of JSON, which has no NaN."""
        return finite(asdict(self), lambda _: None)


class Evaluator:
    """Evaluates a policy while it is trained."""

    def __init__(
        self,
        base: LanguageBase,
        prompts: Sequence[str],
        reward: Scores,
        truth: Truth | None,
        sampling: Sampling,
        *,
        seed: int,
    ) -> None:
        """``base`` is the policy, whatever weights it has, with its LoRA layers."""
        self._base, self.prompts, self._reward = base, list(prompts), reward
        self._truth, self._sampling, self._seed = truth, sampling, seed
        self._openings = base.texts.openings(prompts, sampling.max_new_tokens)
        self._zero = 0.0
        #: By step.
        self.truth_P: dict[int, np.ndarray] = {}
        self.answers: dict[int, list[str]] = {}

    def __call__(
        self, step: int, progress: Callable[[int, int], None] = lambda *_: None
    ) -> Evaluation:
        """Evaluate the policy as it is; the first call is of the reference.

        Raises:
            InputError: an answer has no finite reward, or the policy is not finite.
        """
        writer = Writer(self._base.model, self._base.texts)
        not_finite = f"the policy of step {step} is not finite: lower --learning-rate"
        try:
            tokens = writer.continue_tokens(
                self._openings, self._sampling, (self._seed, 1 + step), progress, ended=True
            )
        except NotFiniteError:
            raise InputError(not_finite) from None
        answers, cut_off = read_responses(self._base.texts, tokens)
        kl_P = divergences(self._base, self._openings, tokens, self._sampling)
        if not np.isfinite(kl_P).all():
            raise InputError(not_finite)
        proxy, unreadable = self.remember(step, answers)
        truth = error = None
        if self._truth is not None:
            truth, error = float(self.truth_P[step].mean()), _error(self.truth_P[step])
        return Evaluation(
            step=step,
            proxy=proxy,
            kl=float(kl_P.mean()),
            kl_error=_error(kl_P),
            truth=truth,
            truth_error=error,
            unreadable=unreadable,
            words=float(np.mean([len(words_of(answer)) for answer in answers])),
            cut_off=cut_off / len(answers),
        )

    def remember(self, step: int, answers: Sequence[str]) -> tuple[float, float | None]:
        """Store a policy's answers at a step; those of step 0 first.

        Returns the proxy and the unreadable share, as of `Evaluation`.
        """
        proxy = float(self._reward(self.prompts, answers).mean())
        if not step:
            self._zero = proxy
        self.answers[step], unreadable = list(answers), None
        if self._truth is not None:
            found_P = self._truth(self.prompts, answers)
            unreadable = float(np.isnan(found_P).mean())
            if unreadable:
                found_P = np.where(np.isnan(found_P), self._truth.worst, found_P)
            self.truth_P[step] = found_P
        return proxy - self._zero, unreadable

    def worse(self, step: int, best: int) -> bool:
        """True if the true reward at a step is below that at another by more than the 95 % error of
        their difference by prompt.
        """
        apart_P = self.truth_P[step] - self.truth_P[best]
        return float(apart_P.mean()) < -_NORMAL * _error(apart_P)


def _error(values_P: np.ndarray) -> float:
    return float(values_P.std(ddof=1)) / sqrt(len(values_P)) if len(values_P) > 1 else nan


def divergences(
    base: LanguageBase,
    openings: Sequence[list[int]],
    answers: Sequence[list[int]],
    sampling: Sampling,
) -> np.ndarray:
    """Nats by which each answer is likelier under the policy than with its LoRA layers off, (P,).

    Both at the temperature of ``sampling``; an answer has the token that ended it, unless it broke
    off. Their mean over answers that the policy wrote is its divergence from the reference, without
    bias if they were drawn from everything (top-p 1); a single one can be negative. At temperature
    0 nothing is drawn, and temperature 1 is taken.
    """
    likelihoods = AnswerLikelihoods(base, sampling.temperature or 1.0)
    network: Any = base.model
    apart_P = np.zeros(len(openings))
    lengths_P = np.array([len(o) + len(a) for o, a in zip(openings, answers, strict=True)])
    most = min(base.batch_tokens, max(1, base.most_logits // base.words))
    for places in length_batches(lengths_P, most):
        rows = [openings[place] for place in places], [answers[place] for place in places]
        with torch.inference_mode():
            policy_R = likelihoods(*rows).double().sum(1)
            with network.disable_adapter():
                apart_P[places] = (policy_R - likelihoods(*rows).double().sum(1)).cpu().numpy()
        likelihoods.forget()
    return apart_P


def kl_is(sampling: Sampling) -> str:
    """The name of what the mean of `divergences` estimates: the KL divergence only if sampling was
    not truncated.
    """
    return "KL" if sampling.top_p == 1 else "mean log-ratio"


def check_readable(evaluation: Evaluation, base: str) -> None:
    """InputError where most of the reference's answers have no true reward."""
    if (evaluation.unreadable or 0.0) > 0.5:
        raise InputError(
            f"--base {base}: {evaluation.unreadable:.0%} of its answers cannot be read, so a true "
            "reward says nothing: lower --temperature, or train the base for longer"
        )
