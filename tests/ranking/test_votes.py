"""Tests of votes on items, and of voters' vectors: against loops, and against hostile voters."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_votes import made_up_votes

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.schema import Schema
from murmuration.ranking.items import ItemFeatures
from murmuration.ranking.layout import VoteLayout, ballot_weight
from murmuration.ranking.votes import item_votes

ITEMS = ("a", "b", "c", "d")
BARE = Schema(no_prompt=True)


def votes_of(ballots_of, boards=("",), kind="pairs", responses=0):
    """Votes of voters, each a list of (board, rows of a judgement)."""
    rows = [
        {"user_id": user, "prompt": board or "which?", **ballot}
        for user, ballots in ballots_of.items()
        for board, ballot in ballots
    ]
    judgements = Judgements.from_rows(rows, schema=Schema(kind=kind, responses=responses))
    return item_votes(judgements, ItemFeatures(ITEMS, boards))


def pair(better, worse, tie=False):
    return "", {"chosen": better, "rejected": worse, "tie": tie}


def everybody(votes, layout, clip_norm=None):
    """Vectors of all voters, (U, V), of all of their ballots."""
    counts_U = votes.counts_U.numpy()
    chunks = votes.vectors(
        layout, clip_norm or layout.clip_norm, np.arange(len(votes.board_J)), counts_U
    )
    return np.concatenate(list(chunks))


def layout_for(votes, cap, pairing="public"):
    return VoteLayout(
        items=votes.items,
        boards=votes.boards,
        cap=cap,
        pairing=pairing,
        kind=votes.kind,
        responses=votes.width + 1,
    )


def test_pairs_against_a_loop():
    ballots = {"u": [pair("a", "b"), pair("c", "a"), pair("b", "d", tie=True)], "w": []}
    votes = votes_of({name: mine for name, mine in ballots.items() if mine})
    layout = layout_for(votes, cap=3, pairing="voters")
    vector_V = everybody(votes, layout)[0]
    read = layout.read(vector_V)
    assert read["net_BK"][0].tolist() == [0.0, -1.0, 1.0, 0.0]
    assert read["variance_BK"][0] == pytest.approx([0.0, 1.0, 1.0, 0.0])
    numbers = [read[name][0] for name in ("votes_B", "squares_B", "ties_B", "voters_B")]
    assert numbers == pytest.approx([3.0, 9.0, 1.0, 1.0]) and read["clipped"] == 0.0
    counts_KK = read["pair_counts_BKK"][0]
    assert counts_KK[0, 1] == counts_KK[2, 0] == counts_KK[3, 1] == pytest.approx(1.0)
    assert counts_KK.sum() == pytest.approx(6.0)


def test_a_voter_in_two_categories_is_one_voter_of_all_of_their_votes():
    one, other = pair("a", "b")[1], pair("a", "c")[1]
    votes = votes_of({"u": [("x", one), ("x", one), ("y", other)]}, boards=("x", "y"))
    layout = VoteLayout(items=4, boards=2, cap=3)
    read = layout.read(everybody(votes, layout)[0])
    assert read["overall_variance_K"] == pytest.approx([9.0, 4.0, 1.0, 0.0])
    assert (read["overall_squares"], read["overall_voters"]) == pytest.approx((9.0, 1.0))
    assert read["squares_B"] == pytest.approx([4.0, 1.0])
    assert read["voters_B"] == pytest.approx([1.0, 1.0])


def test_a_ranking_is_all_of_its_pairs():
    row = {"responses": ["a", "b", "c", "d"], "ranking": [1, 2, 2, 4]}
    votes = votes_of({"u": [("", row)]}, kind="ranking", responses=4)
    weight = ballot_weight("ranking", 4)
    pairs = zip(votes.better_R, votes.worse_R, votes.tied_R, strict=True)
    assert sorted(pairs) == [
        (i, j, {i, j} == {1, 2}) for i, j in itertools.combinations(range(4), 2)
    ]
    assert votes.weight_R == pytest.approx(weight)
    net_K = layout_for(votes, 1).read(everybody(votes, layout_for(votes, 1))[0])["net_BK"][0]
    assert net_K == pytest.approx(weight * np.array([3.0, 0.0, 0.0, -3.0]))


def test_the_best_of_several_is_the_mean_over_those_that_tie():
    shown = ["a", "b", "c", "d"]
    both = votes_of({"u": [("", {"responses": shown, "best": [0, 1]})]}, kind="top-1", responses=4)
    single = [
        votes_of({"u": [("", {"responses": shown, "best": best})]}, kind="top-1", responses=4)
        for best in (0, 1)
    ]
    layout = layout_for(both, cap=50, pairing="voters")
    read = layout.read(everybody(both, layout)[0])
    apart = [layout.read(everybody(votes, layout)[0]) for votes in single]
    for name in ("net_BK", "votes_B", "pair_counts_BKK"):
        assert read[name] == pytest.approx((apart[0][name] + apart[1][name]) / 2)
    assert read["ties_B"][0] == pytest.approx(ballot_weight("top-1", 4))


@st.composite
def ballots(draw):
    """Votes of one voter, by kind, and on how many boards."""
    kind = draw(st.sampled_from(["pairs", "ranking", "top-1"]))
    boards = draw(st.sampled_from([("",), ("x", "y")]))
    result = []
    for _ in range(draw(st.integers(1, 12))):
        shown = draw(st.permutations(ITEMS))[: draw(st.integers(2, 4))]
        if kind == "pairs":
            row = {"chosen": shown[0], "rejected": shown[1], "tie": draw(st.booleans())}
        elif kind == "ranking":
            drawn = draw(st.lists(st.integers(), min_size=len(shown), max_size=len(shown)))
            ranks = [1 + sum(other < rank for other in drawn) for rank in drawn]
            row = {"responses": shown, "ranking": ranks}
        else:
            places = st.integers(0, len(shown) - 1)
            best = draw(st.lists(places, min_size=1, max_size=len(shown), unique=True))
            row = {"responses": shown, "best": best}
        result.append((draw(st.sampled_from(boards)), row))
    return kind, boards, result


@given(ballots(), st.sampled_from(["public", "voters"]), st.integers(1, 12))
def test_no_voter_exceeds_the_bound(drawn, pairing, cap):
    kind, boards, rows = drawn
    votes = votes_of({"u": rows}, boards, kind, 0 if kind == "pairs" else 4)
    layout = layout_for(votes, cap, pairing)
    for clip_norm in (layout.clip_norm, 0.5 * layout.clip_norm):
        taken_N = np.arange(min(cap, len(rows)))
        chunks = votes.vectors(layout, clip_norm, taken_N, np.array([len(taken_N)]))
        vector_V = np.concatenate(list(chunks))[0]
        length = np.linalg.norm(vector_V)
        assert length <= clip_norm * (1 + 1e-12)
        if vector_V[layout.places["clipped"]] > 0 and length > 0.99 * layout.weights["clipped"]:
            assert length == pytest.approx(clip_norm, rel=1e-9)  # not shorter than it need be
    if cap >= len(rows) and not vector_V[layout.places["clipped"]]:
        assert layout.read(vector_V)["votes_B"].sum() > 0


@pytest.mark.parametrize("pairing", ["public", "voters"])
@pytest.mark.parametrize("kind", ["pairs", "ranking", "top-1"])
def test_a_voter_who_always_votes_alike_attains_the_bound(kind, pairing):
    votes = made_up_votes(40, 1, kind, 2 if kind == "pairs" else 5, users=1, each=10)
    layout = layout_for(votes, cap=10, pairing=pairing)
    vector_V = everybody(votes, layout)[0]
    assert np.linalg.norm(vector_V) == pytest.approx(layout.clip_norm, rel=1e-12)
    assert vector_V[layout.places["clipped"]] == pytest.approx(layout.weights["clipped"])


def test_votes_that_weigh_less_keep_their_proportions():
    """A voter over the bound has the win rates that the votes have."""
    votes = votes_of({"u": [pair("a", "b")] * 30 + [pair("b", "a")] * 10})
    layout = layout_for(votes, 40)
    read = layout.read(everybody(votes, layout, clip_norm=0.4 * layout.clip_norm)[0])
    assert read["net_BK"][0, 0] < 20
    assert read["net_BK"][0, 0] / read["votes_B"][0] == pytest.approx(0.5)


def test_voters_do_not_meet_in_a_vector():
    mine = {f"u{n}": [pair(*ITEMS[n % 3 : n % 3 + 2])] * (n + 1) for n in range(7)}
    votes = votes_of(mine)
    layout = layout_for(votes, cap=4)
    together = everybody(votes, layout)
    for place in range(7):
        alone = everybody(votes.select(np.array([place])), layout)
        assert alone[0].tolist() == together[place].tolist()


def test_select_takes_voters_in_the_order_given():
    row = {"responses": ["c", "a", "b"], "ranking": [1, 2, 3]}
    mine = {"u": [("", row)], "w": [("", {**row, "ranking": [3, 1, 2]})] * 2}
    votes = votes_of(mine, kind="ranking", responses=3)
    turned = votes.select(np.array([1, 0]))
    assert turned.counts_U.tolist() == [2, 1]
    assert turned.better_R.tolist() == [0, 0, 1, 0, 0, 1, 2, 2, 0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "a", "rejected": "e"}, "'e' is not in --items, the public list"),
        ({"chosen": "A", "rejected": "b"}, "'A' is not in --items, and 'a' is: write it in one"),
        ({"chosen": "a", "rejected": "a", "tie": True}, "compares an item with itself"),
    ],
)
def test_what_is_on_no_list_is_refused_or_left_out(row, message):
    good = {"user_id": "v", "chosen": "b", "rejected": "c"}
    judgements = Judgements.from_rows([{"user_id": "u", **row}, good], schema=BARE)
    with pytest.raises(InputError, match=message):
        item_votes(judgements, ItemFeatures(ITEMS))
    left_out = LeftOut("isolate")
    votes = item_votes(judgements, ItemFeatures(ITEMS), left_out)
    assert left_out.rows == 1 and votes.counts_U.tolist() == [0, 1]
    assert not any(name in left_out.reasons[0] for name in ("'e'", "'A'"))
    assert everybody(votes, layout_for(votes, 1))[0].tolist() == [0.0] * layout_for(votes, 1).size


def test_a_category_on_no_list_is_refused():
    with pytest.raises(InputError, match="the category 'z' is not in --categories"):
        votes_of({"u": [("z", pair("a", "b")[1])]}, boards=("x", "y"))


def test_blanks_and_composed_letters_are_one_name():
    rows = [{"user_id": "u", "chosen": " cafe\u0301 ", "rejected": "tea"}]
    votes = item_votes(Judgements.from_rows(rows, schema=BARE), ItemFeatures(("café", "tea")))
    assert votes.better_R.tolist() == [0]


def test_accuracy_is_of_pairs_that_did_not_tie():
    votes = votes_of({"u": [pair("a", "b"), pair("b", "a")], "w": [pair("a", "c", tie=True)]})
    accuracy = votes.accuracy(np.array([1.0, 0.0, 0.0, 0.0]))
    assert (accuracy.pooled, accuracy.users, accuracy.judgements) == (0.5, 1, 2)
    assert votes.accuracy(np.zeros(4)).pooled == 0.5
    assert votes_of({"w": [pair("a", "c", tie=True)]}).accuracy(np.zeros(4)).users == 0


@pytest.mark.parametrize("schema", [Schema(kind="thumbs"), Schema(labels="randomized")])
def test_what_cannot_be_ranked(schema):
    row = {"user_id": "u", "prompt": "?", "chosen": "a", "rejected": "b", "flip_probability": 0.1}
    if schema.kind == "thumbs":
        row = {"user_id": "u", "prompt": "?", "completion": "a", "label": True}
    with pytest.raises(InputError, match=r"--kind thumbs|randomized already"):
        item_votes(Judgements.from_rows([row], schema=schema), ItemFeatures(ITEMS))
