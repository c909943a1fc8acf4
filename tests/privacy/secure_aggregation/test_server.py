"""The sum is exact whoever drops out when, or there is none."""

import os
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmuration.privacy.secure_aggregation.party import Opened, Party, ProtocolError, threshold
from murmuration.privacy.secure_aggregation.server import Session, unmasked

ABOUT = b"a" * 32


def vectors(parties, length=7, seed=0, most=2**50):
    generator = np.random.default_rng(seed)
    return {p: generator.integers(-most, most, length) for p in range(1, parties + 1)}


def session(
    given_,
    shares,
    shows,
    least=MappingProxyType({}),
):
    """Everybody shows keys, then fewer share and fewer show vectors."""
    name = os.urandom(16)
    parties = {place: Party.begin(name) for place in given_}
    roster = [party.public for party in parties.values()]
    shared = {
        place: parties[place].share(place, roster, ABOUT, least.get(place, 3)) for place in shares
    }
    for place in shows:
        parties[place].receive({o: s.sealed[place] for o, s in shared.items() if o != place})
    masked = {place: parties[place].mask(given_[place]) for place in shows}
    commitments = {place: given.commitment for place, given in shared.items()}
    return Session(name, ABOUT, roster, commitments), masked, parties


def opened(parties, masked, stay):
    return {place: parties[place].unmask(sorted(masked)) for place in stay}


ALL = range(1, 8)  # seven, of whom five must stay


@pytest.mark.parametrize(
    ("shares", "shows", "stay"),
    [
        (ALL, ALL, ALL),
        ([1, 2, 3, 5, 6, 7], [1, 2, 3, 5, 6, 7], [1, 2, 3, 5, 6, 7]),
        (ALL, [1, 2, 3, 4, 6], [1, 2, 3, 4, 6]),
        (ALL, ALL, [2, 3, 5, 6, 7]),
        ([1, 2, 4, 5, 6, 7], [1, 2, 4, 5, 6], [1, 2, 4, 5, 6]),
        (ALL, [2, 3, 4, 5, 6, 7], [3, 4, 5, 6, 7]),
    ],
    ids=["nobody", "before sharing", "before showing", "before opening", "twice", "first ones"],
)
def test_the_sum_is_exact_whoever_drops_out(shares, shows, stay):
    given_ = vectors(7)
    about, masked, parties = session(given_, shares, shows)
    total_L = unmasked(about, masked, opened(parties, masked, stay))
    assert total_L.dtype == np.int64
    np.testing.assert_array_equal(total_L, sum(given_[place] for place in shows))


@given(st.data(), st.integers(3, 9))
@settings(max_examples=15)
def test_the_sum_of_any_who_are_enough(data, parties):
    enough = threshold(parties)

    def some(of):
        kept = data.draw(st.sets(st.sampled_from(of), min_size=enough))
        return sorted(kept)

    shares = some(list(range(1, parties + 1)))
    shows = some(shares)
    stay = some(shows)
    given_ = vectors(parties, length=3, seed=parties)
    about, masked, members = session(given_, shares, shows)
    total_L = unmasked(about, masked, opened(members, masked, stay))
    np.testing.assert_array_equal(total_L, sum(given_[place] for place in shows))


def test_the_ends_of_the_range_do_not_wrap_around():
    given_ = {1: np.array([2**62 - 1, -(2**62)]), 2: np.array([2**62 - 1, -(2**62) + 1])}
    given_[3] = np.array([1, 0])
    about, masked, parties = session(given_, given_, given_)
    total_L = unmasked(about, masked, opened(parties, masked, given_))
    assert total_L.tolist() == [2**63 - 1, -(2**63) + 1]


def test_fewer_than_the_threshold_unmask_nothing():
    about, masked, parties = session(vectors(7), ALL, ALL)
    few = opened(parties, masked, [1, 2, 3, 4])
    with pytest.raises(ProtocolError, match="4 of 7 parties stayed"):
        unmasked(about, masked, few)
    # And four cannot be made to look like five: what the four know fits any seed.
    for place in (1, 7):
        assert {len(shares.seeds[place]) for shares in few.values()} == {33}
    with pytest.raises(ProtocolError):
        unmasked(about, masked, {**few, 5: few[4]})


def test_what_is_left_without_the_last_share_is_not_the_sum():
    """A server that leaves own masks on has nothing: no number of the sum comes out."""
    given_ = vectors(3, length=200)
    _, masked, _ = session(given_, given_, given_)
    still = np.sum(list(masked.values()), axis=0, dtype=np.uint64).view(np.int64)
    assert not (still == sum(given_.values())).any()


def test_who_wants_more_parties_needs_as_many_shares():
    """Two of them want six of seven in the sum, where five can open everybody else's.

    Who is not in it stops nobody.
    """
    wanted = {2: 6, 7: 6}
    about, masked, parties = session(vectors(7), ALL, [1, 2, 3, 4, 5, 6], wanted)
    shown = opened(parties, masked, [1, 2, 3, 4, 5, 6])
    expected = sum(vectors(7)[place] for place in masked)
    np.testing.assert_array_equal(unmasked(about, masked, shown), expected)
    about, masked, parties = session(vectors(7), ALL, [1, 3, 4, 5, 6], wanted)
    left = unmasked(about, masked, opened(parties, masked, [1, 3, 4, 5, 6]))
    np.testing.assert_array_equal(left, sum(vectors(7)[place] for place in masked))
    about, masked, parties = session(vectors(7), ALL, [1, 2, 3, 4, 5, 6], wanted)
    shown = opened(parties, masked, [1, 2, 3, 4, 5])
    with pytest.raises(ProtocolError, match="party 2 that do not fit, or are too few"):
        unmasked(about, masked, shown)


def altered(shares, place):
    last = shares[place][-1] ^ 1
    return {**shares, place: shares[place][:-1] + bytes([last])}


@pytest.mark.parametrize("what", ["seed", "key", "missing seed", "missing key", "no number"])
def test_shares_that_do_not_fit_are_noticed(what):
    about, masked, parties = session(vectors(7), ALL, [1, 2, 3, 4, 5, 6])
    found = opened(parties, masked, [1, 2, 3, 4, 5])
    good = found[3]
    wrong = {
        "seed": lambda: Opened(altered(dict(good.seeds), 2), good.keys),
        "key": lambda: Opened(good.seeds, altered(dict(good.keys), 7)),
        "missing seed": lambda: Opened({}, good.keys),
        "missing key": lambda: Opened(good.seeds, {}),
        "no number": lambda: Opened({**good.seeds, 2: b"\xff" * 33}, good.keys),
    }[what]()
    with pytest.raises(ProtocolError, match=r"party [127]"):
        unmasked(about, masked, {**found, 3: wrong})
    np.testing.assert_array_equal(
        unmasked(about, masked, found), sum(vectors(7)[place] for place in masked)
    )


def test_shares_of_a_former_session_do_not_fit():
    about, masked, parties = session(vectors(4), range(1, 5), range(1, 5))
    _, before, former = session(vectors(4), range(1, 5), range(1, 5))
    with pytest.raises(ProtocolError, match=r"do not fit|not shares"):
        unmasked(about, masked, opened(former, before, range(1, 5)))
    assert opened(parties, masked, [1])
