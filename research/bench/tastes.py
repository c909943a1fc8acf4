"""How many users a second a node computes with a basis of rewards, beside one reward for all.

Random pairs with features of length one; each reading takes one reward and each basis in turn, so
that whatever else the machine does meets all of them alike. What is timed is the clipped sum over a
cohort, as `strategies.uls` has it, in seconds of the processor on one thread: a reading of one
reward is so short that on a busy machine it alone would go undisturbed.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.tastes import TasteExamples, halves
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip

TASTES, DIMENSIONS = (2, 4, 8), (385, 1025)
_CLIP = UserClip(0.1)


def measure(
    dimension: int, repetitions: int, tastes: Sequence[int] = TASTES, users: int = 500
) -> list[dict[str, Any]]:
    """Return a row for one reward, and one for each K: users per second, and as a share of what one
    reward reaches; medians, after a reading that warms up."""
    each = 10
    draw = torch.Generator().manual_seed(0)
    x_RD = torch.nn.functional.normalize(torch.randn(users * each, dimension, generator=draw))
    pairs = PairExamples(
        x_RD,
        (torch.rand(len(x_RD), generator=draw) < 0.5).float(),
        torch.arange(0, len(x_RD) + 1, each),
    )
    half_J = halves(np.arange(2 * len(x_RD)).reshape(-1, 2), pairs.start_U.numpy())
    ways = {k: _sum_of(pairs if k == 1 else TasteExamples(pairs, k, half_J)) for k in (1, *tastes)}
    seconds: dict[int, list[float]] = {k: [] for k in ways}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(repetitions + 1):
            for k, way in ways.items():
                begun = time.process_time()
                way()
                seconds[k].append(time.process_time() - begun)
    finally:
        torch.set_num_threads(threads)
    rates = {k: users / median(read[1:]) for k, read in seconds.items()}
    return [
        {"d": dimension, "tastes": k, "users_per_second": rate, "share_of_one": rate / rates[1]}
        for k, rate in rates.items()
    ]


def _sum_of(examples: PairExamples | TasteExamples) -> Callable[[], torch.Tensor]:
    """Return what computes the clipped sum over all users at some θ."""
    generator = torch.Generator().manual_seed(1)
    theta_E = 0.1 * torch.randn(examples.dimension, generator=generator)
    every_N = torch.arange(int(examples.start_U[-1]))
    model = preference_model("btl")
    return lambda: examples.sum_over_users(
        theta_E, every_N, examples.counts_U, _CLIP.clip_sum, model
    )
