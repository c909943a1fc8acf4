"""Words of users: SipHash-2-4 as published, and coins that are as likely as promised."""

import struct

import numpy as np
import pytest

from murmuration.privacy.mechanisms.coins import bernoulli, user_words

KEY = bytes(range(16))


def test_the_published_vector():
    """Appendix A's key and the message 00 01 … 07, from the authors' reference vectors."""
    (name,) = struct.unpack("<Q", bytes(range(8)))
    assert user_words(KEY, np.array([name], dtype=np.uint64)).tolist() == [0x93F5F5799A932462]


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
