"""The best item alone, chosen by permute-and-flip from voters' net scores: no board is released.

- *Node.* Of each voter at most so many ballots count, a window at a random place. Their losses are
  the item's net scores (wins less losses) below the voter's best, held within the span, in whole
  numbers. The sum leaves.
- *Server.* Takes items in random order, and each with probability exp(−rate · (sum − least sum)),
  until one is taken, by exact coins. Of everything else about the sums nothing is released.

The best by net scores is Bradley and Terry's where pairs are drawn alike. Where voters chose what
they compared it need not be, so that is refused.

Formal guarantee: (ε, 0) for all votes of one user under the plan's adjacency. Trusted: the nodes,
and the server with sums before the draw. Source: McKenna and Sheldon 2020. See
``privacy.mechanisms.exponential_mechanism``.

Legend: S asked users, C voters of a chunk, K items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.preference.data.rows import InputError
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.exponential_mechanism import STEPS, ExponentialMechanism
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.strategies.contributions import sampled
from murmuration.strategies.exponential import ExactChoice
from murmuration.strategies.optimizers import SolvedModel
from murmuration.strategies.planning import pure_epsilon
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own.ranking import VotedItems
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved import laplace_ranking, ranking
from murmuration.strategies.spec import (
    ALL,
    BuiltStrategy,
    NodeHalf,
    Number,
    RunContext,
    Strategy,
    pure_promise,
    supported,
)

if TYPE_CHECKING:
    from murmuration.preference.ranking.votes import ItemVotes


def choice_among(layout: VoteLayout, epsilon: float, adjacency: Adjacency) -> ExponentialMechanism:
    """Return the choice of one of a layout's items, by net scores of its voters."""
    return ExponentialMechanism(
        epsilon, span_of(layout), layout.items, adjacency, rule="permute-and-flip"
    )


def span_of(layout: VoteLayout) -> float:
    """Return by how much a voter's net scores can differ between items; what differs by more is cut
    off. It is half of what they can be in all, or what they are long usually: both are rare."""
    whole = VoteLayout(items=layout.items, cap=layout.cap, norm_order=2)
    return min(whole.net_norm, float(layout.cap))


@dataclass(frozen=True)
class BestItemPlan:
    """The choice of one item: by which votes, among how many, and at which cost."""

    layout: VoteLayout
    mechanism: ExponentialMechanism

    #: What the ledger says is released.
    release_name = "the best item"

    @classmethod
    def for_epsilon(
        cls, epsilon: float, *, layout: VoteLayout, delta: float, adjacency: Adjacency
    ) -> BestItemPlan:
        """The plan that costs at most ``epsilon``.

        Raises:
            ValueError: it is out of range.
        """
        pure = pure_epsilon(
            epsilon,
            lambda pure: {choice_among(layout, pure, adjacency).event: 1},
            delta=delta,
            adjacency=adjacency,
        )
        return cls(layout, choice_among(layout, pure, adjacency))

    @property
    def sampler(self) -> PoissonSampler:
        """Return who is asked: everybody."""
        return PoissonSampler(1.0)

    @property
    def charges(self) -> dict[Event, int]:
        """One choice."""
        return {self.mechanism.event: 1}

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """Return what nodes are told of it: how many items there are, and how many ballots
        count."""
        return {"policies": self.layout.items, "group-size": self.layout.cap}


def client_update(
    examples: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of how far items are below each one's best,
    (K,) float64, in spans: multiples of 1/``STEPS``.

    A pure function of its arguments. Raises KeyError or ValueError for parameters that are missing
    or wrong.
    """
    layout = VoteLayout(items=examples.items, cap=int(work.number("group-size")), norm_order=1)
    if examples.boards != 1 or work.number("policies") != layout.items:
        raise ValueError(f"the best of {layout.items} items is chosen on one board")
    # What one user adds depends on neither epsilon nor adjacency.
    mechanism = choice_among(layout, 1.0, Adjacency.ZERO_OUT)
    taken_N, taken_S = sampled(examples, work, keys_S, source)  # type: ignore[arg-type]
    sum_K = np.zeros(layout.items)
    bound = layout.clip_norm
    for chunk_CV in examples.vectors(layout, bound, taken_N.numpy(), taken_S.numpy()):
        steps_CK = mechanism.in_steps(-chunk_CV[:, layout.places["net"]])
        sum_K += np.nan_to_num(steps_CK, nan=0.0).sum(axis=0)
    return {"sum": sum_K / STEPS}


def most_of_one(number: Number) -> float:
    """One user's part of a sum, at most, in spans: one for each item but their best."""
    return math.sqrt(max(1.0, number("policies", math.inf) - 1.0))


class BestItem(ExactChoice):
    """The server half, with a ``BestItemPlan``; see ``ExactChoice``. The model is 1 at the best."""

    name = "best-item"
    plan: BestItemPlan

    def __init__(
        self, plan: BestItemPlan, ledger: Ledger, items: tuple[str, ...], **arguments: Any
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self._items = items

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Return the chosen item, and by how many net scores it may be below the best."""
        theta_K = self.optimizer.theta_D
        if not theta_K.any():
            return {}
        best = {
            "item": self._items[int(theta_K.argmax())],
            "gap_at_most_in_19_of_20": self.plan.mechanism.gap_bound(0.05),
        }
        return {"best": self.ledger.released(best)}


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """One choice of an item.

    Raises:
        InputError: settings that it has no use for; or a choice that would be as good as a guess,
            which is known before anything is spent.
        ValueError: more users than sums are exact for.
    """
    laplace_ranking.check_nobody_held_out(context)
    names = ranking.names_of(context)
    layout = VoteLayout(
        items=len(names.items), cap=context.config.of(VotedItems).max_votes or ranking.DEFAULT_CAP
    )
    adjacency = Adjacency(context.config.adjacency)
    plan = BestItemPlan.for_epsilon(
        context.config.epsilon, layout=layout, delta=context.config.delta, adjacency=adjacency
    )
    mechanism = plan.mechanism
    # N is nominal: twice as many may turn up.
    if not mechanism.is_valid(np.zeros(mechanism.choices), 2 * context.users):
        raise ValueError(f"votes of {context.users:,} users leave the range of exact sums")
    gap, most = mechanism.gap_bound(0.05), context.users * mechanism.span
    if gap >= most:
        raise InputError(
            f"nothing would be learnt: at --epsilon {context.config.epsilon:g} the item that is "
            f"chosen may be {gap:,.0f} net scores below the best, and {context.users:,} users tell "
            f"apart {most:,.0f} at most; nothing was spent. It takes a larger epsilon, or more "
            "people"
        )
    arguments = context.arguments(SolvedModel(mechanism.choices))
    return BuiltStrategy(
        strategy=BestItem(plan, ledger, names.items, **arguments),
        charges=plan.charges,
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=layout.cap,
        noise=0.0,
        guarantee=pure_promise(context.config, "the choice of one item"),
        gradients=context.users,
        bytes_per_user=(4 + 8) * mechanism.choices,
        account=(
            f"The {layout.items} items are a public list. Everybody took part once, with how far "
            f"each item is below their own best by wins less losses, over at most {layout.cap} of "
            f"their votes, chosen at random, and held within {mechanism.span:.3g}. One item was "
            "drawn by exact coins, by permute-and-flip: in random order, each with probability "
            "exp(-rate · (sum - least sum)), until one was taken."
        ),
    )


def check(settings: Settings) -> None:
    """InputError for settings that no best item can be chosen by."""
    laplace_ranking.check_pure(settings)
    for wrong, why in (
        (settings.kind != "pairs", "the best item is chosen by votes on pairs: leave out --kind"),
        (
            settings.labels != "true",
            "--strategy best-item takes true labels: --labels randomized are protected",
        ),
        (
            settings.format == "polis",
            "--format polis: which statements are compared depends on the votes, so net scores "
            "find no best one: rank them, with --pairing voters",
        ),
        (bool(settings.clip_norm), "--clip-norm follows from --max-votes: leave it out"),
    ):
        if wrong:
            raise InputError(why)


BEST_ITEM = Strategy(
    name="best-item",
    help="Choose the best public item by votes, by permute-and-flip, and release no board.",
    build=build,
    node_halves={"best-item": NodeHalf(client_update, length=most_of_one, model=False)},
    settings=VotedItems,
    adjacencies=ALL,
    masks=supported,
    rounds=(1,),
    check=check,
    features=ranking.features,
    exact_draw="permute-and-flip",
)
