"""Keys that two agree on, masks that look like nothing, seals that notice."""

import numpy as np
import pytest
from scipy import stats

from murmuration.privacy.secure_aggregation import crypto


def test_two_agree_on_a_key_that_depends_on_everything():
    mine, theirs, other = crypto.new_key(), crypto.new_key(), crypto.new_key()
    key = crypto.agreed_key(mine, crypto.public_key(theirs), b"label")
    assert key == crypto.agreed_key(theirs, crypto.public_key(mine), b"label")
    assert len(key) == 32
    assert key != crypto.agreed_key(mine, crypto.public_key(theirs), b"another")
    assert key != crypto.agreed_key(other, crypto.public_key(theirs), b"label")


def test_a_known_public_key():
    """RFC 7748, section 6.1: Bob's."""
    private = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert crypto.public_key(bytes.fromhex(private)).hex() == public


def test_a_public_key_with_which_everybody_agrees_is_refused():
    with pytest.raises(ValueError):
        crypto.agreed_key(crypto.new_key(), bytes(32), b"label")
    with pytest.raises(ValueError):
        crypto.agreed_key(crypto.new_key(), b"short", b"label")


def test_a_mask_is_the_stream_of_chacha20():
    """The first block for the all-zero key and nonce, as published (RFC 7539, A.1, vector 1)."""
    first = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert crypto.mask(bytes(32), 4).astype("<u8").tobytes().hex() == first


def test_masks_are_uniform_and_unlike_each_other():
    mask_L, other_L = crypto.mask(b"a" * 32, 100_000), crypto.mask(b"b" * 32, 100_000)
    for values_L in (mask_L, mask_L - other_L):
        counts = np.bincount((values_L >> np.uint64(56)).astype(int), minlength=256)
        low = np.bincount((values_L & np.uint64(255)).astype(int), minlength=256)
        for found in (counts, low):
            assert 1e-6 < stats.chisquare(found).pvalue < 1 - 1e-6
    # One bit of the key changes half of the bits.
    near_L = crypto.mask(bytes([1]) + b"a" * 31, 1000)
    flipped = np.unpackbits((mask_L[:1000] ^ near_L).view(np.uint8)).mean()
    assert abs(flipped - 0.5) < 0.01


def test_the_same_key_gives_the_same_mask_and_its_beginning():
    assert (crypto.mask(b"k" * 32, 10) == crypto.mask(b"k" * 32, 20)[:10]).all()
    assert crypto.mask(b"k" * 32, 0).shape == (0,)


def test_a_seal_opens_with_its_key_and_label_only():
    key = crypto.new_key()
    sealed = crypto.seal(key, b"a share", b"from 1 to 2")
    assert len(sealed) == len(b"a share") + crypto.SEAL_BYTES
    assert crypto.unseal(key, sealed, b"from 1 to 2") == b"a share"
    broken = bytes([sealed[0] ^ 1]) + sealed[1:]
    for wrong in (
        (crypto.new_key(), sealed, b"from 1 to 2"),
        (key, sealed, b"from 2 to 1"),
        (key, broken, b"from 1 to 2"),
        (key, sealed[:-1], b"from 1 to 2"),
    ):
        with pytest.raises(ValueError, match="altered"):
            crypto.unseal(*wrong)


def test_derived_keys_and_commitments_differ_by_purpose():
    secret = crypto.new_key()
    assert crypto.derived_key(secret, b"a") != crypto.derived_key(secret, b"b")
    assert crypto.commitment(secret) not in (secret, crypto.derived_key(secret, b"a"))
    assert crypto.commitment(secret) == crypto.commitment(bytes(secret))
