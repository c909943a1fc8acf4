"""Means over prompts and over seeds of rewards, with intervals for other prompts and other seeds.

Prompts and seeds are both drawn anew with replacement, crossed (Owen, *The pigeonhole bootstrap*,
Annals of Applied Statistics 2007, which is conservative where cells are independent). All figures
come from the same draws, so that differences and ratios are paired. A few seeds show little about
further ones, whatever the bootstrap.

Legend: S seeds, P prompts, N answers to each, R = P · N answers, B draws.
"""

import numpy as np

from murmuration.alignment.comparisons.length_control import (
    fit_wins,
    rate_at_equal_length,
    relative_length,
)

_DRAWS = 1000
_AT_A_TIME = 2**21  # numbers that are held together


class CrossedDraws:
    """Draws of prompts and seeds. The first is what was measured: each once."""

    def __init__(self, prompts: int, seeds: int) -> None:
        generator = np.random.default_rng(0)
        self._prompts_BP = _counts(generator, prompts)
        self._seeds_BS = _counts(generator, seeds)

    def means(self, chance_SPN: np.ndarray, figure_PN: np.ndarray) -> np.ndarray:
        """The mean of a figure over the chosen answers, in each draw, (B,).

        Args:
            chance_SPN: the probability that each answer is chosen, by the reward of each seed.
            figure_PN: anything about the answers.
        """
        chosen_SP = (chance_SPN * figure_PN).sum(2)
        return np.einsum(
            "bs,bp,sp->b", self._seeds_BS, self._prompts_BP, chosen_SP / chosen_SP.size
        )

    def length_controlled(
        self, chance_SPN: np.ndarray, wins_PN: np.ndarray, longer_PN: np.ndarray
    ) -> np.ndarray:
        """The win rate at equal length, in each draw, (B,).

        By a logistic regression, as of `alignment.comparisons.length_control`; the spread of
        lengths is that of all answers.

        Args:
            chance_SPN: as of `means`.
            wins_PN: 1, 0, or 0.5 of equals.
            longer_PN: each answer's length less that of the other one, in characters.
        """
        wins_R, relative_R = wins_PN.ravel(), relative_length(longer_PN.ravel())
        whole_12 = fit_wins(wins_R, relative_R, chance_SPN.mean(0).reshape(1, -1))
        rows = max(1, _AT_A_TIME // len(wins_R))
        rates = []
        for at in range(0, len(self._prompts_BP), rows):
            part = slice(at, at + rows)
            weight_BPN = np.einsum("bs,spn->bpn", self._seeds_BS[part], chance_SPN)
            weight_BPN *= self._prompts_BP[part, :, None] / len(chance_SPN)
            weight_BR = weight_BPN.reshape(len(weight_BPN), -1)
            rates.append(rate_at_equal_length(fit_wins(wins_R, relative_R, weight_BR, whole_12)))
        return np.concatenate(rates)


def interval(name: str, values_B: np.ndarray) -> dict[str, float]:
    """Columns with a measurement, which is the first of ``values_B``, and the ends of its 95 %
    interval.
    """
    low, high = np.percentile(values_B[1:], [2.5, 97.5])
    return {name: float(values_B[0]), f"{name}_low": float(low), f"{name}_high": float(high)}


def _counts(generator: np.random.Generator, size: int) -> np.ndarray:
    """Bootstrap counts of ``size`` units, (B, size)."""
    drawn_BK = generator.multinomial(size, np.full(size, 1 / size), _DRAWS)
    return np.concatenate([np.ones((1, size)), drawn_BK])
