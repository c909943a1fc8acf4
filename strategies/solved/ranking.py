"""A board of items from votes: one noisy sum of voters' net scores, and all else follows from it.

- *Node.* Of each voter at most so many ballots count, a window at a random place. They become one
  vector: of each item wins less losses, with scaled numbers beside it that intervals need
  (``preference.ranking.layout``). Votes whose vector is longer than C weigh less, all of them
  alike, so that it is C long. The sum leaves.
- *Server.* Adds Gaussian noise to the sum, once, and fits the board to it, which is post-processing
  (``preference.ranking``).
- *Several releases.* Where votes keep coming, a round is one of so many releases, of what came up
  to then. A node tells what voters add in it (``strategies.solved.vote_stream``), and the server's
  noise is shared among the releases, which together cost what one does (``privacy.continual``).

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

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from murmuration.preference.choices import PAIRINGS
from murmuration.preference.data.rows import InputError, Kind
from murmuration.preference.features.items import KIND as ITEMS
from murmuration.preference.features.items import ONE_BOARD, ItemFeatures, read_names
from murmuration.preference.ranking.board import fit_board
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.power import planned_power
from murmuration.preference.ranking.release import Pairing, RankingRelease
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.ledger_lines import NotRepeated
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.prefix_sums import PrefixSums
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.hold_out import charges_of
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.contributions import clip_of, sampled
from murmuration.strategies.optimizers import SolvedModel
from murmuration.strategies.planning import PlanQuery, released_once
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own.ranking import (
    MOST_RELEASES,
    RankingSettings,
)
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.vote_stream import VoteStream
from murmuration.strategies.solved.whole_crowd import GaussianCrowdPlan
from murmuration.strategies.spec import (
    ALL,
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    no_keys,
    promise,
    sum_bytes,
    supported,
)
from murmuration.strategies.sums import SumStrategy

if TYPE_CHECKING:
    from murmuration.preference.ranking.votes import ItemVotes

#: Most ballots of a voter that count.
DEFAULT_CAP = 10
#: In a request: how many releases of the board there are, if there are several.
RELEASES = "releases"


@dataclass(frozen=True, kw_only=True)
class RankingPlan(GaussianCrowdPlan):
    """Everybody takes part once, with one vector that is ``layout.clip_norm`` long at most, or in
    so many ``releases``."""

    layout: VoteLayout
    releases: int = 1

    @staticmethod
    def declared() -> Strategy:
        """Return the strategy that it is the plan of."""
        return RANKING

    @cached_property
    def clip(self) -> UserClip:
        """Return the bound on a voter's vector, or on all that a voter adds in the releases."""
        return UserClip(VoteStream(self.layout, self.releases).clip_norm)

    @cached_property
    def prefix_sums(self) -> PrefixSums:
        """Return how all releases are made together."""
        return PrefixSums(self.mechanism, self.releases)

    @property
    def charges(self) -> dict[Event, int]:
        """Return what the board will cost: all releases together."""
        if self.releases == 1:
            return super().charges
        return {**self.prefix_sums.charges, **self.besides, **charges_of(self.hold_out)}

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """Return what nodes are told of it: the bound, the cap, and who chose the pairs; of several
        releases also how many there are."""
        several = {RELEASES: self.releases} if self.releases > 1 else {}
        return {
            "clip-norm": self.clip.norm,
            "group-size": self.layout.cap,
            "pairing": self.layout.pairing,
            **several,
        }


def client_update(
    examples: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their bounded vectors, or of what they add
    in one of several releases, (V,).

    A pure function of its arguments. Raises KeyError or ValueError for parameters that are missing
    or wrong.
    """
    clip, releases = clip_of(work), int(work.parameters.get(RELEASES, 1))
    layout, release = _requested_layout(examples, work), int(work.number("round"))
    if releases == 1:
        taken_N, taken_S = sampled(examples, work, keys_S, source)  # type: ignore[arg-type]
        vectors = examples.vectors(layout, clip.norm, taken_N.numpy(), taken_S.numpy())
        return {"sum": _summed(vectors, layout, clip)}
    stream = VoteStream(layout, releases)
    added = stream.added(examples, work.users_S, release, clip.norm)
    return {"sum": _summed(added, layout, clip)}


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


def _summed(chunks: Iterable[np.ndarray], layout: VoteLayout, clip: UserClip) -> np.ndarray:
    """Return the exact sum of voters' vectors, each bounded by ``clip``, (V,)."""
    import torch

    total_V = torch.zeros(layout.size, dtype=torch.float64)
    for chunk_CV in chunks:
        total_V += clip.clip_sum(torch.from_numpy(chunk_CV))
    return total_V.numpy()


class Ranking(SumStrategy):
    """The server half of a board, with a plan; see ``SumStrategy``.

    ``names`` are items and boards. The model is the items' scores.
    """

    name = "ranking"
    plan: RankingPlan
    optimizer: SolvedModel
    covers = "vote sum"

    def __init__(
        self,
        plan: RankingPlan,
        ledger: Ledger,
        names: ItemFeatures,
        **arguments: Any,
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self._names = names
        self._noisy_V: list[np.ndarray] = []  # of each release

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The one sum that a node answers with."""
        return {"sum": (self.plan.layout.size,)}

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the sum, charged to the ledger first, and fit each board to it."""
        self._noisy_V.append(self.noisy_sum(round_, totals))
        release = self.votes()
        boards = range(len(release.boards))
        scores = [fit_board(release.board(board)).scores_K for board in boards]
        return self.optimizer.set(np.concatenate(scores))

    def noisy_sum(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sum of all votes so far with noise, charged first, (V,)."""
        return self.release(round_, totals)

    def std(self, release: int) -> float:
        """Return the noise on the coordinates of a release, from 1."""
        del release
        return self.plan.mechanism.std

    def votes(self, release: int = 0) -> RankingRelease:
        """Return what was released last, or in one of several releases (from 1), as it is to be
        read.

        Raises:
            ValueError: nothing was.
        """
        if not self._noisy_V:
            raise ValueError("no votes have been released")
        layout = self.plan.layout
        release = release or len(self._noisy_V)
        return RankingRelease(
            items=self._names.items,
            boards=self._names.boards,
            pairing=layout.pairing,
            noise=layout.noise(self.std(release)),
            cap=layout.cap,
            clip_norm=layout.clip_norm,
            epsilon=self.plan.epsilon(),
            delta=self.plan.delta,
            **cast(dict[str, Any], layout.read(self._noisy_V[release - 1])),
        )

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Return the release, for whoever draws a board from the result."""
        if not self._noisy_V:
            return {}
        return {"votes": self.ledger.released(self.votes().to_json())}

    def notes(self) -> list[str]:
        """Return that nothing was learnt, where that is so."""
        if not self._noisy_V:
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
        """Also the sums that were released, one after the other."""
        noisy = np.concatenate(self._noisy_V) if self._noisy_V else np.zeros(0)
        return {**super().state(), "votes": noisy}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self._noisy_V = [*state["votes"].reshape(-1, self.plan.layout.size)]


class ContinuedRanking(Ranking):
    """The server half of a board that is released several times, under noise that its releases
    share.

    ``noise_keys`` returns the secret keys of the noise of the first so many releases, always the
    same ones.
    """

    def __init__(
        self,
        plan: RankingPlan,
        ledger: Ledger,
        names: ItemFeatures,
        noise_keys: Callable[[int], Sequence[bytes]] = no_keys,
        **arguments: Any,
    ) -> None:
        super().__init__(plan, ledger, names, **arguments)
        self._noise_keys = noise_keys
        self._keys_digest = b""

    def noisy_sum(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sum of all votes so far with noise, charged first, (V,).

        Raises:
            ValueError: the keys of the noise are not those of the releases before, or it was
                released before, from other votes.
        """
        keys = self._noise_keys(round_)
        if self._noisy_V and _digest(keys[:-1]) != self._keys_digest:
            raise ValueError(
                "the kept noise is not that of the releases before: bring back an undamaged copy "
                "of the run's private folder"
            )
        before_V = self._noisy_V[-1] if self._noisy_V else np.zeros_like(totals["sum"])
        try:
            noisy_V = self.plan.prefix_sums.release(
                totals["sum"],
                before_V,
                release=round_,
                label=self.covers,
                ledger=self.ledger,
                keys=keys,
                seeded=self.source.seeded,
            )
        except NotRepeated:
            raise ValueError(
                f"release {round_} was made of other votes before: the same noise on both would "
                "tell their difference, so it is made of those, or never again"
            ) from None
        self._keys_digest = _digest(keys)
        return noisy_V

    def std(self, release: int) -> float:
        """Return the noise on the coordinates of a release, from 1."""
        return self.plan.prefix_sums.std(release)

    def history(self) -> list[dict[str, Any]]:
        """Return what each release showed of the board of all votes: strengths on the Elo scale and
        half their intervals, in the order of the items, and numbers of votes and voters."""
        boards = [
            fit_board(self.votes(release + 1).overall()) for release in range(len(self._noisy_V))
        ]
        return [
            {
                "elo": board.elo_K.round(2).tolist(),
                "error": board.error_K.round(2).tolist(),
                "votes": board.votes,
                "voters": board.voters,
            }
            for board in boards
        ]

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Return the last release, and the history of all of them."""
        if not self._noisy_V:
            return {}
        return {**super().outcome(), "history": self.ledger.released(self.history())}

    def state(self) -> dict[str, np.ndarray]:
        """Also a hash of the keys of the noise."""
        return {**super().state(), "noise_keys": np.frombuffer(self._keys_digest, dtype=np.uint8)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self._keys_digest = state["noise_keys"].tobytes()


def _digest(keys: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(keys)).digest()


def names_of(context: RunContext) -> ItemFeatures:
    """Return the public lists of items and categories.

    Raises:
        InputError: there is none of items, or a model of texts beside.
    """
    described = json.loads(context.features)
    if described["kind"] != ITEMS:
        raise InputError(
            f"--strategy {context.config.strategy} needs --items, the public list of what is voted "
            "on: an item that votes alone know would give its voters away"
        )
    if context.config.base:
        raise InputError(
            f"--strategy {context.config.strategy} scores items, and no texts: leave out --base"
        )
    return ItemFeatures(tuple(described["items"]), tuple(described["boards"]))


def layout_of(context: RunContext, names: ItemFeatures) -> VoteLayout:
    """Return what stands where in a voter's vector, from public numbers."""
    own = context.config.of(RankingSettings)
    return VoteLayout(
        items=len(names.items),
        boards=len(names.boards),
        cap=own.max_votes or DEFAULT_CAP,
        pairing=cast(Pairing, own.pairing),
        kind=cast(Kind, context.config.schema.kind),
        responses=context.config.schema.responses,
    )


def built(
    strategy: Ranking,
    plan: RankingPlan,
    context: RunContext,
    noise: str,
    guarantee: str,
    counted: str = "chosen at random",
) -> BuiltStrategy:
    """Return a board's strategy with the figures that its report states.

    ``noise``, ``guarantee`` and which ballots are ``counted`` are in words.
    """
    layout = plan.layout
    account = (
        f"The {layout.items} items are a public list. Everybody took part once, with one "
        f"vector: at most {layout.cap} of their ballots, {counted}, as wins less losses of "
        "each item, with scaled counts and squares for intervals"
        + (" and counts of each pair" if layout.pairing == "voters" else "")
        + f". {noise} was added to the sum. The board was computed from it."
    )
    result = BuiltStrategy.of(
        strategy,
        plan,
        context,
        clip_norm=plan.clip.norm,
        group_size=layout.cap,
        bytes_per_user=4.0 * context.dimension + sum_bytes(context) * layout.size,
        account=account,
    )
    return replace(result, guarantee=guarantee)


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """One noisy sum of votes, and a board; or several, that share their noise."""
    names, releases = names_of(context), context.config.of(RankingSettings).releases
    if releases > 1:
        _check_goes_on(context)
    layout = layout_of(context, names)
    plan = RankingPlan.for_epsilon(
        context.config.epsilon,
        **context.sizes,
        layout=layout,
        releases=releases,
        discrete=context.noise.on(layout.size),
    )
    arguments = context.arguments(SolvedModel(context.dimension))
    weighed = f"Votes whose vector was longer than {layout.clip_norm:.4g} weighed less, all alike."
    if releases == 1:
        noise = f"{weighed} Gaussian noise of {plan.noise_multiplier:.4g} times that per coordinate"
        board = Ranking(plan, ledger, names, **arguments)
        return built(board, plan, context, noise, promise(context.config, "the board"))
    first, last = plan.prefix_sums.std(1), plan.prefix_sums.std(releases)
    noise = (
        f"{weighed} Gaussian noise of {first:.4g} per coordinate in the first release, and up to "
        f"{last:.4g} in the last,"
    )
    result = built(
        ContinuedRanking(plan, ledger, names, noise_keys=context.noise_keys, **arguments),
        plan,
        context,
        noise,
        promise(context.config, f"all {releases} boards together"),
        counted="the first",
    )
    account = (
        f"{result.account} It is released {releases} times while votes come; what a voter adds in "
        f"all of them is bounded together, by {plan.clip.norm:.4g}, and the noise of the releases "
        "is correlated, so that together they cost what one does."
    )
    release = context.config.of(RankingSettings).release
    return replace(result, account=account, releases=releases, release=release)


def _check_goes_on(context: RunContext) -> None:
    """InputError where a board cannot be released several times."""
    if not context.participants.registry.simulated:
        raise InputError(
            "--releases is not for separate machines: their owners' agents answer for one release "
            "at a time; make a board of each period, whose costs add up"
        )


def with_power(
    numbers: dict[str, float], query: PlanQuery, std_of: Callable[[VoteLayout], float]
) -> dict[str, float]:
    """Return the numbers of a plan with how many voters tell how much apart, if it is known how
    many items there are.

    Args:
        numbers: of the plan.
        query: what is known of it.
        std_of: the noise on each coordinate of a sum, by the layout of vectors.

    Raises:
        InputError: numbers that no board can have.
    """
    if query.items is None:
        if query.max_votes or query.votes_each or query.releases:
            raise InputError(
                "--max-votes, --votes-each and --releases are about a board: add --board-size"
            )
        return numbers
    cap = query.max_votes or DEFAULT_CAP
    each = query.votes_each or float(cap)
    if query.items < 2 or cap < 1 or not 0.0 < each <= cap:
        raise InputError(
            "a board has a --board-size of at least 2, and of each voter at least one vote counts, "
            "on average at most --max-votes"
        )
    layout = VoteLayout(items=query.items, cap=cap)
    figures = planned_power(
        query.users or 1, items=query.items, votes_each=each, net_std=std_of(layout)
    )
    return {**numbers, "items": query.items, "votes_each": each, **figures}


def solve(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """Return all numbers of a plan of one Gaussian sum, or of several releases that share one, with
    the power of the last board."""
    numbers = released_once(query, adjacency, (1,))
    releases = 1 if query.releases is None else query.releases
    if not 1 <= releases <= MOST_RELEASES:
        raise InputError(f"--releases must be from 1 to {MOST_RELEASES}; got {releases}")

    def std_of(layout: VoteLayout) -> float:
        stream = VoteStream(layout, releases)
        return numbers["noise_multiplier"] * stream.clip_norm * stream.root.row_norm(releases)

    several = {"releases": releases} if releases > 1 else {}
    return {**with_power(numbers, query, std_of), **several}


def check(settings: Settings) -> None:
    """InputError for settings that no board can be made by, once or several times."""
    own = settings.of(RankingSettings)
    if settings.kind == "thumbs":
        raise InputError(
            f"--strategy {settings.strategy} compares items, and --kind thumbs rates single ones: "
            "leave it out, and pairs are made of each user's thumbs"
        )
    if settings.kind == "top-1" and own.pairing == "public":
        raise InputError(
            "--kind top-1: which pairs a vote for the best of several compares depends on the "
            "vote, so their counts must be released: add --pairing voters"
        )
    if settings.labels != "true":
        raise InputError(
            f"--strategy {settings.strategy} takes true labels: --labels randomized are protected"
        )
    if settings.clip_norm:
        raise InputError(
            "--clip-norm follows from --max-votes and the number of items: leave it out"
        )
    if own.releases > 1 and settings.on_bad_rows != "refuse":
        raise InputError(
            f"--on-bad-rows {settings.on_bad_rows}: which rows can be read may depend on rows that "
            "come later, and votes of a release that was made must stay what they were: a board "
            "with --releases takes no bad rows; leave them out of the file"
        )
    if own.release > own.releases:
        raise InputError(
            f"all {own.releases} releases of this board have been made: begin another with another "
            "--out, which costs its voters an epsilon of its own"
        )


def _no_grid(settings: Settings) -> str:
    """Why there is no noise on a grid, if that is so."""
    return "boards of several releases, whose noise is correlated" if _several(settings) else ""


def _no_shares(settings: Settings) -> str:
    """Why nodes cannot add the noise, if that is so."""
    if not _several(settings):
        return ""
    return "of several releases nodes would have to remember what they added: leave out --releases"


def _several(settings: Settings) -> bool:
    return settings.of(RankingSettings).releases > 1


def features(settings: Settings) -> dict[str, Any] | None:
    """Return the description of one feature an item; None where no list is named."""
    listed = settings.of(RankingSettings).items
    if not listed:
        return None
    items, categories = read_names("--items", listed), settings.of(RankingSettings).categories
    boards = read_names("--categories", categories) if categories else ONE_BOARD
    return ItemFeatures(items, boards).to_config()


RANKING = Strategy(
    name="ranking",
    help="Rank public items by one noisy sum of votes: a board, and no model of texts.",
    build=build,
    node_halves={"ranking": NodeHalf(client_update, length=clip_norm, model=False)},
    settings=RankingSettings,
    adjacencies=ALL,
    discrete=_no_grid,
    masks=supported,
    node_noise=_no_shares,
    rounds=(1,),
    check=check,
    solve=solve,
    features=features,
)
