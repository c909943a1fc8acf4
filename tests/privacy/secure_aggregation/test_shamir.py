"""Secret sharing: any threshold of shares, never fewer, and nothing but the secret."""

import itertools
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.secure_aggregation import shamir


def test_the_field_is_one_and_holds_every_secret():
    for base in (2, 3, 5, 7, 11, 13):  # Fermat's test
        assert pow(base, shamir.PRIME - 1, shamir.PRIME) == 1
    assert shamir.PRIME > 2**256


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 4))
def test_every_threshold_of_shares_joins_to_the_secret(secret, threshold, more):
    parties = threshold + more
    shares = shamir.split(secret, threshold, parties)
    for chosen in itertools.combinations(range(1, parties + 1), threshold):
        assert shamir.join({place: shares[place - 1] for place in chosen}, threshold) == secret


def test_the_largest_and_the_smallest_secret():
    for secret in (bytes(32), b"\xff" * 32):
        shares = shamir.split(secret, 3, 4)
        assert shamir.join(dict(enumerate(shares, 1)), 3) == secret


def test_one_share_less_fits_every_secret():
    """For any other secret there is a last share that completes the shares that are known."""
    shares = shamir.split(b"\x01" * 32, 3, 5)
    known = {1: shares[0], 4: shares[3]}
    with pytest.raises(ValueError, match="2 shares of the 3"):
        shamir.join(known, 3)
    weights = shamir.weights([1, 4, 5])
    for other in (b"\x02" * 32, bytes(32)):
        known_part = sum(
            int.from_bytes(known[p], "big") * w for p, w in zip((1, 4), weights, strict=False)
        )
        last = (int.from_bytes(other, "big") - known_part) * pow(weights[2], -1, shamir.PRIME)
        share = (last % shamir.PRIME).to_bytes(shamir.SHARE_BYTES, "big")
        assert shamir.join({**known, 5: share}, 3) == other


def test_shares_are_fresh_and_spread_over_the_field():
    first = [shamir.split(bytes(32), 2, 2)[0] for _ in range(400)]
    assert len(set(first)) == 400
    high = sum(int.from_bytes(share, "big") > shamir.PRIME // 2 for share in first)
    assert 140 < high < 260  # six standard deviations


def test_a_wrong_share_is_another_secret_or_none():
    secret = secrets.token_bytes(32)
    shares = dict(enumerate(shamir.split(secret, 3, 3), 1))
    wrong = (int.from_bytes(shares[2], "big") ^ 1).to_bytes(33, "big")
    try:
        assert shamir.join({**shares, 2: wrong}, 3) != secret
    except ValueError as error:
        assert "not shares of one secret" in str(error)


@pytest.mark.parametrize("share", [b"", bytes(32), b"\xff" * 33])
def test_what_is_no_number_of_the_field_is_refused(share):
    good = shamir.split(bytes(32), 2, 2)
    with pytest.raises(ValueError, match="not a share"):
        shamir.join({1: good[0], 2: share}, 2)


@pytest.mark.parametrize(
    ("secret", "threshold", "parties", "message"),
    [(bytes(31), 1, 2, "32 bytes"), (bytes(32), 0, 2, "threshold"), (bytes(32), 3, 2, "threshold")],
)
def test_impossible_splits(secret, threshold, parties, message):
    with pytest.raises(ValueError, match=message):
        shamir.split(secret, threshold, parties)


@pytest.mark.parametrize("places", [[1, 1], [0, 1], [1, shamir.PRIME]])
def test_impossible_numbers(places):
    with pytest.raises(ValueError, match="numbered from 1"):
        shamir.weights(places)
