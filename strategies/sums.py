"""A plan of noisy sums, and what follows from it alike for every strategy that has one.

One frozen object says what is sampled, clipped, noised and accounted. Its ``mechanism`` is what a
round runs and what a round is charged as; the charges of a run, its epsilon and the noise that
meets a budget are computed from that and from nothing else. The server half reads from the same
object the config sent to nodes, the sums that they can have sent, and its divisor.

Legend: D dimensions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.correlated_sum import CorrelatedNoise
from murmuration.privacy.disclosure import Public, Shown
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ExampleClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import (
    DistributedNoise,
    NodeNoise,
    NoisySum,
    node_noise,
)
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.sampling import PoissonSampler, Sampler
from murmuration.privacy.theorems import Theorem
from murmuration.strategies.base import PRIVATE, CohortStrategy, SteppedStrategy
from murmuration.strategies.protocol import messages

#: Noise on a grid, of the server or of the nodes; None: in floating point.
Discrete = DiscreteNoise | DistributedNoise | None
DEFAULT_GROUP_SIZE = 16


class RoundMechanism(Protocol):
    """The mechanism of a round; see ``privacy.mechanisms``."""

    @property
    def theorem(self) -> Theorem:
        """The theorem about a release."""
        ...

    @property
    def event(self) -> Event:
        """The event of one release, for the accountant."""
        ...

    @property
    def std(self) -> float:
        """Standard deviation of the noise on each coordinate of what is released."""
        ...

    @property
    def release(self) -> Callable[..., Any]:
        """Adds the noise, after a charge to the ledger; see ``GaussianSum.release``."""
        ...


@dataclass(frozen=True, kw_only=True)
class SumPlan:
    """All parameters of sampling, clipping, noise and accounting, in one object.

    ``users`` is the nominal number N, a public constant; ``noise_multiplier`` the standard
    deviation of the noise over the clip norm of one vector; ``hold_out`` the random hold-out, if
    any; ``discrete`` noise is on a grid. A strategy's plan adds its own fields, among them its
    ``clip``. Unless it says otherwise, each round is one Gaussian sum over all users.
    """

    users: int
    rounds: int
    delta: float
    adjacency: Adjacency
    noise_multiplier: float
    hold_out: HoldOut | None = None
    discrete: Discrete = None

    #: The possible numbers of rounds; empty: any.
    possible_rounds: ClassVar[tuple[int, ...]] = ()

    if TYPE_CHECKING:

        @property
        def clip(self) -> UserClip | ExampleClip:
            """The bound on a vector, with its grid, which each strategy's plan has."""
            ...

    def __post_init__(self) -> None:
        _ = self.charges  # a plan that cannot be released from cannot be built

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> Self:
        """The plan with the least noise that costs at most ``epsilon``; other fields as given.

        Raises:
            ValueError: a field is out of range, or no amount of noise is enough.
            Unsupported: there is no guarantee under the adjacency.
        """
        made = cls(noise_multiplier=1.0, **plan)  # names what is wrong with the other fields
        return replace(made, noise_multiplier=made._noise_for(epsilon))

    def _noise_for(self, epsilon: float) -> float:
        if self.discrete:  # it costs next to nothing more: the same, or a hair more, is enough
            ideal = replace(self, discrete=None)._noise_for(epsilon)
            for sigma in (ideal, ideal * (1 + 1e-7), ideal * (1 + 1e-5)):
                if replace(self, noise_multiplier=sigma).epsilon() <= epsilon:
                    return sigma
        terms: dict[str, Any] = {"delta": self.delta, "adjacency": self.adjacency}
        event, *others = self.of_rounds
        if type(event) is PoissonGaussian and not others and not self.besides:
            return accountant.noise_multiplier_for(
                epsilon,
                probability=event.probability,
                rounds=self.of_rounds[event],
                hold_out=self.hold_out,
                **terms,
            )
        return accountant.calibrate_noise(
            epsilon, lambda sigma: replace(self, noise_multiplier=sigma).charges, **terms
        )

    @property
    def coins(self) -> PoissonSampler:
        """Each user is in a round with this probability, independently: all of them."""
        return PoissonSampler(1.0)

    @property
    def sampler(self) -> Sampler:
        """The sampler of a round's users."""
        return self.coins

    @cached_property
    def mechanism(self) -> RoundMechanism:
        """The mechanism that each round runs and charges."""
        sampler = cast(PoissonSampler, self.sampler)  # of others there is no row
        parts = sampler, self.clip, self.noise_multiplier, self.adjacency
        return GaussianSum(*parts, discrete=self.discrete)

    def memory(self) -> CorrelatedNoise | None:
        """The noise that rounds share, of a run that begins; None: they share none."""
        return None

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: public constants."""
        return {"clip-norm": self.clip.norm}

    @property
    def clip_norm(self) -> float | None:
        """The clip norm, for the report."""
        return self.clip.norm

    @property
    def divisor(self) -> float:
        """The constant by which a noisy sum is divided: the expected number of its vectors."""
        return self.users

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient, in the round with most."""
        return self.mechanism.std / self.divisor

    @property
    def gradients(self) -> float:
        """Expected number of users' gradients computed in the whole run."""
        return self.rounds * self.divisor

    @property
    def of_rounds(self) -> dict[Event, int]:
        """The events of one release in each round."""
        return {self.mechanism.event: self.rounds}

    @property
    def besides(self) -> dict[Event, int]:
        """Events charged besides one release in each round and a hold-out.

        Further releases of a round may have the same event as ``mechanism``: counts add up.
        """
        return {}

    @property
    def charges(self) -> dict[Event, int]:
        """The events of the whole run, with their counts."""
        counts = Counter(self.of_rounds)
        counts.update(self.besides)  # adds up: rounds may release more than once
        counts.update(charges_of(self.hold_out))
        return dict(counts)

    def epsilon(self) -> float:
        """The epsilon of the whole run: what ``for_epsilon`` bounds."""
        return accountant.epsilon(self.charges.items(), adjacency=self.adjacency, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class CohortPlan(SumPlan):
    """A plan in which whole users are sampled.

    ``cohort`` is the expected number M of users in a round; ``group_size`` G the most judgements of
    one user in one round.
    """

    cohort: int
    group_size: int = DEFAULT_GROUP_SIZE

    def __post_init__(self) -> None:
        check_size(self.users, self.cohort, self.rounds, self.group_size)
        super().__post_init__()

    @property
    def coins(self) -> PoissonSampler:
        """Each user is in a round with probability M/N, independently."""
        return PoissonSampler(self.cohort / self.users)

    @property
    def divisor(self) -> float:
        """M."""
        return self.cohort

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: also the number of a user's judgements that count."""
        return {**super().node_config, "group-size": self.group_size}


def check_vectors_fit(vectors: int, clip: UserClip | ExampleClip) -> None:
    """Refuse a number of vectors, one per user or per judgement, whose sum would not be exact."""
    grid.check_room(2 * vectors, clip.norm, clip.step)  # N is nominal: twice as many may turn up


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


class SumStrategy(CohortStrategy):
    """The server half of a plan whose rounds are one noisy sum of clipped vectors.

    Takes the plan and the ledger, and the arguments of ``CohortStrategy``.

    Raises:
        BudgetExceeded: the ledger's budget does not cover the plan.
    """

    plan: SumPlan
    #: What the ledger says is released.
    covers = "gradient sum"

    @cached_property
    def memory(self) -> CorrelatedNoise | None:
        """The noise of earlier rounds, if later ones share it."""
        return self.plan.memory()

    def steps(self) -> Mapping[str, float]:
        """The grid of the clip."""
        return {"sum": self.plan.clip.step}

    def node_noise(self) -> NodeNoise | None:
        """The noise on the sum, if nodes add it."""
        clip = self.plan.clip
        noisy = NoisySum(self.plan.mechanism.std, clip.step, clip.norm)
        return node_noise(self.plan.discrete, {"sum": noisy})

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite, and no longer than ``users`` clip norms."""
        return self.plan.clip.is_valid(sums["sum"], users)

    def release(
        self, round_: int, totals: Mapping[str, np.ndarray], purpose: str = ""
    ) -> np.ndarray:
        """The sum with its noise, (D,); charged to the ledger first.

        ``purpose`` is what the ledger says is released. A round that releases several sums names
        each: a second one of the same name counts as the first one, run again.
        """
        return (self.memory or self.plan.mechanism).release(
            totals["sum"],
            round_=round_,
            covers=purpose or self.covers,
            ledger=self.ledger,
            source=self.source,
        )

    def figures(self) -> Mapping[str, Shown[float]]:
        """The length of a round's noise, if it is not the same in all of them."""
        if self.memory is None or not self.memory.rounds:
            return super().figures()
        row_norm = self.memory.factor.row_norm
        std = self.plan.noise / row_norm(self.plan.rounds) * row_norm(self.memory.rounds)
        return {"noise_norm": Public(std * math.sqrt(len(self.optimizer.theta)))}

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Also how noise is correlated."""
        if self.memory is None:
            return super().outcome()
        parameters = Public(list(self.memory.factor.parameters))
        return {**super().outcome(), "noise_coefficients": parameters}

    def state(self) -> dict[str, np.ndarray]:
        """The state that a resumed run needs; the noise that later rounds share is secret."""
        secret: dict[str, np.ndarray] = {}
        if self.memory and self.rounds_done < self.plan.rounds:
            secret = self.memory.state()
        return {**super().state(), **{PRIVATE + name: array for name, array in secret.items()}}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        if self.memory is not None:
            self.memory.restore(
                {name.removeprefix(PRIVATE): array for name, array in state.items()}
            )


class AveragedSum(SumStrategy, SteppedStrategy):
    """A ``SumStrategy`` whose steps follow the noisy sum over the plan's fixed ``divisor``."""

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy sum over a fixed denominator; charged to the ledger first."""
        return self.release(round_, totals) / self.plan.divisor
