"""Words of users: SipHash-2-4 as published, and coins that are as likely as promised."""

import struct

import numpy as np
import pytest

from murmuration.privacy.mechanisms.coins import bernoulli, user_words

KEY = bytes(range(16))


def siphash(key, name):
    """After the description in Aumasson & Bernstein 2012, in whole numbers of any size."""
    mask = 2**64 - 1
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(x, by):
        return ((x << by) | (x >> (64 - by))) & mask

    def rounds(times):
        for _ in range(times):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    for block in (name, 8 << 56):
        v[3] ^= block
        rounds(2)
        v[0] ^= block
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_published_vector():
    """Appendix A's key and the message 00 01 … 07, from the authors' reference vectors."""
    (name,) = struct.unpack("<Q", bytes(range(8)))
    assert user_words(KEY, np.array([name], dtype=np.uint64)).tolist() == [0x93F5F5799A932462]


def test_it_is_siphash():
    generator = np.random.default_rng(0)
    names_N = generator.integers(0, 2**64, size=50, dtype=np.uint64)
    for _ in range(10):
        key = generator.bytes(16)
        expected = [siphash(key, int(name)) for name in names_N]
        assert user_words(key + b"more", names_N).tolist() == expected


def test_a_word_is_a_function_of_key_and_name_alone():
    names_N = np.arange(100, dtype=np.uint64)
    words_N = user_words(KEY, names_N)
    assert user_words(KEY, names_N[::-3]).tolist() == words_N[::-3].tolist()
    assert not set(words_N.tolist()) & set(user_words(KEY[::-1], names_N).tolist())
    assert user_words(KEY, names_N[:0]).tolist() == []
    with pytest.raises(ValueError, match="16 bytes"):
        user_words(KEY[:15], names_N)


def test_heads_are_never_too_likely():
    words = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert bernoulli(words, 1.0).all()
    assert bernoulli(words, 0.5).tolist() == [True, True, True, False, False]
    assert bernoulli(words, 2.0**-64).tolist() == [True, False, False, False, False]
    for tiny in (5e-324, 1e-300, 2.0**-65):
        assert not bernoulli(words, tiny).any()
    most = np.nextafter(1.0, 0.0)
    assert bernoulli(words, most).tolist() == [True, True, True, True, False]
