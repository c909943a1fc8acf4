"""Intervals of what a comparison says, for other prompts like these.

- Intervals are bootstrapped over prompts, at 95 %: all answers to one prompt, also where it is
  asked twice, are drawn together. All figures come from the same draws, so that differences between
  models are paired. Where every prompt says the same, draws show no spread, and Wilson's interval
  over prompts stands in.

Legend: T prompts, N answers to each, R answers in all, C different prompts, B draws.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from murmuration.alignment.comparisons.length_control import (
    fit_wins,
    rate_at_equal_length,
    relative_length,
)
from murmuration.sims.population.win_rate import Estimate, wilson

_DRAWS = 2000
_AT_A_TIME = 2**22  # numbers of a draw that are held together
_STREAM = 0x77696E  # apart from the draws of answers, which begin with the same seed


class PromptBootstrap:
    """Intervals for means over answers, for other prompts like these; see the module."""

    def __init__(self, prompts: Sequence[str], seed: int) -> None:
        self._seed = seed
        self._cluster_T = np.unique(np.array(prompts, dtype=object), return_inverse=True)[1]
        self.clusters = int(self._cluster_T.max()) + 1

    def mean(self, values_TN: np.ndarray) -> Estimate:
        """The mean of T prompts' N values, and its interval; NaN are left out."""
        sums_C, sizes_C = self._sums(values_TN)
        if not sizes_C.sum():
            return Estimate(np.nan, np.nan, np.nan)
        means: list[np.ndarray] = []
        for counts_BC in self._draws(self.clusters):
            with np.errstate(invalid="ignore"):  # of a draw in which there is no value
                means.append((counts_BC @ sums_C) / (counts_BC @ sizes_C))
        low, high = np.nanpercentile(np.concatenate(means), [2.5, 97.5])
        return Estimate(float(sums_C.sum() / sizes_C.sum()), float(low), float(high))

    def share(self, values_TN: np.ndarray) -> Estimate:
        """The mean of values from 0 to 1, with an interval, as `mean`."""
        sums_C, sizes_C = self._sums(values_TN)
        means_C = sums_C / np.maximum(sizes_C, 1)
        return wilson(means_C) if np.ptp(means_C) < 1e-12 else self.mean(values_TN)

    def length_controlled(self, wins_TN: np.ndarray, longer_TN: np.ndarray) -> Estimate:
        """The share of wins at equal length, as `share`: see
        `alignment.comparisons.length_control`.

        Args:
            wins_TN: 1, 0, or 0.5 of a tie.
            longer_TN: the length of the model's answer less the other's, in characters.
        """
        if np.ptp(wins_TN) < 1e-12:
            return self.share(wins_TN)
        wins_R, longer_R = wins_TN.ravel(), relative_length(longer_TN.ravel())
        ones_1R = np.ones((1, len(wins_R)))
        whole_12 = fit_wins(wins_R, longer_R, ones_1R)
        cluster_R = np.repeat(self._cluster_T, wins_TN.shape[1])
        rates = [
            rate_at_equal_length(fit_wins(wins_R, longer_R, counts_BC[:, cluster_R], whole_12))
            for counts_BC in self._draws(len(wins_R))
        ]
        low, high = np.percentile(np.concatenate(rates), [2.5, 97.5])
        return Estimate(float(rate_at_equal_length(whole_12)[0]), float(low), float(high))

    def _draws(self, width: int) -> Iterator[np.ndarray]:
        """Yield the number of draws of each distinct prompt, (B, C), in batches for rows of
        ``width`` numbers.
        """
        generator = np.random.default_rng([self._seed, _STREAM])
        rows = max(1, _AT_A_TIME // width)
        for at in range(0, _DRAWS, rows):
            draws = min(rows, _DRAWS - at)
            drawn_BC = generator.integers(self.clusters, size=(draws, self.clusters))
            drawn_BC += np.arange(draws)[:, None] * self.clusters
            counts = np.bincount(drawn_BC.ravel(), minlength=draws * self.clusters)
            yield counts.reshape(draws, self.clusters).astype(float)

    def _sums(self, values_TN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums and numbers of values of each different prompt."""
        known_TN = np.isfinite(values_TN)
        summed_T = np.where(known_TN, values_TN, 0.0).sum(1)
        return (
            np.bincount(self._cluster_T, summed_T, self.clusters),
            np.bincount(self._cluster_T, known_TN.sum(1).astype(float), self.clusters),
        )
