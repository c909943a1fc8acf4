"""The cost of running a random number of candidates and releasing only the best.

Each of K candidates is an independent run of one mechanism Q, with fresh randomness, that releases
a setting, a model and a score; the greatest by a fixed total order of these (the score, then a
random tag) is released and nothing else, K included, is. Let Q have divergences D_λ, for neighbours
in either order, and K a ``StoppingTime``. Then what is released has, for every λ > 1 and λ̂ ≥ 1,

    D'_λ ≤ D_λ + (1 + η) ((1 − 1/λ̂) D_λ̂ + log(1/γ) / λ̂) + log E[K] / (λ − 1)

(Papernot and Steinke 2022, Theorem 2; arXiv 2110.03620). If Q is (ε, 0)-DP that is at most
(2 + η) ε: λ and λ̂ to infinity.

*A public grid.* Q draws its setting uniformly, the same way in both worlds, and the setting is part
of what it releases. So e^((λ − 1) D_λ) of Q is the mean of those of the settings, and at most the
largest: at each order the worst setting is taken.

*Noise on a grid of whole numbers, and draws by a computer.* What a candidate releases is within a
total variation distance t of the ideal one's; of K candidates, within E[K] t (union bound; K is
independent). A divergence H_α grows by no more than (1 + α) E[K] t.

What it rests on: K, the order in which settings were drawn, and everything about candidates that
were not chosen stay secret; whether a candidate is run again after a crash does not depend on what
it would have released.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import Event, check_gaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of, together
from murmuration.privacy.selection import renyi
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.privacy.theorems import check_event

#: More than drawing K and a setting by floating-point numbers is off, in total variation.
DRAWN = 1e-12
_MOST_CANDIDATES = 1000


@dataclass(frozen=True)
class CandidateCost:
    """The charges of one candidate: rounds of a sampled Gaussian sum, and its held-out score.

    Attributes:
        probability: with which a user is in a round.
        noise_multiplier: standard deviation of the noise over the clip norm.
        rounds: their number.
        share: of users held out at random, in secret; 0: the score is of public data.
        heldout_epsilon: the score is (``heldout_epsilon``, 0)-DP in those.
        distance: the most, in total variation, between all rounds and ideal Gaussian ones.
    """

    probability: float
    noise_multiplier: float
    rounds: int
    share: float = 0.0
    heldout_epsilon: float = 0.0
    distance: float = 0.0

    def __post_init__(self) -> None:
        check_gaussian(self.noise_multiplier, self.probability)
        if not (type(self.rounds) is int and self.rounds >= 1):
            raise ValueError(f"a candidate has at least one round, got {self.rounds!r}")
        if self.share:
            HoldOut(self.share, self.heldout_epsilon)
        elif self.heldout_epsilon:
            raise ValueError("a score of held-out users, and nobody is held out")
        if not 0.0 <= self.distance < 1.0:
            raise ValueError(f"a total variation distance is in [0, 1), got {self.distance}")

    @classmethod
    def of_charges(cls, charges: Mapping[Event, int]) -> "CandidateCost":
        """The cost of what a run charged, or plans to.

        Raises:
            ValueError: an event whose Rényi divergences are not known here, or no rounds.
        """
        held = [(event, times) for event, times in charges.items() if isinstance(event, HoldOut)]
        rounds: dict[PoissonGaussian, int] = {}
        distance = 0.0
        for event, times in charges.items():
            if isinstance(event, HoldOut):
                continue
            inner = event
            if isinstance(event, DiscretizedGaussian):
                inner = event.event
                distance += times * event.delta_overhead
            if not isinstance(inner, PoissonGaussian):
                raise ValueError(
                    f"no bound of Rényi divergences is here for what it releases ({event.kind})"
                )
            rounds[inner] = rounds.get(inner, 0) + times
        if len(rounds) != 1:
            raise ValueError("a candidate's rounds must all be of one sampled Gaussian sum")
        ((gaussian, times),) = rounds.items()
        coins = together(held) if held else None
        if held and coins is None:
            raise ValueError("what is said of held-out users costs more than can be counted")
        return cls(
            gaussian.probability,
            gaussian.noise_multiplier,
            times,
            coins.share if coins else 0.0,
            coins.epsilon if coins else 0.0,
            distance,
        )

    @property
    def charges(self) -> dict[Event, int]:
        """The charges of a run with this cost, if its noise is ideal."""
        gaussian = PoissonGaussian(self.probability, self.noise_multiplier)
        coins = HoldOut(self.share, self.heldout_epsilon) if self.share else None
        return {gaussian: self.rounds, **charges_of(coins)}

    def within(self, planned: "CandidateCost") -> bool:
        """True if this costs at most as much as ``planned``, for all neighbours."""
        return (
            self.probability <= planned.probability
            and self.noise_multiplier >= planned.noise_multiplier
            and self.rounds <= planned.rounds
            and self.share == planned.share
            and self.heldout_epsilon <= planned.heldout_epsilon
            and self.distance <= planned.distance
        )

    def kappa(self) -> np.ndarray:
        """κ at ``renyi.WHOLE_L``, for neighbours in either order."""
        training_L = self.rounds * renyi.of_sampled_gaussian(
            self.probability, self.noise_multiplier
        )
        return renyi.of_either(self.share, renyi.of_pure(self.heldout_epsilon), training_L)


@dataclass(frozen=True)
class RandomStopping:
    """The best of K candidates by a private score; their settings are drawn from a public grid.

    ``eta`` and ``gamma`` are those of the ``StoppingTime``; ``candidates`` what each setting of the
    grid costs, each cost once.
    """

    kind: ClassVar[str] = "random-stopping"
    eta: float
    gamma: float
    candidates: tuple[CandidateCost, ...]

    def __post_init__(self) -> None:
        listed: list[Any] = list(self.candidates)
        costs = [CandidateCost(**one) if isinstance(one, Mapping) else one for one in listed]
        sound = 1 <= len(costs) <= _MOST_CANDIDATES
        if not (sound and all(isinstance(one, CandidateCost) for one in costs)):
            raise ValueError(
                f"random stopping is of 1 to {_MOST_CANDIDATES:,} candidates, each with its cost"
            )
        ordered = sorted(set(costs), key=lambda one: (one.probability, one.noise_multiplier,
                                                      one.rounds, one.share, one.heldout_epsilon,
                                                      one.distance))  # fmt: skip
        object.__setattr__(self, "candidates", tuple(ordered))
        _ = self.stopping

    @property
    def stopping(self) -> StoppingTime:
        """The distribution of the number of candidates."""
        return StoppingTime(self.eta, self.gamma)

    def delta(self, epsilon_N: np.ndarray) -> np.ndarray:
        """δ, (N,), at each epsilon ≥ 0, for a user who comes or goes: an upper bound."""
        worst_L = np.max([one.kappa() for one in self.candidates], axis=0)
        kappa_F = bound(renyi.at_all_orders(worst_L), self.stopping)
        distance = DRAWN + self.stopping.mean * max(one.distance for one in self.candidates)
        off_N = (1.0 + np.exp(epsilon_N)) * distance
        return np.minimum(1.0, renyi.delta_of(kappa_F, epsilon_N) + off_N)

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The loss of a pair that dominates, the same in both orders.

        Raises:
            Unsupported: under ``replace`` and ``replace-labels``.
        """
        check_event(self.kind, adjacency)
        return (renyi.dominating(self.delta, interval),)


def bound(kappa_F: np.ndarray, stopping: StoppingTime) -> np.ndarray:
    """κ of what is released, from κ of a candidate, both at ``renyi.ORDERS_F``: Theorem 2."""
    again = math.log(1.0 / stopping.gamma)  # at λ̂ = 1
    again = min(again, float(((kappa_F + again) / renyi.ORDERS_F).min()))
    more_F = (renyi.ORDERS_F - 1.0) * (1.0 + stopping.eta) * again
    return kappa_F + more_F + math.log(stopping.mean)
