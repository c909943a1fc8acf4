"""What voters add in each period, and that all of it together is bounded."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murmuration.preference.ranking.layout import VoteLayout
from murmuration.preference.ranking.votes import ItemVotes
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.strategies.solved.vote_stream import VoteStream

ITEMS = 3
#: A ballot: its period, the better and the worse item, and whether they tied.
ballots = st.tuples(
    st.integers(1, 4), st.sampled_from([(0, 1), (1, 0), (0, 2), (2, 1)]), st.booleans()
)
streams = st.lists(st.lists(ballots, max_size=12), min_size=1, max_size=3)


def votes_of(voters, until=99, boards=1):
    """The votes of voters in the periods up to one, ties on the last board and all others on the
    first; who has none by then is there."""
    ballots_U = [[ballot for ballot in mine if ballot[0] <= until] for mine in voters]
    flat = [ballot for mine in ballots_U for ballot in mine]
    counts = [len(mine) for mine in ballots_U]
    better, worse = np.array([pair for _, pair, _ in flat], dtype=np.int32).reshape(-1, 2).T
    return ItemVotes(
        torch.tensor(np.cumsum([0, *counts])),
        np.arange(len(flat) + 1),
        better,
        worse,
        np.ones(len(flat), dtype=np.float32),
        np.array([tied for _, _, tied in flat], dtype=bool),
        np.array([tied * (boards - 1) for _, _, tied in flat], dtype=np.int32),
        ITEMS,
        boards,
        period_J=np.array([period for period, _, _ in flat], dtype=np.int32),
    )


def added(stream, voters, release):
    """Return the sum of what these voters add in a period, as it is computed then: without later
    votes."""
    votes = votes_of(voters, until=release, boards=stream.layout.boards)
    clip = UserClip(stream.clip_norm)
    total_V = np.zeros(stream.layout.size)
    for chunk_CV in stream.added(votes, np.arange(len(voters)), release, clip.norm):
        summed_V = clip.clip_sum(torch.from_numpy(chunk_CV)).numpy()
        assert summed_V.tolist() == chunk_CV.sum(axis=0).tolist()  # clipping changes nothing more
        total_V += summed_V
    return total_V


def all_added(stream, voters):
    return np.stack([added(stream, voters, w + 1) for w in range(stream.releases)])


@pytest.mark.parametrize(("pairing", "boards"), [("public", 1), ("voters", 1), ("public", 2)])
@settings(max_examples=60, deadline=None)
@given(voter=st.lists(ballots, max_size=14), cap=st.integers(1, 8))
def test_whatever_a_voter_gives_and_when_it_is_within_the_bound(pairing, boards, voter, cap):
    """By brute force: the joint length of R x, which is what the noise is made for."""
    stream = VoteStream(VoteLayout(items=ITEMS, cap=cap, pairing=pairing, boards=boards), 4)
    added_WV = all_added(stream, [voter])
    assert np.linalg.norm(stream.root.matrix_WW @ added_WV) <= stream.clip_norm
    for whole_V in np.cumsum(added_WV, axis=0):  # of each release
        assert np.linalg.norm(whole_V) <= stream.layout.clip_norm * (1 + 1e-12)


@pytest.mark.parametrize("releases", [1, 4])
def test_the_bound_is_attained(releases):
    """Who gives all at once, and more than counts, is as long as may be, and no shorter."""
    stream = VoteStream(VoteLayout(items=ITEMS, cap=4), releases)
    added_WV = all_added(stream, [[(1, (0, 1), False)] * 100])
    length = np.linalg.norm(stream.root.matrix_WW @ added_WV)
    assert 0.999 * stream.clip_norm < length <= stream.clip_norm
    assert not added_WV[1:].any()


def test_who_turns_round_is_within_the_bound_too():
    voter = [(w, (0, 1) if w % 2 else (1, 0), False) for w in (1, 2, 3, 4) for _ in range(10)]
    stream = VoteStream(VoteLayout(items=ITEMS, cap=40), 4)
    added_WV = all_added(stream, [voter])
    assert np.linalg.norm(stream.root.matrix_WW @ added_WV) <= stream.clip_norm


@settings(max_examples=40, deadline=None)
@given(voters=streams)
def test_a_sum_is_that_of_its_voters_wherever_they_are(voters):
    stream = VoteStream(VoteLayout(items=ITEMS, cap=5), 4)
    apart = sum(all_added(stream, [voter]) for voter in voters)
    assert apart.tolist() == all_added(stream, voters).tolist()


@settings(max_examples=40, deadline=None)
@given(voters=streams)
def test_what_was_added_does_not_change_when_more_comes(voters):
    """Sums of a later period are computed beside all votes that came: what they say of earlier
    periods is what was released then."""
    stream = VoteStream(VoteLayout(items=ITEMS, cap=5), 4)
    votes = votes_of(voters)
    for release in range(1, 5):
        later = [
            chunk.sum(axis=0)
            for chunk in stream.added(votes, np.arange(len(voters)), release, stream.clip_norm)
        ]
        assert np.array_equal(
            sum(later, np.zeros(stream.layout.size)), added(stream, voters, release)
        )


@pytest.mark.parametrize("boards", [1, 2])
def test_votes_that_no_bound_touches_are_those_of_one_release(boards):
    """All periods together are the vector of all votes: squares and whether somebody voted, too."""
    layout = VoteLayout(items=ITEMS, cap=10, pairing="voters", boards=boards)
    voter = [(1, (0, 1), False), (2, (0, 2), True), (4, (0, 1), False)]
    votes = votes_of([voter], boards=boards)
    (whole_CV,) = votes.vectors(layout, layout.clip_norm, np.arange(3), np.array([3]))
    added_WV = all_added(VoteStream(layout, 4), [voter])
    np.testing.assert_allclose(added_WV.sum(axis=0), whole_CV[0], atol=1e-7)
    assert not added_WV[2].any()


def test_the_first_votes_count_and_no_later_ones():
    """Whoever has given as many as count adds nothing more, in this period or in any other."""
    stream = VoteStream(VoteLayout(items=ITEMS, cap=2), 4)
    first = [(1, (0, 1), False), (2, (0, 2), False)]
    more = [*first, (2, (2, 1), False), (3, (1, 0), False), (4, (1, 0), False)]
    assert all_added(stream, [more]).tolist() == all_added(stream, [first]).tolist()


@pytest.mark.parametrize(("release", "period_J"), [(0, True), (5, True), (1, None)])
def test_what_is_refused(release, period_J):
    stream, votes = VoteStream(VoteLayout(items=ITEMS, cap=2), 4), votes_of([[(1, (0, 1), False)]])
    if period_J is None:
        object.__setattr__(votes, "period_J", None)
    with pytest.raises(ValueError, match=r"release \d of 4|in which period"):
        [*stream.added(votes, np.arange(1), release, stream.clip_norm)]
