"""Votes for a leaderboard: grouped by voter, as pairs of items; and voters' vectors.

A ballot is a judgement whose responses are items. It becomes weighted pairs: a ranking all of its
pairs, the best of several the pairs of the best with each other one. Where t share the best place,
the ballot counts as the mean of those in which one of them is the best, so pairs among them tie. A
tie is half a win for each, so it moves no net score; a vote that both are bad is a tie.

Legend: J ballots, R pairs of ballots, U voters, S asked voters, N their ballots that count, Q pairs
of these, C voters of a chunk, B boards, K items, V coordinates, W items of a ballot.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, float32_of
from murmuration.preference.choices import Kind
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.public_names import looks_like
from murmuration.preference.kinds.array_examples import ArrayExamples
from murmuration.preference.kinds.linear import LinearModel
from murmuration.ranking.items import ItemFeatures
from murmuration.ranking.layout import VoteLayout, ballot_weight

_CHUNK_NUMBERS = 2**21  # of voters' vectors that are there at a time
#: Numbers of a vector that scale with the square of what votes weigh, and those that do not scale.
_SQUARES = frozenset({"variance", "squares", "overall_variance", "overall_squares"})
_THERE = frozenset({"voters", "overall_voters"})


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemVotes(ArrayExamples):
    """Ballots on items, as `preference.kinds.model.Examples` has them.

    Attributes:
        start_U: int64, U + 1 offsets of ballots.
        start_J: int64, J + 1 offsets of pairs.
        better_R, worse_R: int32, places of items; of a tie in any order.
        weight_R: float32, of each pair.
        tied_R: whether it tied.
        board_J: int32, the board that a ballot is on.
        items, boards: K and B.
        kind: of ballots.
        width: W − 1, as declared.
        flip_J: None; labels that went through randomized response are refused.
    """

    start_U: torch.Tensor
    start_J: np.ndarray
    better_R: np.ndarray
    worse_R: np.ndarray
    weight_R: np.ndarray
    tied_R: np.ndarray
    board_J: np.ndarray
    items: int
    boards: int
    kind: Kind = "pairs"
    width: int = 1
    flip_J: None = None

    single_rows = None

    @property
    def dimension(self) -> int:
        """B·K."""
        return self.boards * self.items

    def select(self, users_S: np.ndarray) -> "ItemVotes":
        """The votes of some voters, in the given order."""
        start_U, users_S = self.start_U.numpy(), np.asarray(users_S, dtype=np.int64)
        ballots_N, counts_S = _ranges(start_U, users_S)
        pairs_Q, counts_N = _ranges(self.start_J, ballots_N)
        return replace(
            self,
            start_U=torch.from_numpy(_offsets(counts_S)),
            start_J=_offsets(counts_N),
            better_R=self.better_R[pairs_Q],
            worse_R=self.worse_R[pairs_Q],
            weight_R=self.weight_R[pairs_Q],
            tied_R=self.tied_R[pairs_Q],
            board_J=self.board_J[ballots_N],
        )

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """The share of pairs without a tie whose better item scores higher; equal scores count
        half.
        """
        scores_BK = float32_of(theta_D).reshape(self.boards, self.items)
        ballot_R = np.repeat(np.arange(len(self.board_J)), np.diff(self.start_J))
        board_R = self.board_J[ballot_R]
        above_R = scores_BK[board_R, self.better_R] - scores_BK[board_R, self.worse_R]
        right_R = 0.5 * (1.0 + np.sign(above_R))
        user_J = np.repeat(np.arange(len(self.counts_U)), self.counts_U.numpy())
        user_R, users = user_J[ballot_R[~self.tied_R]], len(self.counts_U)
        right_U = np.bincount(user_R, right_R[~self.tied_R], minlength=users)
        decided_U = np.bincount(user_R, minlength=users)
        return Accuracy.of_users(right_U, decided_U, 0.5)

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy; there are no other metrics."""
        return self.accuracy(theta_D), {}

    def vectors(
        self, layout: VoteLayout, clip_norm: float, taken_N: np.ndarray, taken_S: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield sampled voters' vectors, chunk by chunk, (C, V) float64, none longer than
        ``clip_norm`` up to rounding.

        A voter's vector is a function of that voter's ballots and of public constants.

        Args:
            layout: of these items and boards.
            clip_norm: the bound; by ``layout.clip_norm``.
            taken_N: ballots that count, voter after voter.
            taken_S: the number of each sampled voter's.
        """
        each = max(1, _CHUNK_NUMBERS // layout.size)
        before_S = _offsets(taken_S)
        for low in range(0, len(taken_S), each):
            high = min(low + each, len(taken_S))
            ballots = taken_N[before_S[low] : before_S[high]]
            user_N = np.repeat(np.arange(high - low), taken_S[low:high])
            yield self._vectors(layout, clip_norm, ballots, user_N, high - low)

    def _counts(
        self, layout: VoteLayout, ballots_N: np.ndarray, user_N: np.ndarray, voters: int
    ) -> dict[str, np.ndarray]:
        """Each voter's sums over ballots: net scores (C, B·K), votes and ties (C, B) and, if
        released, counts of pairs (C, B·P).
        """
        boards, items = self.boards, self.items
        pairs_Q, counts_N = _ranges(self.start_J, ballots_N)
        slot_Q = np.repeat(user_N * boards + self.board_J[ballots_N], counts_N)
        weight_Q, tied_Q = self.weight_R[pairs_Q].astype(np.float64), self.tied_R[pairs_Q]
        better_Q, worse_Q = self.better_R[pairs_Q], self.worse_R[pairs_Q]

        def added(place_Q: np.ndarray, size: int, counted_Q: np.ndarray) -> np.ndarray:
            sums = np.bincount(slot_Q * size + place_Q, counted_Q, voters * boards * size)
            return sums.reshape(voters, boards * size)

        decided_Q, nowhere_Q = weight_Q * ~tied_Q, np.zeros_like(slot_Q)
        net = added(better_Q, items, decided_Q) - added(worse_Q, items, decided_Q)
        votes = added(nowhere_Q, 1, weight_Q)
        result = {"net": net, "votes": votes, "ties": added(nowhere_Q, 1, weight_Q * tied_Q)}
        if layout.pairing == "voters":
            place_Q = layout.pair_place(better_Q, worse_Q)
            result["pair_counts"] = added(place_Q, layout.pairs, weight_Q)
        return result

    def _vectors(
        self,
        layout: VoteLayout,
        clip_norm: float,
        ballots_N: np.ndarray,
        user_N: np.ndarray,
        voters: int,
    ) -> np.ndarray:
        """The vectors of ``voters`` voters, from their ballots, (C, V)."""
        weighted = _weighted_numbers(layout, self._counts(layout, ballots_N, user_N, voters))
        factor_C = _factors(weighted, layout.weights["clipped"], clip_norm)
        result_CV = np.empty((voters, layout.size))
        for name, part in weighted.items():
            power = 2 if name in _SQUARES else 0 if name in _THERE else 1
            result_CV[:, layout.places[name]] = part * factor_C[:, None] ** power
        clipped_C = layout.weights["clipped"] * (factor_C < 1.0)
        result_CV[:, layout.places["clipped"]] = clipped_C[:, None]
        return result_CV


def _weighted_numbers(
    layout: VoteLayout, counts: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Voters' numbers as they are in their vectors, by name, without `clipped`.

    Args:
        layout: of the vectors.
        counts: sums over ballots, (C, …) each, as of `ItemVotes._counts`.
    """
    net, votes = counts["net"], counts["votes"]
    numbers = {**counts, "variance": net**2, "squares": votes**2, "voters": votes > 0.0}
    if layout.boards > 1:
        all_votes = votes.sum(axis=1, keepdims=True)
        all_net = net.reshape(len(net), layout.boards, layout.items).sum(axis=1)
        numbers |= {"overall_variance": all_net**2, "overall_squares": all_votes**2}
        numbers["overall_voters"] = all_votes > 0.0
    return {name: layout.weights[name] * part for name, part in numbers.items()}


def _factors(weighted: dict[str, np.ndarray], clipped: float, clip_norm: float) -> np.ndarray:
    """The weight of each voter's votes, (C,): 1, or the one that gives the vector the largest
    length allowed.

    Counts scale with the factor f and squares with f², so f² solves a quadratic equation. Whether
    the votes weigh less is one more number, which takes its share of the length, as does whether
    there are any.
    """
    length = {name: (part**2).sum(axis=1) for name, part in weighted.items()}
    square_C = sum(part_C for name, part_C in length.items() if name in _SQUARES)
    there_C = sum(part_C for name, part_C in length.items() if name in _THERE)
    linear_C = sum(part_C for name, part_C in length.items() if name not in _SQUARES | _THERE)
    whole_C = linear_C + square_C + there_C > clip_norm**2
    room_C = np.maximum(clip_norm**2 - clipped**2 - there_C, 0.0)
    # The root of square·f⁴ + linear·f² = room, in the form that does not cancel out.
    below_C = linear_C + np.sqrt(linear_C**2 + 4.0 * square_C * room_C)
    squared_C = np.divide(2.0 * room_C, below_C, out=np.ones_like(below_C), where=below_C > 0.0)
    return np.where(whole_C, np.sqrt(np.minimum(squared_C, 1.0 - 2.0**-52)), 1.0)


def item_votes(
    judgements: Judgements, features: ItemFeatures, left_out: LeftOut | None = None
) -> ItemVotes:
    """The judgements as votes on items.

    Ballots on items that are not on the lists go to ``left_out`` if it is given; their voters stay.

    Raises:
        InputError: ballots that cannot be counted, and there is nothing to take them; single
            ratings, or labels that went through randomized response.
    """
    if judgements.kind == "thumbs":
        raise InputError("single ratings compare no items: leave out --kind thumbs")
    if judgements.randomized:
        raise InputError("these labels have been randomized already, which is protection enough")
    item_JW = _item_places(judgements, features)
    board_J = np.zeros(len(judgements), dtype=np.int32)
    if features.uses_prompt:
        places = map(features.board_places.__getitem__, judgements.prompts)
        board_J = np.fromiter(places, dtype=np.int32, count=len(judgements))
    ordered_JW = np.sort(item_JW, axis=1)
    twice_J = ((ordered_JW[:, 1:] == ordered_JW[:, :-1]) & (ordered_JW[:, 1:] >= 0)).any(axis=1)
    unknown_J = (item_JW == _UNKNOWN).any(axis=1)
    kept_J = ~(unknown_J | twice_J | (board_J < 0))
    if not kept_J.all():
        row = int(np.flatnonzero(~kept_J)[0])
        if left_out is None:
            why = _why(judgements, features, row, bool(twice_J[row]))
            raise InputError(f"{judgements.place(row)}: {why}")
        left_out.add_all(kept_J, "a vote on what is not on the list of items or categories")
        judgements = judgements.keep(kept_J)
        item_JW, board_J = item_JW[kept_J], board_J[kept_J]
    start_J, better_R, worse_R, weight_R, tied_R = _pairs(judgements, item_JW)
    return ItemVotes(
        start_U=torch.from_numpy(np.asarray(judgements.start_U, dtype=np.int64)),
        start_J=start_J,
        better_R=better_R,
        worse_R=worse_R,
        weight_R=weight_R,
        tied_R=tied_R,
        board_J=board_J,
        items=len(features.items),
        boards=len(features.boards),
        kind=judgements.kind,
        width=judgements.most_responses - 1,
    )


_NOTHING, _UNKNOWN = -2, -1


def _item_places(judgements: Judgements, features: ItemFeatures) -> np.ndarray:
    """The indices of ballots' items, (J, W) int32, in their order of preference."""
    shown_J = np.fromiter(map(len, judgements.responses), dtype=np.int64, count=len(judgements))
    places = map(features.item_places.__getitem__, chain.from_iterable(judgements.responses))
    item_JW = np.full((len(judgements), judgements.most_responses), _NOTHING, dtype=np.int32)
    there_JW = np.arange(judgements.most_responses) < shown_J[:, None]
    item_JW[there_JW] = np.fromiter(places, dtype=np.int32, count=int(shown_J.sum()))
    return item_JW


def _why(judgements: Judgements, features: ItemFeatures, row: int, twice: bool) -> str:
    """The reason why a ballot is not counted, and what to do."""
    if twice:
        return "it compares an item with itself"
    prompt, ways = judgements.prompts[row], "or leave such votes out with --on-bad-rows skip"
    if features.uses_prompt and features.board_places[prompt] < 0:
        return f"the category {prompt!r} is not in --categories: add it to the public list, {ways}"
    name = next(name for name in judgements.responses[row] if features.item_places[name] < 0)
    alike = [item for item in features.items if looks_like(item) == looks_like(name)]
    if alike:
        return (
            f"the item {name!r} is not in --items, and {alike[0]!r} is: write it in one way, {ways}"
        )
    return (
        f"the item {name!r} is not in --items, the public list, and one that votes alone know "
        f"would give its voters away: add it if it is public, {ways}"
    )


def _pairs(
    judgements: Judgements, item_JW: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets of each ballot's pairs, (J + 1,), and their better and worse items, weights and ties,
    each (R,).
    """
    ballots = np.arange(len(item_JW))
    if judgements.kind == "pairs":
        return (
            np.arange(len(item_JW) + 1),
            item_JW[:, 0].copy(),
            item_JW[:, 1].copy(),
            np.ones(len(item_JW), dtype=np.float32),
            judgements.y_R == 0.5,
        )
    shown_J = (item_JW >= 0).sum(axis=1)
    each = [0.0, 0.0, *(ballot_weight(judgements.kind, k) for k in range(2, item_JW.shape[1] + 1))]
    weight_J = np.array(each, dtype=np.float32)[shown_J]
    place_JW = _shared_places(judgements, item_JW.shape[1])
    best_J = np.round(1.0 / judgements.y_R).astype(np.int64)
    parts = []
    for first in range(item_JW.shape[1] - 1):
        for second in range(first + 1, item_JW.shape[1]):
            there_J = second < shown_J
            weights_J, tied_J = weight_J, place_JW[:, first] == place_JW[:, second]
            if judgements.kind == "top-1":
                there_J, tied_J = there_J & (first < best_J), second < best_J
                weights_J = weight_J * np.where(tied_J, 2.0, 1.0).astype(np.float32) / best_J
            columns = (item_JW[:, first], item_JW[:, second], weights_J, tied_J)
            parts.append([ballots[there_J], *(column[there_J] for column in columns)])
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    order_R = np.argsort(joined[0], kind="stable")
    counts_J = np.bincount(joined[0], minlength=len(item_JW))
    better_R, worse_R, weight_R, tied_R = (column[order_R] for column in joined[1:])
    return _offsets(counts_J), better_R, worse_R, weight_R.astype(np.float32), tied_R


def _shared_places(judgements: Judgements, width: int) -> np.ndarray:
    """The rank of each item in a ranking, (J, W): equal for ties."""
    place_JW = np.tile(np.arange(width), (len(judgements), 1))
    for row, groups in enumerate(judgements.groups_R or ()):
        if groups:
            place_JW[row, : sum(groups)] = np.repeat(np.arange(len(groups)), groups)
    return place_JW


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _ranges(start: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All indices of the chosen ranges, range by range, and the length of each."""
    counts = start[chosen + 1] - start[chosen]
    offsets = _offsets(counts)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return within + np.repeat(start[chosen], counts), counts


class ItemsModel(LinearModel):
    """A score of each item, on each board; see `preference.kinds.model.Model`."""

    features: ItemFeatures

    def examples(self, data: Data, left_out: LeftOut | None = None) -> ItemVotes:  # type: ignore[override]
        """Return votes on items."""
        judgements = data.as_judgements("a board is made of votes, not of users' texts")
        return item_votes(judgements, self.features, left_out)
