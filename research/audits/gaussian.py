"""Audits of noisy sums: one, many on sampled cohorts, and a sum with a count beside it.

The worst case for a sum of clipped vectors is a user who contributes C in one direction and, on the
other data set, nothing (or C in the opposite direction, where users are replaced); what all others
contribute is known to the attacker and subtracted, so it is left out here. The attacker sees every
noisy sum and uses the likelihood ratio of the sampled mixture, summed over rounds: no attacker on
this pair does better (Neyman and Pearson).

Trials are coordinates: in each round N users are sampled at once, each is a separate trial, and one
release adds noise to all of them.

Legend: N trials, B users in a chunk, D dimensions.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from murmuration.audits.auditing import DELTA, Measured, Scores, Target, Task
from murmuration.audits.pipeline import log_ratio
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.accountant import noise_multiplier_for
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.continual.correlated_sum import CorrelatedNoise, CorrelatedSum
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.counting_clip import CountingClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise, installed
from murmuration.privacy.mechanisms.distributed import (
    DistributedNoise,
    NodeNoise,
    NoisySum,
    against_server,
    with_share,
)
from murmuration.privacy.mechanisms.noisy_sum import (
    GaussianSum,
    JointSum,
    sum_noise_for,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import (
    CyclicSampler,
    PoissonSampler,
)
from murmuration.privacy.theorems import COMES_OR_GOES
from murmuration.research.audits.trials import Trials, both_sides, charged_alone

_CLIP = 0.1
_LONG = 1e3  # far outside the ball
_JOINT_ROUNDS, _JOINT_PROBABILITY = 2, 0.5

#: A mechanism from the parameters of ``GaussianSum``; audits of seeded faults pass another.
Make = Callable[[PoissonSampler, UserClip, float, Adjacency], GaussianSum]


def sampled_sums(
    task: Task,
    make: Make = GaussianSum,
    *,
    rounds: int,
    probability: float,
    clip: UserClip | None = None,
) -> Trials:
    """``rounds`` noisy sums over Poisson cohorts.

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
    sampler = mechanism.sampler
    if not isinstance(sampler, PoissonSampler):
        raise TypeError("this attacker knows Poisson cohorts alone")
    replaced = task.adjacency.vectors_changed == 2
    canary = clip.clip_sum(torch.tensor([[_LONG]])).item()
    other = clip.clip_sum(torch.tensor([[-_LONG]])).item() if replaced else 0.0

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        score_N = np.zeros(task.trials)
        for round_ in range(1, rounds + 1):
            exact_N, names_N = np.zeros(task.trials), np.arange(task.trials, dtype=np.uint64)
            drawn = sampler.draw(names_N, source, round_)
            exact_N[drawn] = other if second else canary
            noisy_N = mechanism.release(
                exact_N, round_=round_, covers="gradient sum", ledger=ledger, source=source
            )
            x_N = noisy_N / clip.norm
            score_N += log_ratio(x_N, probability, noise)
            if replaced:
                score_N -= log_ratio(-x_N, probability, noise)
        return score_N

    return both_sides(task, one)


def audit_gaussian(task: Task, make: Make = GaussianSum) -> Measured:
    """Audit one Gaussian sum over all users."""
    return sampled_sums(task, make, rounds=1, probability=1.0).measured(task, fit=True)


def audit_poisson(
    task: Task, make: Make = GaussianSum, *, rounds: int = 50, probability: float = 0.05
) -> Measured:
    """Gaussian sums over Poisson-sampled cohorts."""
    return sampled_sums(task, make, rounds=rounds, probability=probability).measured(task)


#: Of banded noise: how it is correlated, and how often a user is in, over three cycles.
_FACTOR = Banded((0.8, 0.5, 0.3))
_TURN, _CYCLES = 0.5, 3


def _correlated(
    task: Task,
    sampler: CyclicSampler,
    clip: UserClip,
    factor: Banded | BufferedToeplitz,
    rounds: int,
) -> CorrelatedSum:
    """The mechanism whose rounds cost the task's epsilon together."""

    def make(sigma: float) -> CorrelatedSum:
        return CorrelatedSum(sampler, clip, sigma, task.adjacency, factor)

    def charges(sigma: float) -> dict[Event, int]:
        return make(sigma).charges(rounds)

    return make(
        accountant.calibrate_noise(task.epsilon, charges, delta=DELTA, adjacency=task.adjacency)
    )


def audit_banded(task: Task, factor: Banded = _FACTOR, *, every_round: bool = False) -> Measured:
    """Sums of three groups in turn, with noise that is correlated over three rounds.

    The attacker knows the canary's group and takes the correlation back: C times what was released.
    Of that, what the canary may be in is matched with their column of C, turn by turn.

    Two faults: a ``factor`` with longer columns, or a canary who is sampled in ``every_round``, and
    not only in the turns of their group.
    """
    sampler, clip = CyclicSampler(_TURN / factor.groups, factor.groups), UserClip(_CLIP)
    rounds = factor.groups * _CYCLES

    mechanism, coins = _correlated(task, sampler, clip, factor, rounds), sampler.of_group
    noise = mechanism.noise_multiplier
    canary = clip.clip_sum(torch.tensor([[_LONG]])).item()
    names_N = np.arange(task.trials, dtype=np.uint64)
    column = np.array(factor.coefficients)
    longer = float(column @ column)

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        memory, score_N = CorrelatedNoise(mechanism), np.zeros(task.trials)
        before: deque[np.ndarray] = deque(maxlen=factor.groups)  # the last sums, the newest first
        mixed: deque[np.ndarray] = deque(maxlen=factor.groups)  # C times these, the oldest first
        for round_ in range(1, rounds + 1):
            exact_N, here = np.zeros(task.trials), every_round or sampler.group(round_) == 0
            if here and not second:
                exact_N[coins.draw(names_N, source, round_)] = canary
            noisy_N = memory.release(
                exact_N, round_=round_, covers="sum", ledger=ledger, source=source
            )
            before.appendleft(noisy_N / clip.norm)
            mixed.append(np.sum([c * x_N for c, x_N in zip(column, before, strict=False)], axis=0))
            first = round_ - factor.groups + 1  # of the rounds that all of ``mixed`` is about
            if first >= 1 and (every_round or sampler.group(first) == 0):
                matched_N = column @ np.array(mixed) / longer
                score_N += log_ratio(matched_N, coins.probability, noise / math.sqrt(longer))
        return score_N

    return both_sides(task, one).measured(task)


#: Of buffered noise, in nine rounds of three groups in turn.
_BUFFERED = BufferedToeplitz.scaled(np.array([0.6, 0.2]), np.array([0.7, 0.3]), 9, 3)


def audit_buffered(
    task: Task, factor: BufferedToeplitz = _BUFFERED, *, every_round: bool = False
) -> Measured:
    """Audit sums of three groups in turn, with all users of each, and noise that all rounds share.

    The attacker takes the correlation back, C times what was released, and weighs it as the
    canary's columns of C do; so each release counts as Cᵀ times that weighs it.

    Two faults: a ``factor`` in which a user adds more than 1, or a canary that is in
    ``every_round``.
    """
    rounds, clip = factor.rounds, UserClip(_CLIP)
    sampler = CyclicSampler(1.0 / factor.groups, factor.groups)
    mechanism = _correlated(task, sampler, clip, factor, rounds)
    canary = clip.clip_sum(torch.tensor([[_LONG]])).item()
    other = -canary if task.adjacency.vectors_changed == 2 else 0.0
    there_T = np.array([every_round or sampler.group(t) == 0 for t in range(1, rounds + 1)])
    row_T = factor.row_T(rounds)
    moved_T = np.convolve(row_T, there_T)[:rounds]  # C x
    weight_T = np.convolve(row_T, moved_T[::-1])[:rounds][::-1]  # Cᵀ C x

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        noisy, score_N = CorrelatedNoise(mechanism), np.zeros(task.trials)
        for round_, (there, weight) in enumerate(zip(there_T, weight_T, strict=True), start=1):
            exact_N = np.full(task.trials, there * (other if second else canary))
            released_N = noisy.release(
                exact_N, round_=round_, covers="sum", ledger=ledger, source=source
            )
            score_N += weight * released_N
        return score_N

    return both_sides(task, one).measured(task)


def audit_joint(
    task: Task,
    make: Callable[..., JointSum] = JointSum,
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
    sampler = PoissonSampler(q)
    mechanism = make(sampler, UserClip(_CLIP), noise, task.adjacency, count_noise=count_noise)
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

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        value = (other if replaced else torch.zeros(2)) if second else canary
        noisy_N2, score_N = np.zeros((task.trials, 2)), np.zeros(task.trials)
        for round_ in range(1, rounds + 1):
            exact_N2 = np.zeros((task.trials, 2))
            names_N = np.arange(task.trials, dtype=np.uint64)
            exact_N2[sampler.draw(names_N, source, round_)] = value.numpy()
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
        return score_N

    result, event = both_sides(task, one), mechanism.event
    charged_alone(result, event)
    claimed = accountant.epsilon([(event, rounds)], adjacency=task.adjacency, delta=DELTA)
    return Measured.from_scores(result.scores, claimed, task)


# Audits of discrete Gaussian noise on a grid, drawn by the server, or in shares by the nodes.
#
# Coordinates are trials, as in ``research.audits.gaussian``; the noise is accounted for as many
# coordinates as there are trials. It comes from the operating system, so no seed repeats this
# audit.
#
# Legend: N trials.


def audit_discrete(task: Task) -> Measured:
    """Audit one sum over all users; ValueError if the library that draws the noise is not
    installed.
    """
    if not installed():
        raise ValueError("discrete noise needs OpenDP: pip install 'murmuration-rlhf[secure]'")
    discrete, clip = DiscreteNoise(task.trials), UserClip(_CLIP)
    noise = accountant.calibrate_noise(
        task.epsilon,
        lambda sigma: {discrete.charged(PoissonGaussian(1.0, sigma)): 1},
        delta=DELTA,
        adjacency=task.adjacency,
    )
    mechanism = GaussianSum(PoissonSampler(1.0), clip, noise, task.adjacency, discrete)
    other = -1e3 if task.adjacency.vectors_changed == 2 else 0.0

    def one(second: bool, ledger: Ledger, _: Randomness) -> np.ndarray:
        pull = other if second else 1e3
        exact_N = np.full(task.trials, clip.clip_sum(torch.tensor([[pull]])).item())
        source = Randomness(None)
        return mechanism.release(exact_N, round_=1, covers="sum", ledger=ledger, source=source)

    return both_sides(task, one).measured(task, fit=True)


#: Nodes whose shares are the noise, and the chance of a user to be asked.
_PARTIES, _SAMPLED = 4, 0.1


def audit_distributed(task: Task, *, adding: int = _PARTIES, amplified: bool = False) -> Measured:
    """The server's own view of a round: the sum that it unmasks, before it adds anything.

    Nodes add their shares by the code with which they do before they mask; as many are in the sum
    as the noise is made for, and the server knows that the user was asked.

    Two faults: fewer nodes are ``adding`` their noise, or the server's own view is claimed to be
    ``amplified`` by sampling that the server did itself.
    """
    if not installed():
        raise ValueError("noise in shares needs OpenDP: pip install 'murmuration-rlhf[secure]'")
    noise, clip = DistributedNoise(task.trials, _PARTIES), UserClip(_CLIP)

    def seen(sigma: float) -> dict[Event, int]:
        published = {noise.charged(PoissonGaussian(_SAMPLED, sigma)): 1}
        return published if amplified else against_server(published) or {}

    sigma = accountant.calibrate_noise(task.epsilon, seen, delta=DELTA, adjacency=task.adjacency)
    noisy = NoisySum(sigma * clip.norm, clip.step, clip.norm)
    shares = NodeNoise(_PARTIES, {"sum": noisy}).shares
    claimed = accountant.epsilon(seen(sigma).items(), adjacency=task.adjacency, delta=DELTA)
    other = -1e3 if task.adjacency.vectors_changed == 2 else 0.0
    result = []
    for pull in (1e3, other):
        mine_N = np.full(task.trials, clip.clip_sum(torch.tensor([[pull]])).item())
        total_N = np.zeros(task.trials, dtype=np.int64)
        for node in range(_PARTIES):
            exact_N = grid.to_whole(mine_N if node == 0 else 0.0 * mine_N, clip.step)
            if node < adding:
                exact_N = with_share({"sum": exact_N}, {"sum": clip.step}, shares)["sum"]
            total_N += exact_N
        result.append(grid.from_whole(total_N, clip.step))
    return Measured.from_scores(Scores(*result), claimed, task, fit=True)


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
    "banded-gaussian": Target(
        "9 Gaussian sums of 3 groups in turn, with noise that 3 rounds share",
        audit_banded,
        adjacencies=COMES_OR_GOES,
        trials=2_500_000,
        power=0.6,
    ),
    "blt-gaussian": Target(
        "9 Gaussian sums of 3 groups in turn, everybody of a group, with noise that all share",
        audit_buffered,
        trials=2_500_000,
    ),
    "adaptive": Target(
        "Gaussian sum and count of who was not clipped, in one charge", audit_joint, trials=40_000
    ),
    "aup": Target(
        "the same about a released centre: AUP, centred",
        partial(audit_joint, centred=True),
        trials=40_000,
    ),
    "distributed-gaussian": Target(
        "what the server sees of one sum whose noise the nodes add in shares",
        audit_distributed,
        trials=200_000,
        needs="opendp",
    ),
    "discrete-gaussian": Target(
        "one sum on the integer grid with discrete Gaussian noise",
        audit_discrete,
        trials=200_000,
        needs="opendp",
    ),
}
