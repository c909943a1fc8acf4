"""Answers of small policies beside those of their reference: what reruns that write share.

The reference is a small model of public text (``policies.reference``), whose answers can mostly be
read (`docs/research/language-models.md`). A policy is fitted to pairs without clipping or noise, as
labels were randomized before they came; both answer the same prompts by draws of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from murmuration.alignment.comparisons.win_rate import wins, worth
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import policy_examples
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.research.reproductions.policies.reference import SHAPE
from murmuration.sims.population.population import Weights

#: What of it is fitted: of the directions that a loss pulls in, those of the last layer have most
#: in common between judgements (`docs/research/language-models.md`).
LAYER = f"{SHAPE.layers - 1}.mlp.down_proj"
RANK, R_MAX = 4, 2.0
FIT = PolicyFit(epochs=1, batch=64, rate=0.4)
SAMPLING = Sampling(temperature=0.5, max_new_tokens=100)
#: Steps that are tried, and the first of the seeds on which each loss's own is chosen: one step for
#: all would suit one of them.
STEPS, TUNING_SEED = (0.03, 0.1, 0.3), 500_000


class Won(NamedTuple):
    """The share of a policy's answers that wins over the reference's, and the unreadable share."""

    wins: float
    unreadable: float


def cautions(unreadable: float) -> list[str]:
    """A caution if too few answers can be read; ``unreadable`` is the share of the others."""
    if unreadable <= 0.5:
        return []
    return [
        f"{unreadable:.0%} of all answers cannot be read, so what follows says NOTHING about what "
        "is compared: the reference had too little text, or steps were too long."
    ]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Prompts with two responses each, and whether the first is the better one: the true labels."""

    prompts: Sequence[str]
    responses: Sequence[tuple[str, str]]
    first_J: np.ndarray


def trained(path: str, loss: str) -> LanguageBase:
    """A reference loaded for training by a loss."""
    lora = {"rank": RANK, "targets": LAYER}
    of_policy = {"task": "policy", "loss": loss, "beta": 1.0, "r_max": R_MAX}
    return LanguageBase(BaseSettings(path, **lora, **of_policy))


class Contest:
    """Policies fitted to labels of the same pairs, which answer the same prompts.

    Args:
        path: of the reference.
        pairs: what labels are about.
        prompts: to be answered.
        weights: of the judge of answers.
        seed: of the order of pairs, and of generation.
    """

    def __init__(
        self, path: str, pairs: Pairs, prompts: Sequence[str], weights: Weights, seed: int
    ) -> None:
        self._path, self.pairs, self._prompts = path, pairs, prompts
        self._weights, self._seed = weights, seed
        answers = Writer.load(path).write(prompts, SAMPLING, (seed, 0))
        self._reference = worth(prompts, answers, weights)
        everything = Judgements(
            user_ids=tuple(map(str, range(len(pairs.prompts)))),
            start_U=np.arange(len(pairs.prompts) + 1),
            prompts=[*pairs.prompts],
            responses=[*pairs.responses],
            y_R=np.ones(len(pairs.prompts), np.float32),
        )
        # Tokens, and a reference that is computed once: of these labels change, and the loss.
        self._examples = policy_examples(everything, trained(self._path, "dpo"))
        self._examples.refer(np.unique(self._examples.text_JK), together=True)

    def won(
        self,
        loss: str,
        first_J: np.ndarray,
        flip_probability: float = 0.0,
        rate: float = FIT.rate,
    ) -> Won:
        """The win rate against the reference of a policy fitted to statements about all pairs."""
        base, theta_D = self._fit(loss, first_J, flip_probability, rate)
        base.put(torch.from_numpy(theta_D))
        # With draws of its own: with the same ones, like models would say the same.
        answers = Writer(base.model, base.texts).write(self._prompts, SAMPLING, (self._seed, 1))
        result = worth(self._prompts, answers, self._weights)
        return Won(float(wins(result, self._reference).mean()), result.unreadable.value)

    def _fit(
        self, loss: str, first_J: np.ndarray, flip_probability: float, rate: float = FIT.rate
    ) -> tuple[LanguageBase, np.ndarray]:
        base = trained(self._path, loss)
        told = replace(
            self._examples,
            base=base,
            y_R=torch.from_numpy(first_J.astype(np.float32)),
            flip_J=torch.full((len(first_J),), flip_probability, dtype=torch.float64),
        )
        return base, replace(FIT, seed=self._seed, rate=rate)(told)
