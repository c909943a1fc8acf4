"""What models' answers to the population's prompts are worth, by its truth, and which win.

An answer's reward is that of the crowd mean at the axes which its words have (`reading`). One that
cannot be read has none, and loses against any that can.

Intervals are for other prompts and other draws of the same models, at 95 %.

Legend: P prompts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import NamedTuple

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population, Weights, true_reward
from murmuration.sims.population.reading import read, topic_of

_NORMAL = 1.959964  # between minus this and this lies a standard normal number with 95 %


class Estimate(NamedTuple):
    """A figure and its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Worth:
    """The worth of a model's answers to P prompts.

    Attributes:
        rewards_P: true rewards in logits; nan of answers that cannot be read.
        why_not: how many answers cannot be read, by the reason (`reading.WHY_NOT`).
    """

    rewards_P: np.ndarray
    why_not: Mapping[str, int]

    @property
    def reward(self) -> Estimate:
        """Mean true reward of the answers that can be read; nan if fewer than two can."""
        rewards = self.rewards_P[~np.isnan(self.rewards_P)]
        if len(rewards) < 2:
            return Estimate(float(rewards.mean()) if len(rewards) else nan, nan, nan)
        mean, error = float(rewards.mean()), float(rewards.std(ddof=1)) / sqrt(len(rewards))
        return Estimate(mean, mean - _NORMAL * error, mean + _NORMAL * error)

    @property
    def unreadable(self) -> Estimate:
        """Share of the answers that cannot be read."""
        return wilson(np.isnan(self.rewards_P))


def worth(
    prompts: Sequence[str], answers: Sequence[str], weights: Weights = Population.crowd
) -> Worth:
    """Return what answers are worth, each to its prompt, for somebody with these reward weights.

    Raises:
        InputError: a prompt is none of the population's, so that nothing says what is asked.
    """
    rewards, why_not = [], Counter[str]()
    for prompt, answer in zip(prompts, answers, strict=True):
        if (topic := topic_of(prompt)) is None:
            raise InputError(f"no prompt of the embedded population: {prompt!r}")
        result = read(topic, answer)
        rewards.append(nan if result.axes is None else true_reward(weights, result.axes))
        if result.why_not:
            why_not[result.why_not] += 1
    return Worth(np.array(rewards, dtype=float), dict(why_not))


def wins(one: Worth, other: Worth) -> np.ndarray:
    """Return which answers of one model are worth more than another's to the same prompts, (P,): 1,
    or 0.

    Equal rewards are half a win, and so are two answers that cannot be read; one that cannot be
    read loses against one that can.
    """
    first_P, second_P = (np.nan_to_num(side.rewards_P, nan=-np.inf) for side in (one, other))
    with np.errstate(invalid="ignore"):  # of two that cannot be read
        ahead_P = first_P - second_P
    same_P = (first_P == second_P) | (np.abs(ahead_P) < 1e-9)
    return np.where(same_P, 0.5, ahead_P > 0)


def wilson(hits_P: np.ndarray) -> Estimate:
    """The mean of numbers from 0 to 1 and Wilson's interval, which halves make no wider."""
    count, share = len(hits_P), float(np.mean(hits_P)) if len(hits_P) else nan
    if not count:
        return Estimate(nan, nan, nan)
    z = _NORMAL**2 / count
    middle = (share + z / 2) / (1 + z)
    reach = _NORMAL / (1 + z) * sqrt(share * (1 - share) / count + z / (4 * count))
    return Estimate(share, max(0.0, middle - reach), min(1.0, middle + reach))
