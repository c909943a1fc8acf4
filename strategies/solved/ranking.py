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
another's place or changes labels (attained: votes on one pair, and the opposite). Items and
categories are public lists: a vote on anything else never reaches a sum. Trusted: the nodes'
clipping, and the server with the sum before noise. Source: net scores are sufficient for
Bradley–Terry; private rankings are analysed in Cai, Chakraborty and Wang (2507.09388).

Legend: S sampled users, V coordinates of a vector, B boards, K items.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from murmuration.preference.choices import PAIRINGS
from murmuration.preference.data.rows import InputError, Kind
from murmuration.preference.features.items import KIND as ITEMS
from murmuration.preference.features.items import ItemFeatures
from murmuration.preference.ranking.board import fit_board
from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.release import Pairing, RankingRelease
from murmuration.preference.ranking.votes import ItemVotes
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.ledger_lines import NotRepeated
from murmuration.privacy.continual.prefix_sums import PrefixSums
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.hold_out import charges_of
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.contributions import clip_of, sampled
from murmuration.strategies.optimizers import SolvedModel
from murmuration.strategies.planning import released_once
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own.ranking import RankingSettings
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.vote_stream import VoteStream
from murmuration.strategies.solved.whole_crowd import WholeCrowdPlan
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
from murmuration.strategies.sums import (
    Discrete,
    SumStrategy,
    check_vectors_fit,
)

#: Most ballots of a voter that count.
DEFAULT_CAP = 10
#: In a request: how many releases of the board there are, if there are several.
RELEASES = "releases"


@dataclass(frozen=True, kw_only=True)
class RankingPlan(WholeCrowdPlan):
    """Everybody takes part once, with one vector that is ``layout.clip_norm`` long at most."""

    layout: VoteLayout
    releases: int = 1
    discrete: Discrete = None

    @staticmethod
    def declared() -> Strategy:
        """Return the strategy that it is the plan of."""
        return RANKING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vectors_fit(self.users, self.clip)

    @cached_property
    def clip(self) -> UserClip:
        """Return the bound on a voter's vector, or on all that a voter adds in the releases."""
        return UserClip(VoteStream(self.layout, self.releases).clip_norm)

    @cached_property
    def mechanism(self) -> GaussianSum:
        """Return what the round runs and charges: a Gaussian sum over everybody."""
        return GaussianSum(
            self.sampler, self.clip, self.noise_multiplier, self.adjacency, self.discrete
        )

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
        """Return what nodes are told of it: the bound, the cap, who chose the pairs, and how many
        releases there are, if there are several."""
        return {
            "clip-norm": self.clip.norm,
            "group-size": self.layout.cap,
            "pairing": self.layout.pairing,
            **({RELEASES: self.releases} if self.releases > 1 else {}),
        }


def client_update(
    examples: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their bounded vectors, (V,).

    A pure function of its arguments. Raises KeyError or ValueError for parameters that are missing
    or wrong.
    """
    pairing = str(work.parameters["pairing"])
    if pairing not in PAIRINGS:
        raise ValueError(f"who chose the pairs is one of {', '.join(PAIRINGS)}, not {pairing!r}")
    layout = VoteLayout(
        items=examples.items,
        boards=examples.boards,
        cap=int(work.number("group-size")),
        pairing=cast(Pairing, pairing),
        kind=examples.kind,
        responses=examples.width + 1,
    )
    clip, releases = clip_of(work), int(work.parameters.get(RELEASES, 1))
    if releases > 1:
        stream, release = VoteStream(layout, releases), int(work.number("round"))
        chunks = stream.added(examples, work.users_S, release, clip.norm)
    else:
        taken_N, taken_S = sampled(examples, work, keys_S, source)  # type: ignore[arg-type]
        chunks = examples.vectors(layout, clip.norm, taken_N.numpy(), taken_S.numpy())
    total_V = torch.zeros(layout.size, dtype=torch.float64)
    for chunk_CV in chunks:
        total_V += clip.clip_sum(torch.from_numpy(chunk_CV))
    return {"sum": total_V.numpy()}


class Ranking(SumStrategy):
    """The server half, with a ``RankingPlan``; see ``SumStrategy``.

    ``features`` names items and boards. The model is the items' scores.
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
        noise_keys: Callable[[int], Sequence[bytes]] = no_keys,
        **arguments: Any,
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self._names, self._noise_keys = names, noise_keys
        self._noisy_V: list[np.ndarray] = []  # of each release
        self._keys_digest = b""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The one sum that a node answers with."""
        return {"sum": (self.plan.layout.size,)}

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the sum, charged to the ledger first, and fit each board to it."""
        if self.plan.releases > 1:
            self._noisy_V.append(self._continued(round_, totals["sum"]))
        else:
            self._noisy_V = [self.release(round_, totals)]
        release = self.votes()
        boards = range(len(release.boards))
        scores = [fit_board(release.board(board)).scores_K for board in boards]
        return self.optimizer.set(np.concatenate(scores))

    def _continued(self, release: int, sum_V: np.ndarray) -> np.ndarray:
        """Return a release of several, charged first.

        Raises:
            ValueError: the keys of the noise are not those of the releases before.
            NotRepeated: it was released before, from other votes.
        """
        keys = self._noise_keys(release)
        if self._noisy_V and _digest(keys[:-1]) != self._keys_digest:
            raise ValueError(
                "the kept noise is not that of the releases before: bring back an undamaged copy "
                "of the run's private folder"
            )
        before_V = self._noisy_V[-1] if self._noisy_V else np.zeros_like(sum_V)
        try:
            noisy_V = self.plan.prefix_sums.release(
                sum_V,
                before_V,
                release=release,
                label=self.covers,
                ledger=self.ledger,
                keys=keys,
                seeded=self.source.seeded,
            )
        except NotRepeated:
            raise ValueError(
                f"release {release} was made of other votes before: the same noise on both would "
                "tell their difference, so it is made of those, or never again"
            ) from None
        self._keys_digest = _digest(keys)
        return noisy_V

    def votes(self, release: int = 0) -> RankingRelease:
        """Return what was released last, or in one of several releases (from 1), as it is to be
        read.

        Raises:
            ValueError: nothing was.
        """
        if not self._noisy_V:
            raise ValueError("no votes have been released")
        layout, release = self.plan.layout, release or len(self._noisy_V)
        several = self.plan.releases > 1
        return RankingRelease(
            items=self._names.items,
            boards=self._names.boards,
            pairing=layout.pairing,
            noise=layout.noise(self.plan.prefix_sums.std(release) if several else self.plan.std),
            cap=layout.cap,
            clip_norm=layout.clip_norm,
            epsilon=self.plan.epsilon(),
            delta=self.plan.delta,
            **cast(dict[str, Any], layout.read(self._noisy_V[release - 1])),
        )

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
        """Return the release, for whoever draws a board from the result."""
        if not self._noisy_V:
            return {}
        released = self.ledger.released
        history = {"history": released(self.history())} if self.plan.releases > 1 else {}
        return {"votes": released(self.votes().to_json()), **history}

    def state(self) -> dict[str, np.ndarray]:
        """Also the sums that were released, one after the other, and of several releases a hash of
        the keys of their noise."""
        noisy = np.concatenate(self._noisy_V) if self._noisy_V else np.zeros(0)
        digest = {"noise_keys": np.frombuffer(self._keys_digest, dtype=np.uint8)}
        return {**super().state(), "votes": noisy, **(digest if self._keys_digest else {})}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self._noisy_V = [*state["votes"].reshape(-1, self.plan.layout.size)]
        self._keys_digest = state.get("noise_keys", np.zeros(0, dtype=np.uint8)).tobytes()


def _digest(keys: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(keys)).digest()


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """One noisy sum of votes, and a board; or several, that share their noise."""
    config, own = context.config, context.config.of(RankingSettings)
    described = json.loads(context.features)
    if described["kind"] != ITEMS:
        raise InputError(
            "--strategy ranking needs --items, the public list of what is voted on: an item that "
            "votes alone know would give its voters away"
        )
    names = ItemFeatures(tuple(described["items"]), tuple(described["boards"]))
    if config.base:
        raise InputError("--strategy ranking scores items, and no texts: leave out --base")
    layout = VoteLayout(
        items=len(names.items),
        boards=len(names.boards),
        cap=own.max_votes or DEFAULT_CAP,
        pairing=cast(Pairing, own.pairing),
        kind=cast(Kind, config.schema.kind),
        responses=config.schema.responses,
    )
    several = own.releases > 1
    if several and not context.participants.registry.simulated:
        raise InputError(
            "--releases is not for separate machines: their owners' agents answer for one release "
            "at a time; make a board of each period, whose costs add up"
        )
    if several and ledger.lost:
        raise InputError(
            f"{ledger.path} has lost lines, so what the board has released is not known, and it "
            "cannot go on: begin another with another --out"
        )
    plan = RankingPlan.for_epsilon(
        config.epsilon,
        **context.sizes,
        layout=layout,
        releases=own.releases,
        discrete=context.noise.on(layout.size),
    )
    chosen = "the first" if several else "chosen at random"
    account = (
        f"The {len(names.items)} items are a public list. Everybody took part once, with one "
        f"vector: at most {layout.cap} of their ballots, {chosen}, as wins less losses of "
        "each item, with scaled counts and squares for intervals"
        + (" and counts of each pair" if layout.pairing == "voters" else "")
        + f". Votes whose vector was longer than {layout.clip_norm:.4g} weighed less, all alike. "
        f"Gaussian noise of {plan.noise_multiplier:.4g} times that per coordinate was added to "
        "the sum. The board was computed from it."
        + (
            f" It is released {own.releases} times while votes come; what a voter adds in all of "
            f"them is bounded together, by {plan.clip.norm:.4g}, and the noise of the releases is "
            "correlated, so that together they cost what one does."
            if several
            else ""
        )
    )
    arguments = context.arguments(SolvedModel(context.dimension))
    built = BuiltStrategy.of(
        Ranking(plan, ledger, names, context.noise_keys, **arguments),
        plan,
        context,
        clip_norm=plan.clip.norm,
        group_size=layout.cap,
        bytes_per_user=4.0 * context.dimension + sum_bytes(context) * layout.size,
        account=account,
    )
    if not several:
        return built
    guarantee = promise(config, own.releases)
    return replace(built, guarantee=guarantee, releases=own.releases, release=own.release)


def check(settings: Settings) -> None:
    """InputError for settings that no board can be made by."""
    own = settings.of(RankingSettings)
    if settings.kind == "thumbs":
        raise InputError(
            "--strategy ranking compares items, and --kind thumbs rates single ones: leave it out, "
            "and pairs are made of each user's thumbs"
        )
    if settings.kind == "top-1" and own.pairing == "public":
        raise InputError(
            "--kind top-1: which pairs a vote for the best of several compares depends on the "
            "vote, so their counts must be released: add --pairing voters"
        )
    if settings.labels != "true":
        raise InputError("--strategy ranking takes true labels: --labels randomized are protected")
    if settings.clip_norm:
        raise InputError(
            "--clip-norm follows from --max-votes and the number of items: leave it out"
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
    solve=lambda query, adjacency: released_once(query, adjacency, (1,)),
)
