"""Audits of discrete Gaussian noise on a grid, drawn by the server, or in shares by the nodes.

Coordinates are trials, as in ``privacy.audit_gaussian``; the noise is accounted for as many
coordinates as there are trials. It comes from the operating system, so no seed repeats this audit.

Legend: N trials.
"""

import numpy as np
import torch

from privacy import accounting, grid
from privacy.audit import DELTA, Measured, Target, Task, scratch_ledger
from privacy.audit_bounds import Scores
from privacy.clipping import UserClip
from privacy.discrete import DiscreteNoise, installed
from privacy.distributed import (
    DistributedNoise,
    NodeNoise,
    NoisySum,
    against_server,
    with_share,
)
from privacy.events import Event, PoissonGaussian
from privacy.randomness import Randomness
from privacy.release import GaussianSum
from privacy.sampling import PoissonSampler

_CLIP = 0.1


def audit_discrete(task: Task) -> Measured:
    """One sum over everybody; ValueError if the library that draws the noise is not installed."""
    if not installed():
        raise ValueError("discrete noise needs OpenDP: pip install 'murmuration[secure]'")
    discrete, clip = DiscreteNoise(task.trials), UserClip(_CLIP)
    noise = accounting.calibrate_noise(
        task.epsilon,
        lambda sigma: {discrete.charged(PoissonGaussian(1.0, sigma)): 1},
        delta=DELTA,
        adjacency=task.adjacency,
    )
    mechanism = GaussianSum(PoissonSampler(1.0), clip, noise, task.adjacency, discrete)
    other = -1e3 if task.adjacency.vectors_changed == 2 else 0.0
    found, claims = [], []
    for pull in (1e3, other):
        exact_N = np.full(task.trials, clip.clip_sum(torch.tensor([[pull]])).item())
        with scratch_ledger(task.adjacency) as ledger:
            found.append(
                mechanism.release(
                    exact_N, round_=1, covers="sum", ledger=ledger, source=Randomness(None)
                )
            )
            claims.append(ledger.epsilon())
    return Measured.of(Scores(*found), max(claims), task, fit=True)


#: Nodes whose shares are the noise, and the chance of a user to be asked.
_PARTIES, _SAMPLED = 4, 0.1


def audit_distributed(task: Task, *, adding: int = _PARTIES, amplified: bool = False) -> Measured:
    """The server's own view of a round: the sum that it unmasks, before it adds anything.

    Nodes add their shares by the code with which they do before they mask; as many are in the sum
    as the noise is made for, and the server knows that the user was asked.

    Two ways to get it wrong: fewer are ``adding`` theirs, or what the server sees is claimed to be
    ``amplified`` by coins that it has tossed itself.
    """
    if not installed():
        raise ValueError("noise in shares needs OpenDP: pip install 'murmuration[secure]'")
    noise, clip = DistributedNoise(task.trials, _PARTIES), UserClip(_CLIP)

    def seen(sigma: float) -> dict[Event, int]:
        published = {noise.charged(PoissonGaussian(_SAMPLED, sigma)): 1}
        return published if amplified else against_server(published) or {}

    sigma = accounting.calibrate_noise(task.epsilon, seen, delta=DELTA, adjacency=task.adjacency)
    noisy = NoisySum(sigma * clip.norm, clip.step, clip.norm)
    shares = NodeNoise(_PARTIES, {"sum": noisy}).shares
    claimed = accounting.epsilon(seen(sigma).items(), adjacency=task.adjacency, delta=DELTA)
    other = -1e3 if task.adjacency.vectors_changed == 2 else 0.0
    found = []
    for pull in (1e3, other):
        mine_N = np.full(task.trials, clip.clip_sum(torch.tensor([[pull]])).item())
        total_N = np.zeros(task.trials, dtype=np.int64)
        for node in range(_PARTIES):
            exact_N = grid.to_whole(mine_N if node == 0 else 0.0 * mine_N, clip.step)
            if node < adding:
                exact_N = with_share({"sum": exact_N}, {"sum": clip.step}, shares)["sum"]
            total_N += exact_N
        found.append(grid.from_whole(total_N, clip.step))
    return Measured.of(Scores(*found), claimed, task, fit=True)


TARGETS = {
    "distributed-gaussian": Target(
        "what the server sees of one sum whose noise the nodes add in shares",
        audit_distributed,
        trials=200_000,
    ),
    "discrete-gaussian": Target(
        "one sum on the integer grid with discrete Gaussian noise", audit_discrete, trials=200_000
    ),
}
