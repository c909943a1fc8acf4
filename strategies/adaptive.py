"""ULS with a clip norm that follows a quantile of the users' gradient norms.

Source: Andrew et al. 2021. Each sampled user sends their clipped averaged gradient and whether it
had to be clipped; sum and count get noise, in one charge, and the clip norm moves geometrically
towards the one that leaves a share ``quantile`` of users unclipped. Unlike there, the noise on the
sum is fixed first, for the clip norm that nodes were told; the optimizer is given the gradient in
units of that norm (see ``strategies.radius``); and the denominator is the nominal cohort M.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, which may be
any of the four, for the whole sequence of models *and clip norms*: T compositions of the
Poisson-subsampled Gaussian with probability M/N and the joint noise multiplier of sum and count.
Nothing is assumed about the data. Trusted: the server (it sees clipped sums and counts before
noise) and the nodes' clipping.

Legend: S sampled users, D dimensions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from preference.gradients import Examples, sum_over_users
from privacy import accounting
from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.discrete import DiscreteNoise
from privacy.distributed import DistributedNoise, NodeNoise, NoisySum, node_noise
from privacy.events import Event
from privacy.grid import COUNT_STEP
from privacy.hold_out import HoldOut, charges_of
from privacy.joint import CountingClip, JointSum, sum_noise_for
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from privacy.sampling import PoissonSampler
from strategies import messages
from strategies.messages import Work
from strategies.node import batches_users, clip_of, model_of, sampled
from strategies.radius import QuantileRule
from strategies.rounds import CohortStrategy
from strategies.uls import DEFAULT_GROUP_SIZE, check_size, check_users_fit, least_noise

#: Most users are scaled down to one length, so that they count about equally. Real users' longest
#: gradients are those of few judgements, the least reliable; a high quantile bends gradients less,
#: and lets these in. From 0.1 to 0.4 it hardly matters.
DEFAULT_QUANTILE = 0.15
#: Longer than a typical gradient of unit-scale features, from where the radius is quick to shrink.
DEFAULT_START = 0.5
DEFAULT_RULE = QuantileRule(DEFAULT_START, DEFAULT_QUANTILE)
#: Noise of the count: as a share of the cohort, and at least, in units of the joint multiplier.
#: The first is enough for a steady radius, the second keeps its cost under 4 % of the sum's noise.
_COUNT_NOISE, _COUNT_NOISE_LEAST = 0.05, 2.0


@dataclass(frozen=True)
class AdaptivePlan:
    """Everything that fixes what is sampled, clipped, noised and accounted, in one object.

    ``users``, ``cohort``, ``group_size`` and ``retain`` as in ``UlsPlan``; ``noise_multiplier`` is
    that of the sum in units of the clip norm in force, ``count_noise`` the standard deviation of
    the noise on the count. ``discrete`` noise is that of both.
    """

    users: int
    cohort: int
    rounds: int
    delta: float
    adjacency: Adjacency
    noise_multiplier: float
    count_noise: float
    rule: QuantileRule = DEFAULT_RULE
    group_size: int = DEFAULT_GROUP_SIZE
    retain: int = 0
    discrete: DiscreteNoise | DistributedNoise | None = None
    hold_out: HoldOut | None = None

    #: Subtracted from each user's bit.
    middle = 0.5

    def __post_init__(self) -> None:
        check_size(self.users, self.cohort, self.rounds, self.group_size)
        check_users_fit(self.users, self.start, UserClip(self.start).step)
        _ = self.charges  # a plan that cannot be released from cannot be built

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> "AdaptivePlan":
        """The plan with the least noise that costs at most ``epsilon``; other fields as given."""
        check_size(plan["users"], plan["cohort"], plan["rounds"], plan.get("group_size", 1))
        effective = least_noise(epsilon, plan)
        count_noise = max(_COUNT_NOISE * plan["cohort"], _COUNT_NOISE_LEAST * effective)
        sigma = sum_noise_for(effective, count_noise)
        return cls(noise_multiplier=sigma, count_noise=count_noise, **plan)

    @cached_property
    def sampler(self) -> PoissonSampler:
        """Who is in a round."""
        return PoissonSampler(self.cohort / self.users)

    @property
    def start(self) -> float:
        """The radius of the first round."""
        return self.rule.start

    def mechanism(self, radius: float) -> JointSum:
        """What a round with this radius runs and charges."""
        return JointSum(
            self.sampler,
            UserClip(radius),
            self.noise_multiplier,
            self.count_noise,
            self.adjacency,
            self.discrete,
        )

    @property
    def charges(self) -> dict[Event, int]:
        """What the whole run will cost."""
        return {self.mechanism(self.start).event: self.rounds, **charges_of(self.hold_out)}

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient, in radii."""
        return self.noise_multiplier / self.cohort

    def epsilon(self) -> float:
        """The epsilon of the whole run."""
        return accounting.epsilon(self.charges.items(), adjacency=self.adjacency, delta=self.delta)


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: over the asked users, ``sum`` (D,) and ``within`` (1,), float64.

    Their averaged gradients, less the ``centre`` if there is one, clipped to "clip-norm"; and the
    number of those that were not longer, less "middle" for each user. A pure function of its
    arguments (with a seeded ``source``). Raises KeyError or ValueError for parameters that are
    missing or wrong.
    """
    clip = clip_of(work)
    centre_D = work.tensor("centre").double() if "centre" in work.arrays else None
    bound = CountingClip(clip.norm, work.number("middle"), centre_D)
    taken_N, taken_S = sampled(examples, work, keys_S, source)
    # Who has nothing is nobody. Counted as within, they would be a user who changed, not one who is
    # away, and the count would move by twice what zero-out is accounted for.
    taken_S = taken_S[taken_S > 0]
    theta_D = work.tensor("theta")
    if centre_D is not None and centre_D.shape != theta_D.shape:
        raise ValueError(f"a centre of shape {tuple(centre_D.shape)} for {len(theta_D)} dimensions")
    total: torch.Tensor = sum_over_users(
        examples,
        theta_D,
        taken_N,
        taken_S,
        bound.clip_sum,
        model_of(examples, work),
        width=examples.dimension + 1,
        batch_users=batches_users(work),
    )
    total_D1 = total.numpy()
    return {"sum": total_D1[:-1], "within": total_D1[-1:]}


class Adaptive(CohortStrategy):
    """The server half; takes the plan and the ledger, and the arguments of ``CohortStrategy``.

    ``least_unit`` is the least radius that gradients are divided by; see ``strategies.radius``.
    ``radius`` is the clip norm of the next round.

    Raises:
        BudgetExceeded: the ledger's budget does not cover the plan.
    """

    name = "adaptive"

    def __init__(
        self, plan: AdaptivePlan, ledger: Ledger, least_unit: float = 0.0, **arguments: Any
    ) -> None:
        super().__init__(sampler=plan.sampler, **arguments)
        self.plan, self.ledger, self.least_unit = plan, ledger, least_unit
        self.radius = plan.start
        self._figures: dict[str, float] = {}
        ledger.clear(plan.charges)

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """The clip norm in force, and how many judgements of a user count."""
        return {
            "clip-norm": self.radius,
            "middle": self.plan.middle,
            "group-size": self.plan.group_size,
            "retain": self.plan.retain,
        }

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """A sum and a count."""
        return {"sum": (len(self.optimizer.theta),), "within": (1,)}

    def steps(self) -> Mapping[str, float]:
        """The grids of sum and count; the first is the one for the radius in force."""
        return {"sum": UserClip(self.radius).step, "within": COUNT_STEP}

    def node_noise(self) -> NodeNoise | None:
        """On sum and count, if nodes add it."""
        plan, clip = self.plan, UserClip(self.radius)
        noisy = {
            "sum": NoisySum(plan.noise_multiplier * clip.norm, clip.step, clip.norm),
            "within": NoisySum(plan.count_noise, COUNT_STEP, plan.middle),
        }
        return node_noise(plan.discrete, noisy)

    def admits(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite, no longer than ``users`` clip norms, and a count of at most ``users``."""
        within, middle = float(sums["within"][0]), self.plan.middle
        counted = -middle * users <= within <= (1.0 - middle) * users
        return counted and UserClip(self.radius).admits(sums["sum"], users)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over the fixed denominator M, in radii; charged to the ledger first."""
        radius = self.radius
        noisy_D = self._release(round_, totals)
        return self._in_radii(noisy_D / self.plan.cohort, radius)

    def _release(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum; the radius moves on, once the noise for this one has been added."""
        noisy_D, within = self.plan.mechanism(self.radius).release(
            totals["sum"],
            float(totals["within"][0]),
            round_=round_,
            covers="gradient sum and count",
            ledger=self.ledger,
            source=self.source,
        )
        share = 0.5 + within / self.plan.cohort
        self._figures = {"radius": self.radius, "within": share}
        self.radius = self.plan.rule.next(self.radius, share)
        return noisy_D

    def _in_radii(self, gradient_D: np.ndarray, radius: float) -> np.ndarray:
        unit = max(radius, self.least_unit)
        per_coordinate = self.plan.noise * radius / unit
        self._figures["noise_norm"] = per_coordinate * math.sqrt(len(gradient_D))
        return gradient_D / unit

    def figures(self) -> Mapping[str, float]:
        """Radius and noisy share within it, and the noise of the last gradient; all released."""
        return self._figures

    def state(self) -> dict[str, np.ndarray]:
        """Optimizer and radius."""
        return {**super().state(), "radius": np.array([self.radius])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self.radius = float(state["radius"][0])
