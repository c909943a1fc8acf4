"""Audits of sampled examples: ELS, and group privacy, which runs the same.

The worst case is a user with G judgements who all pull the same way. The coins are those of the
node half, one a judgement; each of N users is a trial of their own.

Legend: N trials, K counts.
"""

import numpy as np
import torch
from scipy import stats

from murmuration.privacy.auditing import (
    COMES_OR_GOES,
    DELTA,
    Measured,
    Scores,
    Target,
    Task,
    scratch_ledger,
)
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.coins import heads
from murmuration.privacy.mechanisms.randomness import Randomness
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
        count_N += heads(words_N, plan.probability)
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
    found, claims = [], []
    for second in (False, True):
        source, score_N = task.side(second), np.zeros(task.trials)
        pull = (-1.0 if replaced else 0.0) if second else 1.0
        with scratch_ledger(task.adjacency) as ledger:
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
            claims.append(ledger.epsilon())
        found.append(score_N)
    return Measured.of(Scores(*found), max(claims), task)


def _audit_group(task: Task) -> Measured:
    return audit_examples(task, GroupPlan)


TARGETS = {
    "els": Target(
        "10 rounds of sampled judgements, G = 4, p = 0.1",
        audit_examples,
        adjacencies=COMES_OR_GOES,
        trials=500_000,
        power=0.6,
    ),
    "group": Target("the same, accounted by group privacy", _audit_group, trials=500_000),
}
