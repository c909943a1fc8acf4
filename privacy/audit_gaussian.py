"""Audits of noisy sums: one, many on sampled cohorts, and a sum with a count beside it.

The worst case for a sum of clipped vectors is a user who contributes C in one direction and, on the
other data set, nothing (or C in the opposite direction, where users are replaced); what all others
contribute is known to the attacker and subtracted, so it is left out here. The attacker sees every
noisy sum and uses the likelihood ratio of the sampled mixture, summed over rounds: no attacker on
this pair does better (Neyman and Pearson).

Trials are coordinates: each round, the cohort's coins are drawn for N users at once, each is a
trial of its own, and one release adds noise to all of them.

Legend: N trials, B users in a chunk, D dimensions.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from privacy import accounting
from privacy.accounting import noise_multiplier_for
from privacy.adjacency import Adjacency
from privacy.audit import DELTA, Measured, Target, Task, scratch_ledger
from privacy.audit_bounds import Scores
from privacy.clipping import UserClip
from privacy.joint import CountingClip, JointSum, sum_noise_for
from privacy.release import GaussianSum
from privacy.sampling import PoissonSampler

_CLIP = 0.1
_LONG = 1e3  # far outside the ball
_JOINT_ROUNDS, _JOINT_PROBABILITY = 2, 0.5

#: A mechanism from the parameters of ``GaussianSum``; audits of seeded faults pass another.
Make = Callable[[PoissonSampler, UserClip, float, Adjacency], GaussianSum]


def log_ratio(x_N: np.ndarray, probability: float, noise: float) -> np.ndarray:
    """log of (1 − q + q exp(x/σ² − 1/2σ²)): the canary's contribution of 1 was sampled, or was not.

    ``x_N`` are noisy sums in units of the clip norm.
    """
    loss_N = (x_N - 0.5) / noise**2
    if probability == 1.0:
        return loss_N
    return np.logaddexp(math.log1p(-probability), math.log(probability) + loss_N)


def sampled_scores(
    task: Task,
    make: Make = GaussianSum,
    *,
    rounds: int,
    probability: float,
    clip: UserClip | None = None,
) -> tuple[Scores, float]:
    """Scores and the claim of ``rounds`` noisy sums over Poisson cohorts.

    ``make`` and ``clip`` stand in for the real ones in audits of seeded faults.
    """
    noise = noise_multiplier_for(
        task.epsilon,
        delta=DELTA,
        probability=probability,
        rounds=rounds,
        adjacency=task.adjacency,
    )
    clip = clip or UserClip(_CLIP)
    mechanism = make(PoissonSampler(probability), clip, noise, task.adjacency)
    replaced = task.adjacency.vectors_changed == 2
    canary = clip.clip_sum(torch.tensor([[_LONG]])).item()
    other = clip.clip_sum(torch.tensor([[-_LONG]])).item() if replaced else 0.0
    found, claims = [], []
    for second, value in ((False, canary), (True, other)):
        source, score_N = task.side(second), np.zeros(task.trials)
        with scratch_ledger(task.adjacency) as ledger:
            for round_ in range(1, rounds + 1):
                exact_N = np.zeros(task.trials)
                names_N = np.arange(task.trials, dtype=np.uint64)
                exact_N[mechanism.sampler.draw(names_N, source, round_)] = value
                noisy_N = mechanism.release(
                    exact_N, round_=round_, covers="gradient sum", ledger=ledger, source=source
                )
                x_N = noisy_N / clip.norm
                score_N += log_ratio(x_N, probability, noise)
                if replaced:
                    score_N -= log_ratio(-x_N, probability, noise)
            claims.append(ledger.epsilon())
        found.append(score_N)
    return Scores(*found), max(claims)


def audit_gaussian(task: Task, make: Make = GaussianSum) -> Measured:
    """One Gaussian sum over everybody."""
    scores, claimed = sampled_scores(task, make, rounds=1, probability=1.0)
    return Measured.of(scores, claimed, task, fit=True)


def audit_poisson(
    task: Task, make: Make = GaussianSum, *, rounds: int = 50, probability: float = 0.05
) -> Measured:
    """Gaussian sums over Poisson-sampled cohorts."""
    scores, claimed = sampled_scores(task, make, rounds=rounds, probability=probability)
    return Measured.of(scores, claimed, task)


def audit_joint(
    task: Task,
    make: Callable[[PoissonSampler, UserClip, float, float, Adjacency], JointSum] = JointSum,
    *,
    centred: bool = False,
) -> Measured:
    """A sum and a centred count released together, as the adaptive strategies do, twice over.

    The canary is as long as the clip norm allows and within it: C and +½. Replaced, they are C in
    the opposite direction and −½.
    """
    q, rounds = _JOINT_PROBABILITY, _JOINT_ROUNDS
    effective = noise_multiplier_for(
        task.epsilon, delta=DELTA, probability=q, rounds=rounds, adjacency=task.adjacency
    )
    count_noise = 2.0 * effective
    noise = sum_noise_for(effective, count_noise)
    mechanism = make(PoissonSampler(q), UserClip(_CLIP), noise, count_noise, task.adjacency)
    centre_D = torch.tensor([3.0], dtype=torch.float64) if centred else None
    bound = CountingClip(_CLIP, 0.5, centre_D)
    at = 0.0 if centre_D is None else centre_D.item()
    replaced = task.adjacency.vectors_changed == 2
    # Within the ball by a little: c + r − c is not always r in floating point.
    canary = bound.clip_sum(torch.tensor([[at + _CLIP * (1 - 1e-9)]], dtype=torch.float64))
    other = bound.clip_sum(torch.tensor([[at - _LONG]], dtype=torch.float64))

    def one_way(sum_N: np.ndarray, count_N: np.ndarray) -> np.ndarray:
        loss_N = sum_N / noise**2 + count_N / 2 / count_noise**2 - 0.5 / effective**2
        return np.logaddexp(math.log1p(-q), math.log(q) + loss_N)

    found, event = [], mechanism.event
    for second, value in ((False, canary), (True, other if replaced else torch.zeros(2))):
        source, noisy_N2 = task.side(second), np.zeros((task.trials, 2))
        score_N = np.zeros(task.trials)
        with scratch_ledger(task.adjacency) as ledger:
            for round_ in range(1, rounds + 1):
                exact_N2 = np.zeros((task.trials, 2))
                names_N = np.arange(task.trials, dtype=np.uint64)
                exact_N2[mechanism.sampler.draw(names_N, source, round_)] = value.numpy()
                for trial, (total, count) in enumerate(exact_N2):
                    noisy_D, noisy_count = mechanism.release(
                        np.array([total]),
                        count,
                        round_=trial * rounds + round_,
                        covers="gradient sum and count",
                        ledger=ledger,
                        source=source,
                    )
                    noisy_N2[trial] = noisy_D[0] / _CLIP, noisy_count
                score_N += one_way(noisy_N2[:, 0], noisy_N2[:, 1])
                if replaced:
                    score_N -= one_way(-noisy_N2[:, 0], -noisy_N2[:, 1])
            if set(ledger.spent()) != {event}:
                raise AssertionError("the ledger was charged something else")
        found.append(score_N)
    claimed = accounting.epsilon([(event, rounds)], adjacency=task.adjacency, delta=DELTA)
    return Measured.of(Scores(*found), claimed, task)


TARGETS = {
    "gaussian": Target(
        "one Gaussian sum of clipped vectors", audit_gaussian, trials=25_000_000, power=0.8
    ),
    "poisson-gaussian": Target(
        "50 Gaussian sums over Poisson cohorts, q = 0.05",
        audit_poisson,
        trials=2_500_000,
        power=0.6,
    ),
    "adaptive": Target(
        "Gaussian sum and count of who was not clipped, in one charge", audit_joint, trials=40_000
    ),
    "aup": Target(
        "the same about a released centre: AUP, centred",
        partial(audit_joint, centred=True),
        trials=40_000,
    ),
}
