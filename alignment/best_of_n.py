"""Best of n: of n answers the one that a reward likes best.

How far that moves from the model that writes is bounded, whatever the reward: its Kullback-Leibler
divergence from the model, for each prompt, is at most ln n − (n − 1)/n. (Beirami et al. 2024,
"Theoretical guarantees on the best-of-n alignment policy", Theorem 3.1; with few different answers
it is smaller.) Choosing uses no private data: it is post-processing of a released reward.

From one pool of N answers to a prompt every n ≤ N can be judged without drawing anew. Of all
C(N, n) subsets of size n, the k-th lowest reward is the highest in C(k − 1, n − 1); so the mean,
over all subsets, of any figure of the answer that is chosen is a sum over the pool with these
weights. That is a U-statistic: unbiased, if the pool's answers are independent draws.

Legend: P prompts, N answers to each.
"""

from collections.abc import Iterator
from math import log

import numpy as np

from murmuration.alignment.pool import Pool
from murmuration.preference.data.errors import InputError


def kl_bound(n: int) -> float:
    """The bound on the KL divergence of best of n from its model, in nats: ln n − (n − 1)/n."""
    return log(n) - (n - 1) / n


def best(pool: Pool) -> list[int]:
    """The index of the answer to each prompt with the highest reward; the first of equal ones."""
    return pool.rewards_PN.argmax(1).tolist()


def expected_best(
    rewards_PN: np.ndarray, figures_PN: np.ndarray, most: int | None = None
) -> np.ndarray:
    """The expected figure of what best of n chooses, for n = 1 … ``most`` (N), (most, P) float64.

    Over all subsets of n of the N answers of a prompt, exactly, without drawing any. Where several
    in a subset have the highest reward, each is chosen alike. Row 0 is the plain mean.

    Args:
        rewards_PN: by which is chosen; not NaN.
        figures_PN: anything about the same answers: a true reward, 1 for a win, a length. A figure
            that is not finite makes those means so in which it counts.
        most: the largest n.

    Raises:
        InputError: shapes that differ, a reward that is NaN, or no n from 1 to N.
    """
    rewards_PN = np.asarray(rewards_PN, dtype=np.float64)
    figures_PN = np.asarray(figures_PN, dtype=np.float64)
    if rewards_PN.ndim != 2 or rewards_PN.shape != figures_PN.shape:
        raise InputError(
            "expected_best takes rewards and figures of one shape (prompts, answers); got "
            f"{rewards_PN.shape} and {figures_PN.shape}"
        )
    prompts, pool = rewards_PN.shape
    highest = pool if most is None else most
    if not 1 <= highest <= pool:
        raise InputError(f"best of n of {pool} answers needs an n from 1 to {pool}; got {highest}")
    if np.isnan(rewards_PN).any():
        raise InputError("expected_best: a reward is NaN")
    found_nP = np.empty((highest, prompts))
    for place, chance_PN in enumerate(_chances(rewards_PN, highest)):
        # What cannot be chosen does not count, whatever its figure: 0 · inf would be NaN.
        counted_PN = np.where(chance_PN > 0, figures_PN, 0.0)
        found_nP[place] = (chance_PN * counted_PN).sum(1)
    return found_nP


def chances(rewards_PN: np.ndarray, n: int) -> np.ndarray:
    """The probability of each answer to be the best of a random subset of n, (P, N) float64.

    As in `expected_best`, whose means have these weights. Of each prompt they add up to one.

    Args:
        rewards_PN: by which is chosen; not NaN.
        n: from 1 to N.
    """
    *_, chance_PN = _chances(np.asarray(rewards_PN, dtype=np.float64), n)
    return chance_PN


def _chances(rewards_PN: np.ndarray, highest: int) -> Iterator[np.ndarray]:
    """Yield `chances` for n = 1 … ``highest``."""
    below_PN, upto_PN = _ranks(rewards_PN)
    pool = rewards_PN.shape[1]
    # The chance that all n are among the k lowest, C(k, n) / C(N, n), for k = 0 … N.
    lowest_K, kept = np.ones(pool + 1), np.arange(pool + 1)
    for n in range(1, highest + 1):
        lowest_K = lowest_K * np.maximum(kept - (n - 1), 0) / (pool - (n - 1))
        yield (lowest_K[upto_PN] - lowest_K[below_PN]) / (upto_PN - below_PN)


def _ranks(rewards_PN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each answer, the number of answers to its prompt with a lower reward, and with a lower or
    equal one.
    """
    order_PN = rewards_PN.argsort(1, kind="stable")
    sorted_PN = np.take_along_axis(rewards_PN, order_PN, 1)
    place_N = np.arange(rewards_PN.shape[1])
    first_PN = np.ones(rewards_PN.shape, dtype=bool)  # of those that are equal
    first_PN[:, 1:] = sorted_PN[:, 1:] != sorted_PN[:, :-1]
    last_PN = np.roll(first_PN, -1, axis=1)
    below_PN = np.maximum.accumulate(np.where(first_PN, place_N, 0), axis=1)
    upto_PN = np.where(last_PN, place_N + 1, rewards_PN.shape[1])
    upto_PN = np.minimum.accumulate(upto_PN[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty_like(order_PN), np.empty_like(order_PN)
    for rank_PN, found_PN in zip(ranks, (below_PN, upto_PN), strict=True):
        np.put_along_axis(rank_PN, order_PN, found_PN, 1)
    return ranks
