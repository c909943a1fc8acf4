"""A board at pure epsilon: the sum of ``ranking``, bounded in ℓ1, with discrete Laplace noise.

- *Node.* Of each voter at most so many ballots count, as in ``ranking``, in a vector that is at
  most C long in ℓ1: no votes of theirs weigh less. The sum leaves.
- *Server.* Adds discrete Laplace noise to each coordinate of the sum, once, and fits the board.

Formal guarantee: (epsilon, 0) for all votes of one user, under every adjacency. A vector is at most
C long in ℓ1, so the sum moves by at most C where a user comes or goes, and by 2C where one takes
another's place or changes labels. It holds as computed: sums, noise and its probabilities are
exact. Trusted: the nodes' clipping, and the server with the sum before noise. Source: Dwork
and Roth 2014, Theorem 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.preference.data.rows import InputError
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.privacy.accounting.events import Event, LaplaceNoise
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.discrete_laplace import AbsoluteClip, LaplaceSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.optimizers import SolvedModel
from murmuration.strategies.planning import PlanQuery, attack_figures, pure_epsilon
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own.ranking import BoardSettings
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved import ranking
from murmuration.strategies.solved.ranking import VotePlan
from murmuration.strategies.spec import (
    ALL,
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    pure_promise,
    supported,
)
from murmuration.strategies.sums import check_vectors_fit

if TYPE_CHECKING:
    from murmuration.preference.ranking.votes import ItemVotes

#: Where what attacks reach is read off the curve of a plan.
_OF_ATTACKS = 1e-9


@dataclass(frozen=True, kw_only=True)
class LaplacePlan(VotePlan):
    """A plan of Laplace noise, with vectors bounded in ℓ1."""

    @staticmethod
    def declared() -> Strategy:
        """Return the strategy that it is the plan of."""
        return LAPLACE_RANKING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @classmethod
    def calibrate_noise(cls, epsilon: float, plan: Mapping[str, Any]) -> float:
        """The noise multiplier at which a plan with these other fields costs ``epsilon``."""
        adjacency: Adjacency = plan["adjacency"]

        def charges(pure: float) -> dict[Event, int]:
            return {LaplaceNoise(adjacency.vectors_changed / pure): plan["rounds"]}

        pure = pure_epsilon(epsilon, charges, delta=plan["delta"], adjacency=adjacency)
        return adjacency.vectors_changed / pure

    @cached_property
    def clip(self) -> AbsoluteClip:
        """Return the bound on a voter's vector."""
        return AbsoluteClip(self.layout.clip_norm)

    @cached_property
    def mechanism(self) -> LaplaceSum:
        """Return what the round runs and charges."""
        return LaplaceSum(self.clip, self.noise_multiplier, self.adjacency)

    @property
    def spent(self) -> tuple[float, float]:
        """Return epsilon and delta of the release: there is no delta."""
        return self.adjacency.vectors_changed / self.noise_multiplier, 0.0


def client_update(
    examples: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their vectors, bounded in ℓ1, (V,).

    A pure function of its arguments. Raises KeyError or ValueError for parameters that are missing
    or wrong.
    """
    clip = AbsoluteClip(work.number("clip-norm"))
    return {"sum": ranking.bounded_votes(examples, work, keys_S, source, clip)}


class LaplaceRanking(ranking.Ranking):
    """The server half, with a ``LaplacePlan``; see ``Ranking``."""

    name = "laplace-ranking"


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """One sum of votes with Laplace noise, and a board."""
    check_nobody_held_out(context)
    names = ranking.names_of(context)
    layout = ranking.layout_of(context, names, norm_order=1)
    plan = LaplacePlan.for_epsilon(context.config.epsilon, **context.sizes, layout=layout)
    arguments = context.arguments(SolvedModel(context.dimension))
    noise = (
        f"No vector was longer than {layout.clip_norm:.4g} in ℓ1. Discrete Laplace noise of the "
        f"scale {plan.noise_multiplier:.4g} times that per coordinate"
    )
    strategy = LaplaceRanking(plan, ledger, names, **arguments)
    guarantee = pure_promise(context.config, "the board")
    return ranking.built(strategy, plan, context, noise, guarantee)


def solve(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """Return all numbers of a plan of one sum with Laplace noise, with the power of its board.

    Raises:
        InputError: not epsilon or the noise multiplier alone is given, or a number that cannot be.
    """
    query.refuse_examples()
    if query.releases:
        raise InputError("--releases is for boards with a delta: leave it out, or --delta 0")
    if query.cohort is not None or query.rounds not in (None, 1) or not query.users:
        raise InputError(
            "--strategy laplace-ranking takes everybody, once: give --users, and no --cohort"
        )
    if (query.epsilon is None) == (query.noise_multiplier is None) or query.delta is not None:
        raise InputError(
            "--strategy laplace-ranking has no --delta: give --epsilon or --noise-multiplier"
        )
    changed = adjacency.vectors_changed
    noise = query.noise_multiplier or changed / (query.epsilon or math.nan)
    event = LaplaceNoise(noise)
    numbers = {
        "epsilon": changed / noise,
        "noise_multiplier": noise,
        "rounds": 1,
        "cohort": query.users,
        "users": query.users,
        "delta": 0.0,
        **attack_figures(
            {event: 1}, adjacency=adjacency, epsilon=changed / noise, delta=_OF_ATTACKS
        ),
    }

    def std_of(layout: VoteLayout) -> float:
        return LaplaceSum(AbsoluteClip(layout.clip_norm), noise, adjacency).std

    return ranking.with_power(numbers, query, std_of, norm_order=1)


def check_pure(settings: Settings) -> None:
    """InputError for noise that has no place in a promise without a delta."""
    if settings.noise == "distributed":
        raise InputError(
            f"--noise distributed: --strategy {settings.strategy} draws exactly, which the server "
            "does, and it sees the sum before. Leave it out (--secure-aggregation hides sums of "
            "single nodes), or make a board with a delta: --strategy ranking"
        )
    if settings.noise == "gaussian":
        raise InputError(
            f"--noise gaussian: --strategy {settings.strategy} draws with whole numbers; leave it "
            "out"
        )


def check_nobody_held_out(context: RunContext) -> None:
    """InputError where users are held out, whose figures a promise without a delta lacks."""
    if context.hold_out:
        raise InputError(
            f"--strategy {context.config.strategy} promises something about everybody: --heldout 0"
        )


def check(settings: Settings) -> None:
    """InputError for settings that no board can be made by at pure epsilon."""
    ranking.check(settings)
    check_pure(settings)


LAPLACE_RANKING = Strategy(
    name="laplace-ranking",
    help="As ranking, at pure epsilon: votes bounded in ℓ1, discrete Laplace noise, delta 0.",
    build=build,
    node_halves={"laplace-ranking": NodeHalf(client_update, length=clip_norm, model=False)},
    settings=BoardSettings,
    adjacencies=ALL,
    masks=supported,
    rounds=(1,),
    check=check,
    solve=solve,
    features=ranking.features,
    exact_draw="discrete-laplace",
)
