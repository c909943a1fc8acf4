"""ULS with a clip norm that follows a quantile of the users' gradient norms.

Source: Andrew et al. 2021. Each sampled user sends their clipped averaged gradient and whether it
had to be clipped; sum and count get noise, in one charge, and the clip norm moves geometrically
towards the one that leaves a share ``quantile`` of users unclipped. Unlike there, the noise on the
sum is fixed first, for the clip norm sent to nodes; the optimizer is given the gradient in units of
that norm (see ``strategies.adaptive``); and the denominator is the nominal cohort M.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, which may be
any of the four, for the whole sequence of models *and clip norms*: T compositions of the
Poisson-subsampled Gaussian with probability M/N and the joint noise multiplier of sum and count.
Nothing is assumed about the data. Trusted: the server (it sees clipped sums and counts before
noise) and the nodes' clipping.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.counting_clip import CountingClip
from murmuration.privacy.mechanisms.distributed import NodeNoise, NoisySum, node_noise
from murmuration.privacy.mechanisms.grid import COUNT_STEP
from murmuration.privacy.mechanisms.noisy_sum import JointSum, sum_noise_for
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import Unit, select
from murmuration.strategies.base import SteppedStrategy
from murmuration.strategies.contributions import clip_of, model_of, sampled, shares_passes
from murmuration.strategies.planning import NOISE, SAMPLED, Planned
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    cohort_bytes,
    grid_and_count,
)
from murmuration.strategies.steps.optimizers import OptimizerSettings
from murmuration.strategies.sums import CohortPlan, check_vectors_fit
from murmuration.strategies.uls import UlsPlan

if TYPE_CHECKING:
    import torch

    from murmuration.preference.kinds.model import TrainingExamples

# How a bound follows the users' gradients, and how long a step is when the bound moves.
#
# The next bound is computed from what has been released, so it costs nothing more.
#
# **Steps are counted in radii.** The gradient that the optimizer gets is divided by the radius it
# was clipped with, so noise has the same size in every round, whatever the data made of the radius,
# and the step size can be limited by it beforehand (``strategies.steps.step_size``). Only where
# noise is small would such steps be longer than of any use: features of unit scale that spread
# evenly over D dimensions curve the log loss by ¼ · 2 / D, and a run whose steps add up to a few
# times the inverse of that has converged; noise from longer steps is not averaged out any more.
# Below the radius at which the two limits meet, gradients are divided by that radius instead.

#: Time constants of evenly spread features in a run: these leave a twelfth of the way, which makes
#: up for the few percent that clipping overshoots (measured on ``research.reproductions.btl``).
_CONVERGED = 2.5
#: How far, as a factor, a radius may get from where it started: no run of bad luck ends at zero.
_RANGE = 1e4
_FARTHEST = 2.0 * math.log(_RANGE)  # from one end of that range to the other


@dataclass(frozen=True)
class QuantileRule:
    """Moves a radius until a share ``quantile`` of users is within it (Andrew et al. 2021, Eq. 2).

    Geometric: radius · exp(−rate · (share − quantile)). Too few within it makes the radius larger,
    too many smaller. ``start`` is where it begins.
    """

    start: float
    quantile: float
    rate: float = 0.2

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise ValueError(f"the quantile must be between 0 and 1, got {self.quantile}")
        if not (math.isfinite(self.rate) and self.rate > 0.0):
            raise ValueError(f"the rate of adaptation must be positive, got {self.rate}")

    def next(self, radius: float, share: float) -> float:
        """The radius after one in which a (noisy) ``share`` of users was within ``radius``."""
        # Noise on the count of a small cohort can be any number of cohorts.
        step = min(max(-self.rate * (share - self.quantile), -_FARTHEST), _FARTHEST)
        return bounded(radius * math.exp(step), self.start)


def bounded(radius: float, start: float) -> float:
    """``radius``, no further than a large factor from ``start``."""
    return min(max(radius, start / _RANGE), start * _RANGE)


def least_unit(settings: OptimizerSettings, dimension: int) -> float:
    """The least radius to divide gradients by, at this step size; see the module's docstring.

    Zero for optimizers that divide by the gradient's own scale.
    """
    if settings.kind != "sgd":
        return 0.0
    steps = sum(settings.factor(t) for t in range(1, settings.rounds + 1))
    return settings.rate * steps / (_CONVERGED * 2.0 * dimension)


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


class Rule(Protocol):
    """Moves a radius that begins at ``start``."""

    @property
    def start(self) -> float:
        """The radius of the first round."""
        ...


@dataclass(frozen=True, kw_only=True)
class RadiusPlan(CohortPlan):
    """A plan whose clip norm is a radius that moves, and which counts who is within it.

    ``noise_multiplier`` is that of the sum in units of the clip norm in force, ``rule`` where the
    radius begins and how it moves.
    """

    rule: Rule

    #: Subtracted from each user's bit.
    middle: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @property
    def clip(self) -> UserClip:
        """The bound of the first round."""
        return UserClip(self.rule.start)

    def mechanism_at(self, radius: float) -> Any:
        """The mechanism of a round with this radius; its cost is the same for any radius."""
        first: Any = self.mechanism
        return replace(first, clip=UserClip(radius))

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient, in radii."""
        return self.noise_multiplier / self.cohort

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes; the radius is that of the first round."""
        return {"middle": self.middle, **super().node_config}


@dataclass(frozen=True, kw_only=True)
class AdaptivePlan(RadiusPlan):
    """The radius follows a quantile.

    ``count_noise`` is the standard deviation of the noise on the count. ``discrete`` noise is for
    both.
    """

    count_noise: float
    rule: QuantileRule = DEFAULT_RULE

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> Self:
        """The plan with the least noise that costs at most ``epsilon``; other fields as given."""
        of_both = {name: value for name, value in plan.items() if name != "rule"}
        effective = UlsPlan.for_epsilon(epsilon, clip=UserClip(1.0), **of_both).noise_multiplier
        count_noise = max(_COUNT_NOISE * plan["cohort"], _COUNT_NOISE_LEAST * effective)
        sigma = sum_noise_for(effective, count_noise)
        return cls(noise_multiplier=sigma, count_noise=count_noise, **plan)

    @cached_property
    def mechanism(self) -> JointSum:
        """The mechanism of the first round."""
        sampler = cast(PoissonSampler, self.sampler)  # of others there is no row
        parts = sampler, self.clip, self.noise_multiplier, self.adjacency
        return JointSum(*parts, discrete=self.discrete, count_noise=self.count_noise)


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
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
    total: torch.Tensor = examples.sum_over_users(
        theta_D,
        taken_N,
        taken_S,
        bound.clip_sum,
        model_of(examples, work),
        width=examples.dimension + 1,
        shared_passes=shares_passes(work),
    )
    total_D1 = total.numpy()
    return {"sum": total_D1[:-1], "within": total_D1[-1:]}


class Adaptive(SteppedStrategy):
    """The server half, with an ``AdaptivePlan``; see ``CohortStrategy``.

    ``least_unit`` is the least radius that gradients are divided by; see ``strategies.adaptive``.
    ``radius`` is the clip norm of the next round.
    """

    name = "adaptive"
    plan: AdaptivePlan

    def __init__(
        self, plan: RadiusPlan, ledger: Ledger, least_unit: float = 0.0, **arguments: Any
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self.least_unit, self.radius = least_unit, plan.clip.norm
        self._figures: dict[str, Shown[float]] = {}

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """The current clip norm, and the number of a user's judgements that count."""
        return {**self.plan.node_config, "clip-norm": self.radius}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """A sum and a count."""
        return {"sum": (len(self.optimizer.theta),), "within": (1,)}

    def steps(self) -> Mapping[str, float]:
        """The grids of sum and count; the first is the one for the radius in force."""
        return {"sum": UserClip(self.radius).step, "within": COUNT_STEP}

    def node_noise(self) -> NodeNoise | None:
        """The noise on sum and count, if nodes add it."""
        plan, clip = self.plan, UserClip(self.radius)
        noisy = {
            "sum": NoisySum(plan.noise_multiplier * clip.norm, clip.step, clip.norm),
            "within": NoisySum(plan.count_noise, COUNT_STEP, plan.middle),
        }
        return node_noise(plan.discrete, noisy)

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite, no longer than ``users`` clip norms, and a count of at most ``users``."""
        within, middle = float(sums["within"][0]), self.plan.middle
        counted = -middle * users <= within <= (1.0 - middle) * users
        return counted and UserClip(self.radius).is_valid(sums["sum"], users)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over the fixed denominator M, in radii; charged to the ledger first."""
        radius = self.radius
        noisy_D = self._release(round_, totals)
        return self._in_radii(noisy_D / self.plan.cohort, radius)

    def _release(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum; the radius moves on, once the noise for this one has been added."""
        noisy_D, within = self.plan.mechanism_at(self.radius).release(
            totals["sum"],
            float(totals["within"][0]),
            round_=round_,
            covers="gradient sum and count",
            ledger=self.ledger,
            source=self.source,
        )
        share = 0.5 + within / self.plan.cohort
        released = self.ledger.released
        self._figures = {"radius": released(self.radius), "within": released(share)}
        self.radius = self.plan.rule.next(self.radius, share)
        return noisy_D

    def _in_radii(self, gradient_D: np.ndarray, radius: float) -> np.ndarray:
        unit = max(radius, self.least_unit)
        per_coordinate = self.plan.noise * radius / unit
        length = per_coordinate * math.sqrt(len(gradient_D))
        self._figures["noise_norm"] = self.ledger.released(length)
        return gradient_D / unit

    def figures(self) -> Mapping[str, Shown[float]]:
        """Radius and noisy share within it, and the noise of the last gradient; all released."""
        return self._figures

    def state(self) -> dict[str, np.ndarray]:
        """Optimizer and radius."""
        return {**super().state(), "radius": np.array([self.radius])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self.radius = float(state["radius"][0])


# Strategies whose clip norm adapts, from settings: ``adaptive``, and ``aup`` centred.

#: Steps are limited by noise, and by what is of use: see ``strategies.adaptive``.
NO_CEILING = 1e9


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """ULS with adaptive clipping."""
    return built(context, ledger, Adaptive, quantile_plan(context), down=1)


def quantile_plan(context: RunContext) -> AdaptivePlan:
    """The plan of a strategy whose bound follows a quantile."""
    config, of_both = context.config, context.noise.on(context.dimension + 1)  # sum and count
    return AdaptivePlan.for_epsilon(
        config.epsilon,
        rule=QuantileRule(config.clip_norm or DEFAULT_START, DEFAULT_QUANTILE),
        **{**context.cohort_sizes, "discrete": of_both},
    )


def built(
    context: RunContext,
    ledger: Ledger,
    strategy: type[Adaptive],
    plan: RadiusPlan,
    *,
    down: int,
) -> BuiltStrategy:
    """A strategy whose bound adapts, with the figures of its report."""
    optimizer = context.optimizer("sgd", plan.noise, NO_CEILING)
    # Only a step size that was chosen for the user is limited in two ways.
    given = context.config.learning_rate > 0
    unit = 0.0 if given else least_unit(optimizer.settings, context.dimension)
    return BuiltStrategy.of(
        strategy(plan, ledger, unit, **context.arguments(optimizer)),
        plan,
        group_size=plan.group_size,
        bytes_per_user=cohort_bytes(context, down=down),
    )


ADAPTIVE = Strategy(
    name="adaptive",
    help="As uls, with a clip norm that follows a quantile of the users' gradient norms.",
    build=build,
    node_halves={"adaptive": NodeHalf(client_update, clip_norm, grid_and_count)},
    theorems=select(Unit.VECTOR_AND_BIT),
    solve=Planned(
        plan=AdaptivePlan,
        takes=SAMPLED,
        free=NOISE,
        tells=lambda plan, query: {"count_noise": plan.count_noise},
    ),
)
