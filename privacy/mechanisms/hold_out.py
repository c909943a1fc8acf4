"""The privacy gain of a secret hold-out: a random assignment puts every user either into training
or into the test.

Each user is held out by a Bernoulli draw of their own, secret and independent of all data, so
nobody is exposed to both: with probability h (the share) a user contributes only to the figures
about held-out users, with 1 − h only to the run. All these figures together are (ε_H, 0)-DP. They
may depend on earlier releases of the run.

**A user who comes or goes.** Fix the draws of all others: they are the same in both worlds, and the
hockey-stick divergence H_α is jointly convex, so the worst of them bounds their mixture. Let ρ₁, ρ₀
be the run's outputs with and without the user, η₁, η₀ the figures about held-out users that follow.
With the user an observer sees P = (1−h) ρ₁η₀ + h ρ₀η₁, without them Q = ρ₀η₀. With X = ρ₁/ρ₀ and
Y = η₁/η₀ the likelihood ratio is (1−h)X + hY, and

    H_α(P‖Q) = E_Q ((1−h)X + hY − α)₊ + (1−h)·(mass of ρ₁ where ρ₀ has none)
    H_α(Q‖P) = E_Q (1 − α(1−h)X − αhY)₊

Given the run's output both are averages over η₀ of convex functions of Y, which lies between e^−ε_H
and e^ε_H and has mean 1. Such an average is at most that over the variable y with the same mean and
only the two extreme values: e^ε_H with probability 1/(1+e^ε_H), else e^−ε_H, which is randomized
response. It is independent of the run, so averaging over ρ₀ for each of its values

    H_α(P‖Q) ≤ (1−h) Σ_y p(y) H_a(ρ₁‖ρ₀),                a = (α − hy) / (1−h)
    H_α(Q‖P) ≤ Σ_y p(y) s H_a(ρ₀‖ρ₁),     s = (1 − αhy)₊,  a = α(1−h) / s

So δ of the whole at ε = log α follows from δ of the run alone at two other ε, and any upper bound
on that will do: discretization, truncation, infinite losses and the rounding of convolutions are in
it already. All a are at least 1 once α ≥ 1 − h + h e^ε_H, which is what being held out costs by
itself; less is never claimed, so the run's bound is needed at ε ≥ 0 only. Both lines are attained,
by the run's own worst pair beside randomized response.

*Choices.* Where a pure ε_m-DP choice g decides what the run releases later, and δ_g(ε) bounds that,
X = x_g X_g with x_g between e^−ε_m and e^ε_m. In the first line that leaves x_g H_{a/x_g} and in
the second H_{a x_g}, so with δ_g(log a − ε_m) in place of the run's δ both hold on average over g,
and so if they are at most δ for each g: which is how what follows a choice is calibrated. *Parts*
(``events.by_part``): users trained on are divided at random once more, and the largest δ of
the parts will do, by joint convexity.

*Where only a point of the run's curve is known*, say (ε_R, δ/(1−h)), the whole is (ε, δ)-DP with
e^ε = (1−h)e^ε_R + h e^ε_H. On every event P ≤ (1−h)(e^ε_R Q + δ/(1−h)) + h e^ε_H Q, and
Q ≤ w(e^ε_R ρ₁η₀ + δ/(1−h)) + (1−w) e^ε_H ρ₀η₁ for every w: with w proportional to (1−h)e^−ε_R,
1−w to h e^−ε_H, that is the harmonic mean of e^ε_R and e^ε_H times P, which is at most the
arithmetic one, plus wδ/(1−h), and w ≤ 1−h as long as ε_H ≤ ε_R. If not, (ε_R, δ) gives the same.

**A user who is replaced** is held out in both worlds or in neither. Given the draws one of the two
factors is the same on both sides, so the whole costs as much as the larger of them, and that holds
even against an attacker who knows the draws.

**Several runs** draw independently. The pair (P, Q) is post-processing of one without a draw,
(ρ₁η₁, ρ₀η₀): make the draw, and sample anew, without the user, the factor that does not apply. So
runs are composed as if everybody were exposed to both halves (``events.of_several_runs``).

It assumes that these stay secret: the draws, which users were asked what, and exact figures about
held-out users, their number included.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.event import Event
from murmuration.privacy.adjacency import Adjacency

#: δ of a run at some ε ≥ 0: an upper bound in both directions, falling in ε.
Profile = Callable[[float], float]

#: The largest ε of held-out users that is accounted for, as of any pure event.
MOST_EPSILON = 500.0
#: Down to this share the probability of a 64-bit draw is the share exactly (``bar``).
LEAST_SHARE = 2.0**-11
#: More than what rounding takes from a sum or a product of a few exponentials, relatively.
_ROUNDED = 16.0 * 2.0**-53


@dataclass(frozen=True)
class HoldOut:
    """Each user is held out with probability ``share``, and figures about held-out users are
    released.

    All figures about them together are (``epsilon``, 0)-DP; 0 while there are none. All other
    events beside it are about users who are not held out. What it costs depends on these:
    ``accounting.epsilon`` knows, by ``mixed_delta``.
    """

    kind: ClassVar[str] = "hold-out"
    share: float
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not LEAST_SHARE <= self.share < 1.0:
            raise ValueError(
                f"the share held out must be at least {LEAST_SHARE:.1g} and below 1, "
                f"got {self.share}"
            )
        if not 0.0 <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon of held-out users must be in [0, {MOST_EPSILON:g}], got {self.epsilon}"
            )

    @property
    def coins(self) -> "HoldOut":
        """The assignment alone, before any figure about held-out users."""
        return replace(self, epsilon=0.0)

    @property
    def charges(self) -> dict[Event, int]:
        """The charges of a run: for the assignment at its start, for the figures at its end."""
        return {self.coins: 1, self: 1}

    @property
    def alone(self) -> float:
        """The ε of being held out: log(1 − h + h e^ε_H)."""
        return math.log1p(self.share * math.expm1(self.epsilon))

    def delta_alone(self, epsilon: float) -> float:
        """δ at ``epsilon`` of a user who is held out for certain: randomized response at worst."""
        if epsilon >= self.epsilon:
            return 0.0
        return -math.expm1(epsilon - self.epsilon) / (1.0 + math.exp(-self.epsilon))

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The loss of a user who is surely held out: that of randomized response at worst."""
        del adjacency
        return (DiscretePMF.worst(self.epsilon, 0.0, interval),)


def usual(share: float, epsilon: float, adjacency: Adjacency, given: float = 0.0) -> HoldOut:
    """The default hold-out of a run of this ``epsilon``; ``given`` is the ε of its figures, or 0.

    Unless it is given, what is said of held-out users costs half of epsilon, which leaves nearly
    all of what the secret hold-out saves to the run; where users are replaced it costs all of
    epsilon, which is free there.
    """
    free = adjacency.vectors_changed == 2
    return HoldOut(share, min(given or (epsilon if free else epsilon / 2.0), MOST_EPSILON))


def charges_of(hold_out: HoldOut | None) -> dict[Event, int]:
    """The charges of a hold-out beside the run's; none without a hold-out."""
    return hold_out.charges if hold_out else {}


def bar(share: float) -> int:
    """A uniform 64-bit word is below it with probability ``share``, exactly."""
    return int(share * 2.0**64)


def held_out(user_keys_N: np.ndarray, share: float, key: bytes) -> np.ndarray:
    """True for each user who is held out: bool (N,), each with probability ``share``.

    A draw is a keyed hash (BLAKE2b) of the user's 64-bit name, so it depends neither on other users
    nor on time. ``key``, 32 bytes, is the secret of the hold-out and of nothing else: it reveals
    who is held out.
    """
    if len(key) != 32:
        raise ValueError(f"the key of a hold-out has 32 bytes, not {len(key)}")
    below = bar(share)
    words = (
        hashlib.blake2b(name.tobytes(), digest_size=8, key=key).digest()
        for name in np.asarray(user_keys_N, dtype="<u8")
    )
    coins = (int.from_bytes(word, "little") < below for word in words)
    return np.fromiter(coins, dtype=bool, count=len(user_keys_N))


def split(
    events: Iterable[tuple[Event, int]],
) -> tuple[list[tuple[Event, int]], list[tuple[HoldOut, int]]]:
    """The events about users who are trained on, and those about users who are held out."""
    run, held = [], []
    for event, times in events:
        if isinstance(event, HoldOut):
            held += [(event, times)] if times else []
        else:
            run.append((event, times))
    return run, held


def check_one_run(held: Iterable[tuple[HoldOut, int]]) -> None:
    """ValueError if these events about held-out users are plainly those of several runs."""
    held = list(held)
    tossed = sum(times for event, times in held if not event.epsilon)
    if tossed > 1 or len({event.share for event, _ in held}) > 1:
        raise ValueError(
            "the events of several runs were taken for those of one: a run tosses the coins of its "
            "hold-out once, for one share; hand in the events of each run by themselves"
        )


def together(held: Iterable[tuple[HoldOut, int]]) -> HoldOut | None:
    """All figures of one run about held-out users as one event: releases about the same users add
    up.

    None where they add up to more than is accounted for. ``held`` is not empty.
    """
    held = list(held)
    total = sum(event.epsilon * times for event, times in held)
    return HoldOut(held[0][0].share, total) if total <= MOST_EPSILON else None


def mixed_delta(epsilon: float, hold_out: HoldOut, profile: Profile) -> float:
    """δ at ``epsilon`` ≥ 0 of a run and its held-out users, rounded up: a user comes or goes.

    ``profile`` is the run's; see the top of this file.
    """
    h, alpha = hold_out.share, math.exp(epsilon)
    into, back = 0.0, 0.0
    for y in (math.exp(hold_out.epsilon), math.exp(-hold_out.epsilon)):
        weight = 1.0 / (1.0 + y)
        # Whatever was rounded in a difference, a is too small and s too large.
        least = alpha - h * y - _ROUNDED * (alpha + h * y)
        into += weight * (1.0 - h) * _at(least / (1.0 - h), profile)
        scale = 1.0 + _ROUNDED - alpha * h * y * (1.0 - _ROUNDED)
        if scale > 0.0:
            back += weight * scale * _at(alpha * (1.0 - h) / scale, profile)
    return max(into, back) * (1.0 + _ROUNDED)


def _at(a: float, profile: Profile) -> float:
    """H_a of the run, for any a: below 1 it grows by no more than a falls, and is 1 at 0."""
    if a >= 1.0:
        return profile(math.log(a))
    return min(profile(0.0), max(0.0, a)) + 1.0 - a


def mixed_epsilon(hold_out: HoldOut, profile: Profile, delta: float) -> float:
    """The least ε at which ``mixed_delta`` is at most ``delta``, from above, to 1e-6 of it.

    Infinite if that is beyond 500.
    """
    low = high = hold_out.alone
    while mixed_delta(high, hold_out, profile) > delta:
        if high >= MOST_EPSILON:
            return math.inf
        low, high = high, min(MOST_EPSILON, max(2.0 * high, 0.5))
    while high - low > 1e-6 * high:
        middle = (low + high) / 2.0
        if mixed_delta(middle, hold_out, profile) <= delta:
            high = middle
        else:
            low = middle
    return high


def mixed_point(hold_out: HoldOut, run: Callable[[float], float], delta: float) -> float:
    """ε of a run and its held-out users where the run's curve is known by points: ε = ``run(δ)``.

    Under a user who comes or goes; see the top of this file.
    """
    h = hold_out.share
    spent = run(delta / (1.0 - h)) if delta < 1.0 - h else run(delta)
    if hold_out.epsilon > spent:
        spent = run(delta)
    if math.isinf(spent):
        return math.inf
    more = max(spent, hold_out.epsilon)
    return more + math.log(
        (1.0 - h) * math.exp(spent - more) + h * math.exp(hold_out.epsilon - more)
    )
