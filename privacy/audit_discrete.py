"""Audit of discrete Gaussian noise on a grid, as secure runs draw it.

Coordinates are trials, as in ``privacy.audit_gaussian``; the noise is accounted for as many
coordinates as there are trials. It comes from the operating system, so no seed repeats this audit.

Legend: N trials.
"""

import numpy as np
import torch

from privacy import accounting
from privacy.audit import DELTA, Measured, Target, Task, scratch_ledger
from privacy.audit_bounds import Scores
from privacy.clipping import UserClip
from privacy.discrete import DiscreteNoise, installed
from privacy.events import PoissonGaussian
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


TARGETS = {
    "discrete-gaussian": Target(
        "one sum on the integer grid with discrete Gaussian noise", audit_discrete, trials=200_000
    )
}
