"""A signature is of one key on one text."""

import pytest

from murmuration.privacy.secure_aggregation import signing

PRIVATE, OTHER = b"k" * 32, b"j" * 32
WORD = signing.sign(PRIVATE, b"text")
SIGNER = signing.public_key(PRIVATE)


def test_whoever_has_the_key_signs():
    signing.check(SIGNER, b"text", WORD)
    assert (len(SIGNER), len(WORD)) == (signing.KEY_BYTES, signing.SIGNATURE_BYTES)


def test_it_is_the_algorithm_of_rfc_8032():
    """Section 7.1, test 1."""
    private = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert signing.public_key(bytes.fromhex(private)).hex() == public
    assert signing.sign(bytes.fromhex(private), b"").hex().startswith("e5564300c360ac729086e2cc80")


@pytest.mark.parametrize(
    ("signer", "text", "word"),
    [
        (signing.public_key(OTHER), b"text", WORD),
        (SIGNER, b"text.", WORD),
        (SIGNER, b"text", WORD[:-1] + bytes([WORD[-1] ^ 1])),
        (SIGNER, b"text", WORD[:-1]),
        (SIGNER, b"text", b""),
        (b"", b"text", WORD),
        (b"\xff" * 32, b"text", WORD),
    ],
)
def test_nothing_else_is_a_signature(signer, text, word):
    with pytest.raises(ValueError):
        signing.check(signer, text, word)
