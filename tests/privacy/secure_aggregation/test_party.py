"""A party's side: what it shows, what it refuses, and that it never shows it twice."""

import itertools

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.secure_aggregation import crypto, shamir
from murmuration.privacy.secure_aggregation.party import (
    SEALED_BYTES,
    Party,
    ProtocolError,
    PublicKeys,
    threshold,
)

SESSION, ABOUT = b"s" * 16, b"a" * 32


def begun(parties, session=SESSION):
    found = {place: Party.begin(session) for place in range(1, parties + 1)}
    return found, [party.public for party in found.values()]


def all_shared(parties, session=SESSION):
    found, roster = begun(parties, session)
    return found, {place: party.share(place, roster, ABOUT) for place, party in found.items()}


def sealed_for(place, shared):
    return {other: given.sealed[place] for other, given in shared.items() if other != place}


def show(party, values, sealed):
    party.receive(sealed)
    return party.mask(values)


def masked(parties, values):
    found, shared = all_shared(parties)
    return found, [show(party, values, sealed_for(place, shared)) for place, party in found.items()]


@pytest.mark.parametrize(("parties", "enough"), [(3, 3), (4, 3), (6, 5), (9, 7), (100, 67)])
def test_more_than_two_thirds_must_stay(parties, enough):
    assert threshold(parties) == enough
    assert 3 * enough > 2 * parties


def test_a_single_masked_vector_is_uniform_whatever_is_under_it():
    for values in (np.zeros(40_000), np.full(40_000, 2.0**40), np.arange(40_000)):
        _, (first_L, second_L, _) = masked(3, values.astype(np.int64))
        for found_L in (first_L, first_L - second_L, first_L + second_L):
            for shift in (0, 28, 56):
                counts = np.bincount(
                    ((found_L >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256
                )
                assert 1e-6 < stats.chisquare(counts).pvalue < 1 - 1e-6
            uniform = found_L.astype(np.float64) / 2.0**64
            assert stats.kstest(uniform, "uniform").pvalue > 1e-6
            # Neighbouring numbers have nothing to do with each other, nor with what is hidden.
            for lag in (1, 2, 8):
                assert abs(np.corrcoef(uniform[lag:], uniform[:-lag])[0, 1]) < 0.03
            if values.std():
                assert abs(np.corrcoef(uniform, values)[0, 1]) < 0.03


def test_every_proper_part_of_the_masked_vectors_is_uniform():
    """Only all of them together, less the own masks, are a sum: even all of them are masked."""
    _, found = masked(4, np.zeros(20_000, dtype=np.int64))
    for size in (1, 2, 3, 4):
        for part in itertools.combinations(found, size):
            total_L = np.sum(part, axis=0, dtype=np.uint64)
            counts = np.bincount((total_L >> np.uint64(56)).astype(int), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6


def test_masks_are_never_used_twice():
    """The same vector in another session, or from a party that began again, looks new."""
    values = np.arange(100)
    _, first = masked(3, values)
    _, second = masked(3, values)
    for one_L, other_L in itertools.combinations([*first, *second], 2):
        assert not (one_L == other_L).any()
        assert len(np.unique(one_L - other_L)) == 100


def test_a_party_does_each_step_once_and_in_order():
    found, roster = begun(3)
    party, values = found[1], np.zeros(5, dtype=np.int64)
    with pytest.raises(ProtocolError, match="step 3"):
        show(party, values, {})
    with pytest.raises(ProtocolError, match="step 4"):
        party.unmask([1, 2, 3])
    shared = {place: other.share(place, roster, ABOUT) for place, other in found.items()}
    with pytest.raises(ProtocolError, match="step 2"):
        party.share(1, roster, ABOUT)
    show(party, values, sealed_for(1, shared))
    with pytest.raises(ProtocolError, match="step 3"):
        show(party, values + 1, sealed_for(1, shared))  # the difference would be shown
    party.unmask([1, 2, 3])
    for again in ([1, 2, 3], [1, 2]):
        with pytest.raises(ProtocolError, match="step 4"):
            party.unmask(again)


def test_the_order_also_holds_for_a_party_that_was_put_away():
    found, shared = all_shared(3)
    party = Party.from_bytes(found[1].to_bytes())
    show(party, np.zeros(5, dtype=np.int64), sealed_for(1, shared))
    again = Party.from_bytes(party.to_bytes())
    assert again == party
    with pytest.raises(ProtocolError, match="step 3"):
        show(again, np.ones(5, dtype=np.int64), sealed_for(1, shared))


def test_shares_of_seed_and_key_of_one_party_are_never_both_shown():
    found, shared = all_shared(7)
    alive = [1, 2, 3, 4, 5, 6]
    for place in alive:
        show(found[place], np.zeros(3, dtype=np.int64), sealed_for(place, shared))
    opened = found[1].unmask([1, 2, 3, 4, 5])
    assert set(opened.seeds) == {1, 2, 3, 4, 5}
    assert set(opened.keys) == {6, 7}
    assert found[1].held == {}  # nothing is left to be shown


def test_altered_replayed_and_misdirected_shares_are_refused_and_nothing_is_shown():
    found, shared = all_shared(4)
    _, former = all_shared(4, b"t" * 16)
    right = sealed_for(1, shared)
    altered = bytes([right[2][0] ^ 1]) + right[2][1:]
    for wrong in (altered, former[2].sealed[1], shared[2].sealed[3], shared[3].sealed[1], b""):
        assert wrong != right[2]
        with pytest.raises(ProtocolError, match="altered"):
            show(found[1], np.zeros(3, dtype=np.int64), {**right, 2: wrong})
        assert found[1].done == 2
    show(found[1], np.zeros(3, dtype=np.int64), right)


def test_too_few_parties_are_refused_at_every_step():
    found, roster = begun(2)
    with pytest.raises(ProtocolError, match="at least 3"):
        found[1].share(1, roster, ABOUT)
    found, roster = begun(4)
    with pytest.raises(ProtocolError, match="at least 5"):
        found[1].share(1, roster, ABOUT, least=5)
    with pytest.raises(ProtocolError, match="at least 3"):
        found[1].share(1, roster[:2], ABOUT, least=0)
    found, shared = all_shared(7)  # the threshold is 5
    with pytest.raises(ProtocolError, match="4 of 7 parties are left"):
        few = {o: s for o, s in sealed_for(1, shared).items() if o < 5}
        show(found[1], np.zeros(3, dtype=np.int64), few)
    show(found[1], np.zeros(3, dtype=np.int64), sealed_for(1, shared))
    with pytest.raises(ProtocolError, match="4 of 7 vectors arrived"):
        found[1].unmask([1, 2, 3, 4])
    assert found[1].held


@pytest.mark.parametrize("arrived", [[2, 3, 4], [1, 2, 3, 9], [1, 1, 2, 3], [0, 1, 2, 3]])
def test_lists_that_cannot_be_are_refused(arrived):
    found, shared = all_shared(4)
    show(found[1], np.zeros(3, dtype=np.int64), sealed_for(1, shared))
    with pytest.raises(ProtocolError, match="not a list of parties"):
        found[1].unmask(arrived)


@pytest.mark.parametrize("other", ["about", "roster"])
def test_parties_that_were_told_different_things_show_nothing(other):
    """Each holds by what it was told, and the shares of one do not open at the other."""
    found, roster = begun(5)
    about = {"about": (b"b" * 32, roster), "roster": (ABOUT, roster[:4])}[other]
    shared = {place: found[place].share(place, roster, ABOUT) for place in (1, 2, 3, 5)}
    shared[4] = found[4].share(4, about[1], about[0])
    sealed = {place: given.sealed.get(1, b"") for place, given in shared.items() if place != 1}
    with pytest.raises(ProtocolError, match="altered"):
        show(found[1], np.zeros(3, dtype=np.int64), sealed)
    to_4 = {place: shared[place].sealed[4] for place in (1, 2, 3)}
    with pytest.raises(ProtocolError, match="altered"):
        show(found[4], np.zeros(3, dtype=np.int64), to_4)
    assert (found[1].done, found[4].done) == (2, 2)


def test_a_party_that_wants_more_company_than_the_threshold_has_it_to_the_end():
    found, roster = begun(7)  # the threshold is 5
    shared = {
        place: party.share(place, roster, ABOUT, least=6 if place == 1 else 0)
        for place, party in found.items()
    }
    few = {o: s for o, s in sealed_for(1, shared).items() if o < 6}
    with pytest.raises(ProtocolError, match="5 of 7 parties are left; at least 6"):
        show(found[1], np.zeros(3, dtype=np.int64), few)
    show(found[1], np.zeros(3, dtype=np.int64), sealed_for(1, shared))
    again = Party.from_bytes(found[1].to_bytes())
    with pytest.raises(ProtocolError, match="5 of 7 vectors arrived; at least 6"):
        again.unmask([1, 2, 3, 4, 5])
    again.unmask([1, 2, 3, 4, 5, 6])


def test_rosters_that_cannot_be_are_refused():
    found, roster = begun(4)
    for place, wrong in (
        (2, roster),  # another's place
        (5, roster),
        (0, roster),
        (1, [roster[0], roster[1], roster[1], roster[3]]),  # one party twice
        (1, [roster[0], roster[1], roster[2], PublicKeys(roster[1].sealing, b"x" * 32)]),
        (1, [PublicKeys(roster[0].masking, roster[0].sealing), *roster[1:]]),  # not its keys
    ):
        with pytest.raises(ProtocolError):
            found[1].share(place, wrong, ABOUT)
        assert found[1].done == 1
    with pytest.raises(ProtocolError, match="public key"):
        found[1].share(1, [roster[0], roster[1], PublicKeys(bytes(32), b"y" * 32)], ABOUT)
    with pytest.raises(ProtocolError, match="named by 32 bytes"):
        found[1].share(1, roster, b"short")
    with pytest.raises(ProtocolError, match="32 bytes"):
        PublicKeys(b"", b"")


def test_shares_of_strangers_are_refused():
    found, shared = all_shared(4)
    right = sealed_for(1, shared)
    for place in (1, 0, 5):
        with pytest.raises(ProtocolError, match="no party"):
            show(found[1], np.zeros(3, dtype=np.int64), {**right, place: right[2]})


def test_sealed_shares_have_one_length_and_are_what_they_should_be():
    found, shared = all_shared(4)
    assert {len(s) for given in shared.values() for s in given.sealed.values()} == {SEALED_BYTES}
    for place, party in found.items():
        show(party, np.zeros(3, dtype=np.int64), sealed_for(place, shared))
    cut = shamir.SHARE_BYTES
    for owner in found:
        seeds = {place: party.held[owner][:cut] for place, party in found.items()}
        keys = {place: party.held[owner][cut:] for place, party in found.items()}
        assert shamir.join(seeds, 3) == found[owner].seed
        assert shamir.join(keys, 3) == found[owner].masking
        assert shared[owner].commitment == crypto.commitment(found[owner].seed)


def test_a_printed_party_shows_no_secret():
    party = all_shared(3)[0][1]
    text = repr(party)
    for secret in (party.seed, party.sealing, party.masking, *party.held.values()):
        assert repr(secret) not in text
        assert secret.hex() not in text


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"session": 1}', bytes(range(200, 250))])
def test_a_damaged_state_is_refused(data):
    with pytest.raises(ProtocolError, match="damaged"):
        Party.from_bytes(data)


def test_a_session_has_a_name_of_its_own():
    with pytest.raises(ProtocolError, match="16 bytes"):
        Party.begin(b"short")
