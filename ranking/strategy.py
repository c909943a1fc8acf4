"""A leaderboard of items from votes: one noisy sum of voters' net scores, and everything else
computed from it.

- *Node.* At most a fixed number of each voter's ballots count, a window at a random place. They
  become one vector: of each item wins less losses, with scaled numbers beside it that intervals
  need (``ranking.layout``). Votes whose vector is longer than C weigh less, all of them alike, so
  that it is C long. The sum leaves.
- *Server.* Adds Gaussian noise to the sum, once, and fits the leaderboard to it, which is
  post-processing (``ranking.board``).

Formal guarantee: (epsilon, delta) for all votes of one user, under every adjacency. A vector is at
most C long, so the sum moves by at most C where a user comes or goes, and by 2C where one takes
another's place or changes labels (of votes on one pair, and the opposite, by up to 1.85C: counts
do not turn round). Items and categories are public lists: a vote on anything else never reaches a
sum. Trusted: the nodes' clipping, and the server with the sum before noise. Source: net scores are
sufficient for Bradley–Terry; private rankings are analysed in Cai, Chakraborty and Wang
(2507.09388).

Legend: S sampled users, V coordinates of a vector, B boards, K items.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from murmuration.preference.choices import Kind
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import read_names
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Participation, Unit, select
from murmuration.ranking.board import fit_board
from murmuration.ranking.items import KIND as ITEMS
from murmuration.ranking.items import ONE_BOARD, ItemFeatures
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.power import planned_power
from murmuration.ranking.release import Pairing, RankingRelease
from murmuration.ranking.settings import PAIRINGS, RankingSettings
from murmuration.strategies.contributions import clip_of, sampled
from murmuration.strategies.planning import RELEASED_ONCE, Planned, PlanQuery
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.whole_crowd import WholeCrowdPlan
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_of_clip,
    sum_bytes,
)
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.sums import SumStrategy

if TYPE_CHECKING:
    from murmuration.ranking.votes import ItemVotes

_ABOUT_POWER = (
    "Voters for so many points: with that many, two items of nearly equal strength that differ by "
    "so much are told apart in 80 % of polls, at 95 %, if pairs are drawn alike and voters' tastes "
    "differ as usual (design effect 1.3)"
)
#: Most ballots of a voter that count.
DEFAULT_CAP = 10


@dataclass(frozen=True, kw_only=True)
class RankingPlan(WholeCrowdPlan):
    """A plan in which each user takes part once, with one vector of length at most
    ``layout.clip_norm``.
    """

    layout: VoteLayout

    @cached_property
    def clip(self) -> UserClip:
        """The bound on a voter's vector."""
        return UserClip(self.layout.clip_norm)

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: also the cap, and who chose the pairs."""
        own = {"group-size": self.layout.cap, "pairing": self.layout.pairing}
        return {**super().node_config, **own}


def client_update(
    examples: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their bounded vectors, (V,).

    A pure function of its arguments. Raises KeyError or ValueError for parameters that are missing
    or wrong.
    """
    import torch

    clip, layout = clip_of(work), _requested_layout(examples, work)
    taken_N, taken_S = sampled(examples, work, keys_S, source)  # type: ignore[arg-type]
    total_V = torch.zeros(layout.size, dtype=torch.float64)
    for chunk_CV in examples.vectors(layout, clip.norm, taken_N.numpy(), taken_S.numpy()):
        total_V += clip.clip_sum(torch.from_numpy(chunk_CV))
    return {"sum": total_V.numpy()}


def _requested_layout(examples: ItemVotes, work: TrainRequest) -> VoteLayout:
    pairing = str(work.parameters["pairing"])
    if pairing not in PAIRINGS:
        raise ValueError(f"who chose the pairs is one of {', '.join(PAIRINGS)}, not {pairing!r}")
    return VoteLayout(
        items=examples.items,
        boards=examples.boards,
        cap=int(work.number("group-size")),
        pairing=cast(Pairing, pairing),
        kind=examples.kind,
        responses=examples.width + 1,
    )


class Ranking(SumStrategy):
    """The server half of a board, with a plan; see ``SumStrategy``.

    ``names`` are items and boards. The model is the items' scores.
    """

    name = "ranking"
    plan: RankingPlan
    optimizer: SolvedModel
    covers = "vote sum"

    def __init__(
        self, plan: RankingPlan, ledger: Ledger, names: ItemFeatures, **arguments: Any
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self._names = names
        self._noisy_V: np.ndarray | None = None

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The one sum that a node answers with."""
        return {"sum": (self.plan.layout.size,)}

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the sum, charged to the ledger first, and fit each board to it."""
        self._noisy_V = self.release(round_, totals)
        release = self.votes()
        boards = range(len(release.boards))
        scores = [fit_board(release.board(board)).scores_K for board in boards]
        return self.optimizer.set(np.concatenate(scores))

    def votes(self) -> RankingRelease:
        """The release.

        Raises:
            ValueError: nothing was.
        """
        if self._noisy_V is None:
            raise ValueError("no votes have been released")
        layout = self.plan.layout
        return RankingRelease(
            items=self._names.items,
            boards=self._names.boards,
            pairing=layout.pairing,
            noise=layout.noise(self.plan.std),
            cap=layout.cap,
            clip_norm=layout.clip_norm,
            epsilon=self.plan.epsilon(),
            delta=self.plan.delta,
            **cast(dict[str, Any], layout.read(self._noisy_V)),
        )

    def outcome(self) -> Mapping[str, Shown[object]]:
        """The release, for the leaderboard drawn from the result."""
        if self._noisy_V is None:
            return {}
        return {"votes": self.ledger.released(self.votes().to_json())}

    def notes(self) -> list[str]:
        """A note that nothing was learnt, if so, or that counts are impossible."""
        if self._noisy_V is None:
            return super().notes()
        votes = self.votes()
        boards = [fit_board(votes.board(place)) for place in range(len(votes.boards))]
        impossible = dict.fromkeys(name for board in boards for name in board.impossible)
        if impossible:
            return [
                *super().notes(),
                f"THE PAIRS WERE NOT DRAWN ALIKE, as --pairing {votes.pairing} declares: net, "
                f"{', '.join(impossible)} won or lost more votes than they can have been in, so "
                "the strengths are wrong, and nobody is told apart. With --pairing voters the "
                "counts of pairs are released, too; that is another release, with an epsilon of "
                "its own.",
            ]
        if any(board.better_KK.any() for board in boards):
            return super().notes()
        return [
            *super().notes(),
            "NOTHING WAS LEARNT of the order: no two items can be told apart beyond doubt. More "
            "voters, or a larger epsilon, would tell; murmuration plan --strategy ranking "
            f"--board-size {len(votes.items)} says how many.",
        ]

    def state(self) -> dict[str, np.ndarray]:
        """Also the sum that was released."""
        noisy_V = np.zeros(0) if self._noisy_V is None else self._noisy_V
        return {**super().state(), "votes": noisy_V}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self._noisy_V = state["votes"] if len(state["votes"]) else None


def names_of(context: RunContext) -> ItemFeatures:
    """The public lists of items and categories.

    Raises:
        InputError: there is none of items, or a model of texts beside.
    """
    described = json.loads(context.features)
    if described["kind"] != ITEMS:
        raise InputError(
            f"--strategy {context.config.strategy} needs --items, the public list of what is voted "
            "on: an item that votes alone know would give its voters away"
        )
    return ItemFeatures(tuple(described["items"]), tuple(described["boards"]))


def layout_of(context: RunContext, names: ItemFeatures) -> VoteLayout:
    """The layout of a voter's vector, from public numbers."""
    return VoteLayout(
        items=len(names.items),
        boards=len(names.boards),
        cap=context.config.group_size or DEFAULT_CAP,
        pairing=cast(Pairing, context.config.of(RankingSettings).pairing),
        kind=cast(Kind, context.config.schema.kind),
        responses=context.config.schema.responses,
    )


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """One noisy sum of votes, and a leaderboard."""
    names = names_of(context)
    layout = layout_of(context, names)
    plan = RankingPlan.for_epsilon(
        context.config.epsilon,
        **{**context.sizes, "discrete": context.noise.on(layout.size)},
        layout=layout,
    )
    return BuiltStrategy.of(
        Ranking(plan, ledger, names, **context.arguments(SolvedModel(context.dimension))),
        plan,
        group_size=layout.cap,
        bytes_per_user=4.0 * context.dimension + sum_bytes(context) * layout.size,
    )


# The noise multiplier is the same for boards of any size.
_PLANNED = Planned(
    plan=RankingPlan,
    free=RELEASED_ONCE,
    fields=lambda query, adjacency: {"layout": VoteLayout(items=2, cap=DEFAULT_CAP)},
)


def solve(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    """All numbers of a plan of one Gaussian sum, with the statistical power if the number of items
    is known.

    Raises:
        InputError: numbers that no leaderboard can have.
    """
    items = query.own.get("board_size")
    if items is None:
        if query.own or query.group_size:
            raise InputError("--group-size and --votes-each are about a board: add --board-size")
        return _PLANNED(query, adjacency)
    cap = query.group_size or DEFAULT_CAP
    each = query.own.get("votes_each") or float(cap)
    if items < 2 or not 0.0 < each <= cap:
        raise InputError(
            "a board has a --board-size of at least 2, and --votes-each of at most --group-size"
        )
    numbers = _PLANNED(replace(query, group_size=None), adjacency)  # which costs nothing
    std = numbers["noise_multiplier"] * VoteLayout(items=items, cap=cap).clip_norm
    figures = planned_power(query.users or 1, items=items, votes_each=each, net_std=std)
    return {**numbers, "items": items, "votes_each": each, **figures, "power": _ABOUT_POWER}


_RULES = (
    Rule(
        lambda config, strategy: config.kind == "thumbs",
        "--strategy {strategy} compares items; without --kind pairs are made of thumbs",
        ({"kind": None, "model": None},),
    ),
    Rule(
        lambda config, strategy: (
            config.kind == "top-1" and config.of(RankingSettings).pairing == "public"
        ),
        "--kind top-1: which pairs a vote for the best of several compares depends on the vote, so "
        "their counts must be released",
        ({"pairing": "voters"},),
    ),
    Rule(
        lambda config, strategy: config.labels != "true",
        "--strategy {strategy} takes true labels: --labels randomized are protected",
        (),
    ),
    Rule(
        lambda config, strategy: config.clip_norm,
        "--clip-norm follows from --group-size and the number of items",
        ({"clip_norm": None},),
    ),
    Rule(
        lambda config, strategy: config.base,
        "--strategy {strategy} scores items, and no texts",
        ({"base": None},),
    ),
)


def features(settings: Settings) -> dict[str, Any] | None:
    """The config of one feature per item; None if no list is named."""
    listed = settings.items
    if not listed:
        return None
    categories = settings.of(RankingSettings).categories
    boards = read_names("--categories", "category", categories) if categories else ONE_BOARD
    return ItemFeatures(read_names("--items", "item", listed), boards).to_config()


RANKING = Strategy(
    name="ranking",
    help="Rank public items by one noisy sum of votes: a board, and no model of texts.",
    build=build,
    node_halves={"ranking": NodeHalf(client_update, clip_norm, grid_of_clip, model=False)},
    settings=RankingSettings,
    theorems=select(Unit.VECTOR, Participation.POISSON),
    rounds=(1,),
    rules=_RULES,
    solve=solve,
    features=features,
)
