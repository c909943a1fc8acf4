"""Audit of a run and its held-out users together: each user is in exactly one of the two.

A trial is a whole run in small: a secret key decides at random whether the canary is trained on or
held out, one Gaussian sum is released over those trained on, then the tally over those held out.
The attacker sees both, knows all others, and computes the likelihood ratio of the mixture, which is
the optimal attack. Where the canary comes or goes both directions are tried; where they are
replaced, their judgements are the opposite ones.

Legend: N trials, F figures of a tally.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.auditing import DELTA, Measured, Target, Task, scratch_ledger
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.hold_out import HoldOut, held_out
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import LOSS_BOUND, Tally, TallyRelease
from murmuration.research.audits.trials import both_sides
from murmuration.strategies.uls import UlsPlan

_CLIP = UserClip(0.1)
CANARY = np.array([4711], dtype=np.uint64)


@dataclass(frozen=True)
class Attack:
    """The hold-out and release of an audit, and the attacker's further knowledge.

    Attributes:
        share: of users held out.
        public_key: the key of the hold-out, if it is public; None: 32 secret bytes per run.
        exact: whether the tally is released without noise.
        counted: whether the numbers of users trained on and held out are published.
        tally: the figures about those held out.
    """

    share: float = 0.2
    public_key: bytes | None = None
    exact: bool = False
    counted: bool = False
    tally: Tally = field(default_factory=Tally)

    def coins(self, trials: int, source: Randomness) -> np.ndarray:
        """Whether the canary is held out, by the hold-out assignment of runs: bool (N,)."""
        if self.public_key is not None:
            return np.full(trials, held_out(CANARY, self.share, self.public_key)[0])
        keys = source.stream("hold-out coins")
        return np.array([held_out(CANARY, self.share, keys.bytes(32))[0] for _ in range(trials)])


def audit_hold_out(task: Task, attack: Attack | None = None) -> Measured:
    """Audit one noisy sum over those trained on, and the accuracy on those held out."""
    attack = attack or Attack()
    replaced = task.adjacency.vectors_changed == 2
    coins = HoldOut(attack.share, task.epsilon * (1.0 if replaced else 0.5))
    plan = UlsPlan.for_epsilon(
        task.epsilon,
        users=1,
        cohort=1,
        rounds=1,
        delta=DELTA,
        adjacency=task.adjacency,
        clip=_CLIP,
        hold_out=coins,
    )
    mechanism, tally_release = plan.mechanism, TallyRelease(coins, task.adjacency, attack.tally)
    assert isinstance(mechanism, GaussianSum)  # as noise is independent

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        there = (-1.0 if replaced else 0.0) if second else 1.0  # which judgements, or none
        held_N = attack.coins(task.trials, source)
        pull = _CLIP.clip_sum(torch.tensor([[1e3 * there]])).item()
        ledger.charge(coins.coins, round_=0, covers="coins")
        noisy_N = mechanism.release(
            np.where(held_N, 0.0, pull), round_=1, covers="sum", ledger=ledger, source=source
        )
        tally_NF = _tallies(tally_release, held_N, there, ledger, source, attack.exact)
        score_N = _score(noisy_N / _CLIP.norm, tally_NF, plan, tally_release, attack, replaced)
        if attack.counted and there:  # somebody was counted
            score_N[:] = math.inf
        return score_N

    return both_sides(task, one).measured(task)


def _tallies(
    tally_release: TallyRelease,
    held_N: np.ndarray,
    there: float,
    ledger: Ledger,
    source: Randomness,
    exact: bool,
) -> np.ndarray:
    """The released sums of each trial, (N, F); the first is charged to the run's ledger."""
    tally = tally_release.tally
    share = {1.0: 1.0, -1.0: 0.0}.get(there, math.nan)
    mine_F, nobody_F = _contribution(tally, share), np.zeros(tally.figures)
    if exact:
        return np.where(held_N[:, None], mine_F, nobody_F)
    found_NF = np.empty((len(held_N), tally.figures))
    with scratch_ledger(tally_release.adjacency) as others:
        for trial, held in enumerate(held_N):
            found_NF[trial] = tally_release.release(
                mine_F if held else nobody_F,
                round_=2 + trial,
                ledger=others if trial else ledger,
                source=source,
            )
    return found_NF


def _contribution(tally: Tally, share: float) -> np.ndarray:
    """The contribution of a canary with this accuracy, and a loss that falls with it."""
    return tally.contribution(share, LOSS_BOUND * (1.0 - share))


def _score(
    x_N: np.ndarray,
    tally_NF: np.ndarray,
    plan: UlsPlan,
    tally_release: TallyRelease,
    attack: Attack,
    replaced: bool,
) -> np.ndarray:
    """The log-likelihood ratio of the observations with the canary to those without, or with the
    other.
    """

    def ratio(sign: float) -> np.ndarray:
        """log((1 − h) X + h Y) for a canary who pulls one way, against no canary."""
        run_N = (sign * x_N - 0.5) / plan.noise_multiplier**2
        if attack.exact:  # somebody is in the tally, or nobody
            return np.where(tally_NF.any(axis=1), math.inf, run_N)
        mine_F = _contribution(tally_release.tally, float(sign > 0))
        moved_N = np.abs(tally_NF).sum(1) - np.abs(tally_NF - mine_F).sum(1)
        out_N = moved_N / float(tally_release.scale)
        if attack.public_key is not None:  # the attacker tosses the coin too
            held = held_out(CANARY, attack.share, attack.public_key)[0]
            return out_N if held else run_N
        return np.logaddexp(math.log1p(-attack.share) + run_N, math.log(attack.share) + out_N)

    return ratio(1.0) - ratio(-1.0) if replaced else ratio(1.0)


TARGETS = {
    "hold-out": Target(
        "one noisy sum over users trained on and the accuracy on users held out, as a pair",
        audit_hold_out,
        trials=10_000,
        epsilon=4.0,  # trials as many as these can show up to 7.5: a larger claim is never refuted
    ),
}
