"""ULS / DP-FedSGD: average each sampled user's gradient, clip it, add noise to the sum.

Source: Charles et al. 2024, Algorithm 2 (DP-SGD-ULS); McMahan et al. 2018. The noise is added to
the *sum* and the sum divided by the nominal cohort M, a constant fixed before any data is seen.
With normalized clipping (De et al. 2022) it is divided by the clip norm too, so that step sizes
need no change when the clip norm changes.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, for the whole
sequence of models: T compositions of the Poisson-subsampled Gaussian with probability M/N. Trusted:
the server (it sees clipped sums before noise) and the nodes' clipping.

Legend: S sampled users, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import (
    DistributedNoise,
    NodeNoise,
    NoisySum,
    node_noise,
)
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.contributions import bounded_sum, clip_of
from murmuration.strategies.planning import sampled_users
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import Work
from murmuration.strategies.settings import Normalized, Retained
from murmuration.strategies.spec import (
    ALL,
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    cohort_bytes,
    promise,
    supported,
)

if TYPE_CHECKING:
    from murmuration.preference.linear.gradients import Examples

#: Default clip norm. Features have unit scale by construction, so a user's averaged gradient at the
#: start is a few tenths long; clipping well below that makes users count about equally, and leaves
#: the noise, which is proportional to the clip norm, small beside them.
DEFAULT_CLIP = 0.1
DEFAULT_GROUP_SIZE = 16
#: Step size, in units of the clip norm, at which training converges in about 200 rounds.
RATE_CEILING = 10.0


@dataclass(frozen=True)
class UlsPlan:
    """Everything that fixes what is sampled, clipped, noised and accounted, in one object.

    ``users`` is the nominal number N, a public constant; ``cohort`` the expected number M of users
    in a round; ``group_size`` G the most judgements of one user in one round, ``retain`` the most
    in the whole run (0: any number). ``hold_out`` is how users are held out by a secret coin, if
    they are.
    """

    users: int
    cohort: int
    rounds: int
    delta: float
    adjacency: Adjacency
    noise_multiplier: float
    clip: UserClip
    group_size: int = DEFAULT_GROUP_SIZE
    retain: int = 0
    normalized: bool = False
    discrete: DiscreteNoise | DistributedNoise | None = None
    hold_out: HoldOut | None = None

    def __post_init__(self) -> None:
        check_size(self.users, self.cohort, self.rounds, self.group_size)
        _ = self.mechanism  # a plan that cannot be released from cannot be built
        check_users_fit(self.users, self.clip.norm, self.clip.step)

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> UlsPlan:
        """The plan with the least noise that costs at most ``epsilon``; other fields as given."""
        check_size(plan["users"], plan["cohort"], plan["rounds"], plan.get("group_size", 1))
        return cls(noise_multiplier=least_noise(epsilon, plan), **plan)

    @cached_property
    def mechanism(self) -> GaussianSum:
        """What each round runs and charges."""
        sampler = PoissonSampler(self.cohort / self.users)
        return GaussianSum(sampler, self.clip, self.noise_multiplier, self.adjacency, self.discrete)

    @property
    def charges(self) -> dict[Event, int]:
        """What the whole run will cost."""
        return {self.mechanism.event: self.rounds, **charges_of(self.hold_out)}

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient."""
        return self.mechanism.std / self.divisor

    @property
    def divisor(self) -> float:
        """What the noisy sum is divided by: M, or M·C with normalized clipping."""
        return self.cohort * (self.clip.norm if self.normalized else 1.0)

    def epsilon(self) -> float:
        """The epsilon of the whole run."""
        return accountant.epsilon(self.charges.items(), adjacency=self.adjacency, delta=self.delta)


def least_noise(epsilon: float, plan: Mapping[str, Any]) -> float:
    """The noise multiplier at which the rounds of a plan with these fields cost ``epsilon``."""
    probability, rounds = plan["cohort"] / plan["users"], plan["rounds"]
    delta, adjacency, hold_out = plan["delta"], plan["adjacency"], plan.get("hold_out")
    sigma = accountant.noise_multiplier_for(
        epsilon,
        delta=delta,
        probability=probability,
        rounds=rounds,
        adjacency=adjacency,
        hold_out=hold_out,
    )
    discrete: DiscreteNoise | DistributedNoise | None = plan.get("discrete")
    if discrete is None:
        return sigma

    def charges(sigma: float) -> dict[Event, int]:
        event = discrete.charged(PoissonGaussian(probability, sigma))
        return {event: rounds, **charges_of(hold_out)}

    # Discrete noise costs next to nothing more: the same, or a hair more of it, is enough.
    for much in (sigma, sigma * (1 + 1e-7), sigma * (1 + 1e-5)):
        cost = accountant.epsilon(charges(much).items(), adjacency=adjacency, delta=delta)
        if cost <= epsilon:
            return much
    return accountant.calibrate_noise(epsilon, charges, delta=delta, adjacency=adjacency)


def check_users_fit(users: int, norm: float, step: float) -> None:
    """Refuse so many users that a sum over everybody would not be exact."""
    grid.check_room(2 * users, norm, step)  # N is nominal: twice as many may turn up


def check_size(users: int, cohort: int, rounds: int, group_size: int) -> None:
    """Refuse impossible sizes, naming the option; raises ValueError."""
    if users < 1:
        raise ValueError(f"there must be at least one user, got {users}")
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    if cohort < 1:
        raise ValueError(f"--cohort must be at least 1, got {cohort}")
    if cohort > users:
        raise ValueError(
            f"--cohort {cohort} is more than the {users} users there are to train on; lower it"
        )
    if group_size < 1:
        raise ValueError(f"--group-size must be at least 1, got {group_size}")


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped averaged gradients, (D,).

    A pure function of its arguments (with a seeded ``source``). ``keys_S`` name the users for
    their random draws. Raises KeyError or ValueError for parameters that are missing or wrong.
    """
    clip = clip_of(work)
    return {"sum": bounded_sum(examples, work, keys_S, source, clip)}


class Uls(CohortStrategy):
    """The server half; takes the plan and the ledger, and the arguments of ``CohortStrategy``.

    Raises:
        BudgetExceeded: the ledger's budget does not cover the plan.
    """

    name = "uls"
    draws_again = True

    def __init__(self, plan: UlsPlan, ledger: Ledger, **arguments: Any) -> None:
        super().__init__(sampler=plan.mechanism.sampler, **arguments)
        self.plan, self.ledger = plan, ledger
        ledger.clear(plan.charges)

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """Clip norm, and how many judgements of a user count."""
        return {
            "clip-norm": self.plan.clip.norm,
            "group-size": self.plan.group_size,
            "retain": self.plan.retain,
        }

    def steps(self) -> Mapping[str, float]:
        """The grid of the clip."""
        return {"sum": self.plan.clip.step}

    def node_noise(self) -> NodeNoise | None:
        """On the sum, if nodes add it."""
        plan = self.plan
        noisy = NoisySum(plan.mechanism.std, plan.clip.step, plan.clip.norm)
        return node_noise(plan.discrete, {"sum": noisy})

    def admits(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite, and no longer than ``users`` clip norms."""
        return self.plan.clip.admits(sums["sum"], users)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over a fixed denominator; charged to the ledger first."""
        noisy_D = self.plan.mechanism.release(
            totals["sum"],
            round_=round_,
            covers="gradient sum",
            ledger=self.ledger,
            source=self.source,
        )
        return noisy_D / self.plan.divisor


@dataclass(frozen=True)
class UlsSettings(Retained, Normalized):
    """What is its own."""


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config, own = context.config, context.config.of(UlsSettings)
    plan = UlsPlan.for_epsilon(
        config.epsilon,
        users=context.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(config.clip or DEFAULT_CLIP),
        discrete=context.noise.on(context.dimension),
        group_size=config.group_size or DEFAULT_GROUP_SIZE,
        retain=own.retain,
        normalized=own.normalized,
        hold_out=context.hold_out,
    )
    ceiling = RATE_CEILING / plan.clip.norm * plan.divisor / plan.cohort
    optimizer = context.optimizer("sgd", plan.noise, ceiling)
    return BuiltStrategy(
        strategy=Uls(plan, ledger, **context.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(config),
        gradients=plan.rounds * plan.cohort,
        bytes_per_user=cohort_bytes(context),
        account=(
            f"In each round every user took part with probability {plan.cohort / plan.users:.3g}, "
            "by a coin of their own. Whoever did contributed one vector: the average gradient over "
            f"at most {plan.group_size:,} of their judgements, clipped to length "
            f"{plan.clip.norm:g}. Gaussian noise of {plan.noise_multiplier:.3g} times that length "
            f"per coordinate was added to the sum, which was divided by {plan.cohort:,}, however "
            "many had taken part."
        ),
    )


ULS = Strategy(
    name="uls",
    help="Average each sampled user's gradient, clip it, add noise to the sum (DP-FedSGD).",
    build=build,
    node_halves={"uls": NodeHalf(contribute, length=clip_norm)},
    settings=UlsSettings,
    adjacencies=ALL,
    discrete=supported,
    masks=supported,
    node_noise=supported,
    solve=sampled_users,
)
