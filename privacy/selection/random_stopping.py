"""The cost of running a random number of candidates and releasing only the best.

Each of K candidates is an independent run of one mechanism Q, with fresh randomness, that releases
a setting, a model and a score; the greatest by a fixed total order of these (the score, then a
random tag) is released and nothing else, K included, is. K is a ``StoppingTime``. Let D(ε) be at
least H_{e^ε} of Q, for neighbours in either order. Then what is released has, for every ε,

    δ(ε) ≤ E[K] D(ε − (1 + η) s)    with any s ≥ 0 such that (1 − γ) D(s) ≤ γ (e^s − 1).

*Proof.* Q releases P in one world and P' in the other; F(y) and F'(y) are their masses below y. The
tag leaves no ties, so the best of K has the density f(F) with respect to P, where f is the
derivative of E x^K. Here f(x) = E[K] (γ / (1 − (1 − γ) x))^(1 + η), which rises to E[K] at x = 1.
With U the outcomes above y, P'(U) ≤ e^s P(U) + D(s), and

    1 − (1 − γ) F'(y) = γ + (1 − γ) P'(U) ≤ γ + (1 − γ) D(s) + (1 − γ) e^s P(U)
                      ≤ e^s (γ + (1 − γ) P(U)) = e^s (1 − (1 − γ) F(y)).

So f(F) ≤ e^((1 + η) s) f(F') everywhere, and

    H_{e^ε} = ∫ (f(F) dP − e^ε f(F') dP')₊ ≤ ∫ f(F) (dP − e^(ε − (1 + η) s) dP')₊
            ≤ E[K] D(ε − (1 + η) s).

This is the bound of Koskela, Redberg and Wang (2024; arXiv 2402.06701), whose addition
(1 + η) log max(1 + (1 − γ) D(ε₁) / γ, γ + (1 − γ) (D(ε₁) + e^ε₁)) is least where both terms are
e^ε₁: the first falls in ε₁, the second does not, and ε₁ is the least s there. If Q is (ε, 0)-DP, s
is at most ε and the whole at most (2 + η) ε (Papernot and Steinke 2022; arXiv 2110.03620).

*A public grid.* Q draws its setting uniformly, the same way in both worlds, and the setting is part
of what it releases. So H of Q is the mean of those of the settings, and at most the largest: at
each ε the worst setting is taken. A setting's H is that of its rounds and its hold-out
(``mechanisms.hold_out``); each candidate holds out users by an assignment of its own.

*Noise on a grid of whole numbers, and draws by a computer.* What a candidate releases is within a
total variation distance t of the ideal one's; of K candidates, within E[K] t (union bound; K is
independent). A divergence H_α grows by no more than (1 + α) E[K] t.

What it rests on: K, the order in which settings were drawn, and everything about candidates that
were not chosen stay secret; whether a candidate is run again after a crash does not depend on what
it would have released.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import Event, check_gaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import (
    HoldOut,
    Profile,
    charges_of,
    mixed_delta,
    together,
)
from murmuration.privacy.selection.dominating_pair import dominating
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.privacy.theorems import check_event

#: More than drawing K and a setting by floating-point numbers is off, in total variation.
DRAWN = 1e-10
#: More than rounding takes from a sum or a product of a few numbers, relatively.
_ROUNDED = 1e-12
#: Where a candidate's curve is tight: from here a factor of a million both ways.
_TIGHT = 1e-7
_HALVINGS = 50
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
    _: KW_ONLY
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
            ValueError: an event that no candidate may have, or no rounds.
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
                    f"a candidate's rounds must be sampled Gaussian sums, got {event.kind}"
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
            share=coins.share if coins else 0.0,
            heldout_epsilon=coins.epsilon if coins else 0.0,
            distance=distance,
        )

    @property
    def gaussian(self) -> PoissonGaussian:
        """One round."""
        return PoissonGaussian(self.probability, self.noise_multiplier)

    @property
    def coins(self) -> HoldOut | None:
        """The hold-out, if there is one."""
        return HoldOut(self.share, self.heldout_epsilon) if self.share else None

    @property
    def charges(self) -> dict[Event, int]:
        """The charges of a run with this cost, if its noise is ideal."""
        return {self.gaussian: self.rounds, **charges_of(self.coins)}

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

    def profile(self, adjacency: Adjacency, interval: float) -> Profile:
        """δ at any ε ≥ 0, for a user who comes or goes, if its noise is ideal: an upper bound."""
        rounds = [(self.gaussian, self.rounds)]
        total = composition(rounds, adjacency=adjacency, interval=interval)
        assert total is not None  # there is a round
        trained = total.near(_TIGHT)
        if (coins := self.coins) is None:
            return trained
        return lambda epsilon: mixed_delta(epsilon, coins, trained)


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

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The loss of a pair that dominates, the same in both orders.

        Raises:
            Unsupported: under ``replace`` and ``replace-labels``.
        """
        check_event(self.kind, adjacency)
        profiles = [one.profile(adjacency, interval) for one in self.candidates]
        curve = bound(lambda epsilon: max(each(epsilon) for each in profiles), self.stopping)
        distance = DRAWN + self.stopping.mean * max(one.distance for one in self.candidates)

        def delta(epsilon: float) -> float:
            return min(1.0, curve(epsilon) + (1.0 + math.exp(epsilon)) * distance)

        return (dominating(delta, interval),)


def bound(profile: Profile, stopping: StoppingTime) -> Profile:
    """δ of what is released, from that of a candidate; see the top of this file."""
    added = addition(profile, stopping)

    def delta(epsilon: float) -> float:
        rest = epsilon * (1.0 - _ROUNDED) - added
        return 1.0 if rest < 0.0 else min(1.0, stopping.mean * profile(rest) * (1.0 + _ROUNDED))

    return delta


def addition(profile: Profile, stopping: StoppingTime) -> float:
    """(1 + η) s for the least s, rounded up; see the top of this file."""
    gamma = stopping.gamma
    low, high = 0.0, math.log(1.0 / gamma)  # which is enough for δ = 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if (1.0 - gamma) * profile(middle) <= gamma * math.expm1(middle) * (1.0 - _ROUNDED):
            high = middle
        else:
            low = middle
    return (1.0 + stopping.eta) * high * (1.0 + _ROUNDED)
