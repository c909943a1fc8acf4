"""Answers of a reference, written once, from which every reward chooses: best of n for policies.

What a policy of small KL divergence from its reference gains in reward is hardly more than what the
best of n of the reference's own answers gain, at KL ≤ ln n − (n − 1)/n (Gao, Schulman and Hilton
2023; Beirami et al. 2024). So best of n stands for PPO here: one pool of answers serves all
rewards, ε's and seeds, nothing is tuned, and differences are of rewards alone. What it cannot show
is how hard a reward is to train on.

An answer that cannot be read is worth the least that any can be worth.

Legend: P prompts, N answers to each, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from murmuration.alignment.evaluation import PopulationTruth
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.research.reproductions.alignment.rewards import features
from murmuration.research.reproductions.entry import in_processes, tracked
from murmuration.research.reproductions.policies.reference import reference
from murmuration.sims.population.population import Population

SAMPLING = Sampling(temperature=0.7, max_new_tokens=100)
#: Of the reference, on the topics of the prompts: 12 minutes or so of two cores.
EXCHANGES, FEW_EXCHANGES = 24_000, 300
_TRUTH = PopulationTruth()
WORST = _TRUTH.worst
_SEED = 7


@dataclass(frozen=True, eq=False)
class Answers:
    """N answers to each of P prompts, what they are worth, and what rewards look at.

    Attributes:
        truth_PN: true rewards in logits; ``WORST`` where an answer cannot be read.
        unreadable_PN: where it cannot.
        phi_PND: features; float32.
    """

    truth_PN: np.ndarray
    unreadable_PN: np.ndarray
    phi_PND: np.ndarray

    @classmethod
    def of(cls, prompts: Sequence[str], answers_NP: Sequence[Sequence[str]]) -> "Answers":
        """From texts: for each draw, an answer to each prompt."""
        rewards_PN = np.stack([_TRUTH(prompts, row) for row in answers_NP], axis=1)
        phi_PND = np.stack([features()(prompts, row) for row in answers_NP], axis=1)
        unreadable_PN = np.isnan(rewards_PN)
        return cls(np.where(unreadable_PN, WORST, rewards_PN), unreadable_PN, phi_PND)

    @property
    def unreadable(self) -> float:
        """The share of answers that cannot be read."""
        return float(self.unreadable_PN.mean())

    def rewards(self, theta_D: np.ndarray) -> np.ndarray:
        """The linear reward of each answer, (P, N) float64."""
        return np.einsum("pnd,d->pn", self.phi_PND, theta_D, dtype=np.float64)

    def first(self, count: int) -> "Answers":
        """The first ``count`` answers to each prompt."""
        return Answers(
            self.truth_PN[:, :count], self.unreadable_PN[:, :count], self.phi_PND[:, :count]
        )

    def rest(self, count: int) -> "Answers":
        """The answers after the first ``count``."""
        return Answers(
            self.truth_PN[:, count:], self.unreadable_PN[:, count:], self.phi_PND[:, count:]
        )


def written(quick: bool, prompts: int, samples: int) -> Answers:
    """The ``samples`` answers of a reference, of few texts if quick, to each of ``prompts`` fresh
    prompts.

    Draws differ in their numbers only, so the first answers do not depend on ``samples``.
    """
    asked = list(Population().prompts("train", prompts))
    with reference(Population().texts("train", FEW_EXCHANGES if quick else EXCHANGES)) as path:
        tasks = [(path, asked, sample) for sample in range(samples)]
        drawn = list(tracked(in_processes(_one_draw, tasks), "answers", samples))
    return Answers.of(asked, drawn)


def _one_draw(task: tuple[str, list[str], int]) -> list[str]:
    path, prompts, sample = task
    return _writer(path).write(prompts, SAMPLING, (_SEED, sample))


@lru_cache(maxsize=1)
def _writer(path: str) -> Writer:
    return Writer.load(path)
