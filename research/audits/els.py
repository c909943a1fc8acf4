"""Audits of sampled examples: ELS, and group privacy, which runs the same.

The worst case is a user with G judgements whose gradients are equal. The sampling is that of the
node half, independent per judgement; each of N users is a separate trial.

Legend: N trials, K counts.
"""

from functools import partial

import numpy as np
import torch
from scipy import stats

from murmuration.audits.auditing import DELTA, Measured, Target, Task
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.coins import bernoulli
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import COMES_OR_GOES
from murmuration.research.audits.trials import both_sides
from murmuration.strategies.els import ElsPlan, GroupPlan

_SIZE, _PROBABILITY, _ROUNDS = 4, 0.1, 10


def log_ratio(x_N: np.ndarray, size: int, probability: float, noise: float) -> np.ndarray:
    """log Σ_k Binom(k; G, p) exp((k x − k²/2)/σ²), x in clip norms: Charles et al. 2024, Thm 1."""
    counts_K = np.arange(size + 1)
    weights_K = stats.binom.logpmf(counts_K, size, probability)
    found_N = np.full(len(x_N), -np.inf)
    for count, weight in zip(counts_K, weights_K, strict=True):
        found_N = np.logaddexp(found_N, weight + (count * x_N - count**2 / 2) / noise**2)
    return found_N


def sums(plan: ElsPlan, trials: int, round_: int, source: Randomness, pull: float) -> np.ndarray:
    """The exact sums of users with G judgements each, float64 (N,)."""
    keys_N = np.arange(trials, dtype=np.uint64)
    count_N = np.zeros(trials)
    for place in range(plan.group_size):
        words_N = source.example_words("example", round_, keys_N, np.full(trials, place))
        count_N += bernoulli(words_N, plan.probability)
    row = torch.tensor([[1e3 * pull]])
    one = plan.clip.clip_sum(row, torch.ones(1), torch.linalg.vector_norm(row.double(), dim=1))
    return count_N * one.item()


def audit_examples(task: Task, kind: type[ElsPlan] = ElsPlan) -> Measured:
    """Ten rounds of sampled judgements of a user who keeps four."""
    plan = kind.for_epsilon(
        task.epsilon,
        users=1,
        group_size=_SIZE,
        probability=_PROBABILITY,
        rounds=_ROUNDS,
        delta=DELTA,
        adjacency=task.adjacency,
        clip=ExampleClip(0.1),
    )
    replaced = task.adjacency.vectors_changed == 2
    terms = (plan.group_size, plan.probability, plan.noise_multiplier)

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        score_N = np.zeros(task.trials)
        pull = (-1.0 if replaced else 0.0) if second else 1.0
        for round_ in range(1, plan.rounds + 1):
            noisy_N = plan.mechanism.release(
                sums(plan, task.trials, round_, source, pull),
                round_=round_,
                covers="gradient sum",
                ledger=ledger,
                source=source,
            )
            x_N = noisy_N / plan.clip.norm
            score_N += log_ratio(x_N, *terms)
            if replaced:
                score_N -= log_ratio(-x_N, *terms)
        return score_N

    return both_sides(task, one).measured(task)


TARGETS = {
    "els": Target(
        "10 rounds of sampled judgements, G = 4, p = 0.1",
        audit_examples,
        adjacencies=COMES_OR_GOES,
        trials=500_000,
        power=0.6,
    ),
    "group": Target(
        "the same, accounted by group privacy",
        partial(audit_examples, kind=GroupPlan),
        trials=500_000,
    ),
}
